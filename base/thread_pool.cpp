#include "base/thread_pool.h"
#include <algorithm>
#include <chrono>

namespace tq {
namespace {

// Waits for `done` for some microseconds, without sleeping: what follows one loop of a pool is most often the next, and waking a
// thread takes longer than many loops. False when it was in vain.
template <class Done> bool spin_until(Done done) {
    using namespace std::chrono;
    constexpr auto patience = microseconds(50);
    if (done()) return true;
    for (const auto start = steady_clock::now(); steady_clock::now() - start < patience;)
        if (done()) return true;
    return false;
}

} // namespace

ThreadPool::ThreadPool(uint32_t threads) {
    if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
    for (uint32_t i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    stopping_ = true;
    generation_++;
    generation_.notify_all();
}

void ThreadPool::each(uint32_t count, uint32_t grain, const std::function<void(uint32_t, uint32_t)>& body) {
    const uint32_t parts = std::min(threads(), count / std::max(1u, grain));
    if (parts <= 1) {
        if (count > 0) body(0, count);
        return;
    }
    body_ = &body;
    count_ = count;
    parts_ = parts;
    running_ = uint32_t(workers_.size());
    generation_++; // publishes what is above
    generation_.notify_all();
    run_part(0);
    spin_until([&] { return running_ == 0; });
    for (uint32_t running = running_; running != 0; running = running_) running_.wait(running);
}

void ThreadPool::run_part(uint32_t worker) const {
    if (worker >= parts_) return;
    const auto bound = [&](uint32_t part) { return uint32_t(uint64_t(count_) * part / parts_); };
    (*body_)(bound(worker), bound(worker + 1));
}

void ThreadPool::work(uint32_t worker) {
    for (uint32_t seen = 0;;) {
        if (!spin_until([&] { return generation_ != seen; })) generation_.wait(seen);
        seen = generation_;
        if (stopping_) return;
        run_part(worker);
        if (--running_ == 0) running_.notify_one();
    }
}

} // namespace tq
