// A few threads that share the iterations of one loop at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tq {

class ThreadPool {
  public:
    explicit ThreadPool(uint32_t threads = 0); // 0: one per core
    ~ThreadPool();

    // Calls body(begin, end) on disjoint ranges that cover [0, count), on all threads including the caller's, and waits for
    // them. `grain`: the fewest iterations worth a call. body must not throw and must not call each() itself.
    void each(uint32_t count, uint32_t grain, const std::function<void(uint32_t begin, uint32_t end)>& body);

    uint32_t threads() const { return uint32_t(workers_.size()) + 1; }

  private:
    void work(uint32_t worker);
    void run_part(uint32_t worker) const;

    const std::function<void(uint32_t, uint32_t)>* body_ = nullptr;
    uint32_t count_ = 0, parts_ = 0;
    std::atomic<uint32_t> generation_ = 0, running_ = 0; // of loops; workers that are not done with this one
    std::atomic<bool> stopping_ = false;
    std::vector<std::jthread> workers_; // the last: joined before what they use goes
};

} // namespace tq
