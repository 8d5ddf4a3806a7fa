#include "tools/server/http/workers.h"
#include <chrono>
#include <utility>

namespace tq::server {
namespace {

constexpr std::chrono::seconds idle_time{5};

} // namespace

// Starts a thread only if there are more tasks than free threads, and fewer than max_ threads.
void Workers::run(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    for (std::thread& thread : std::exchange(ended_, {})) thread.join(); // they need no lock any more
    tasks_.push_back(std::move(task));
    if (free_ >= tasks_.size() || threads_.size() == max_) return changed_.notify_one();
    std::thread thread([this] { work(); });
    threads_.emplace(thread.get_id(), std::move(thread));
}

// A thread that has no task for idle_time ends. It cannot join itself, so it puts itself into ended_, and run() or stop() joins
// it.
void Workers::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        free_++;
        changed_.wait_for(lock, idle_time, [&] { return stopping_ || !tasks_.empty(); });
        free_--;
        if (stopping_ || tasks_.empty()) break;
        std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
    }
    const auto self = threads_.find(std::this_thread::get_id());
    if (self == threads_.end()) return; // stop() joins it
    ended_.push_back(std::move(self->second));
    threads_.erase(self);
}

void Workers::stop() {
    std::map<std::thread::id, std::thread> threads;
    std::vector<std::thread> ended;
    std::deque<std::function<void()>> forgotten;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        threads.swap(threads_);
        ended.swap(ended_);
        forgotten.swap(tasks_);
    }
    changed_.notify_all();
    for (auto& [id, thread] : threads) thread.join();
    for (std::thread& thread : ended) thread.join();
}

size_t Workers::threads() const {
    const std::lock_guard lock(mutex_);
    return threads_.size();
}

} // namespace tq::server
