#include "base/thread_pool.h"
#include <algorithm>

namespace tq {

ThreadPool::ThreadPool(uint32_t threads) {
    if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
    for (uint32_t i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    start_.notify_all();
}

void ThreadPool::each(uint32_t count, uint32_t grain, const std::function<void(uint32_t, uint32_t)>& body) {
    const uint32_t parts = std::min(threads(), count / std::max(1u, grain));
    if (parts <= 1) {
        if (count > 0) body(0, count);
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        body_ = &body;
        count_ = count;
        parts_ = parts;
        running_ = uint32_t(workers_.size());
        generation_++;
    }
    start_.notify_all();
    run_part(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return running_ == 0; });
}

void ThreadPool::run_part(uint32_t worker) const {
    if (worker >= parts_) return;
    const auto bound = [&](uint32_t part) { return uint32_t(uint64_t(count_) * part / parts_); };
    (*body_)(bound(worker), bound(worker + 1));
}

void ThreadPool::work(uint32_t worker) {
    uint64_t seen = 0;
    while (true) {
        {
            std::unique_lock lock(mutex_);
            start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
            if (stopping_) return;
            seen = generation_;
        }
        run_part(worker);
        const std::lock_guard lock(mutex_);
        if (--running_ == 0) done_.notify_one();
    }
}

} // namespace tq
