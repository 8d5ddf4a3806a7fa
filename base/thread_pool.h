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
    // 0: one per core. Where the system starts no more, it works with those there are, says so once on standard error, and
    // threads() tells how many.
    explicit ThreadPool(uint32_t threads = 0);
    ~ThreadPool();

    // Calls body(begin, end) on disjoint ranges that cover [0, count), on all threads including the caller's, and waits for
    // them. A thread that is done with a range takes the next, several per thread. `grain`: the fewest iterations worth a call.
    // body must not throw and must not call each() itself.
    void each(uint32_t count, uint32_t grain, const std::function<void(uint32_t begin, uint32_t end)>& body);

    uint32_t threads() const { return uint32_t(workers_.size()) + 1; }

  private:
    void work();
    void take_ranges();

    const std::function<void(uint32_t, uint32_t)>* body_ = nullptr;
    uint32_t count_ = 0, step_ = 0;        // of the loop; iterations of a range
    std::atomic<uint64_t> next_ = 0;       // iteration that nobody has taken; beyond count_ when all are
    std::atomic<uint32_t> generation_ = 0; // of loops
    std::atomic<bool> open_ = false;       // this loop may be joined
    std::atomic<uint32_t> inside_ = 0;     // workers that look whether it is open, or are in it
    std::atomic<bool> stopping_ = false;
    std::vector<std::jthread> workers_; // the last: joined before what they use goes
};

} // namespace tq
