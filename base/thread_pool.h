// A few threads that share the iterations of one loop at a time.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tq {

class ThreadPool {
  public:
    // 0: one thread per core. If the system cannot start all of them, the pool works with the threads that started, notes it once
    // on standard error, and threads() returns their number.
    explicit ThreadPool(uint32_t threads = 0);
    ~ThreadPool();

    // Calls body(begin, end) on disjoint ranges that cover [0, count), on all threads including the caller's, and waits for
    // them. A thread that has finished a range takes the next, several per thread. `grain`: the fewest iterations worth a call.
    // body must not throw and must not call each() itself.
    void each(uint32_t count, uint32_t grain, const std::function<void(uint32_t begin, uint32_t end)>& body);

    uint32_t threads() const { return uint32_t(workers_.size()) + 1; }

  private:
    // Threads sleep on it until a condition holds.
    struct Bell {
        template <class Done> void wait_for(Done done); // returns once done() is true; who makes it so rings
        void ring();

        std::atomic<uint32_t> sleepers = 0; // asleep, or about to be
        std::mutex mutex;
        std::condition_variable changed;
    };

    void work();
    void take_ranges();
    const std::function<void(uint32_t, uint32_t)>* body_ = nullptr;
    uint32_t count_ = 0, step_ = 0;        // iterations of the loop, and of a range
    std::atomic<uint64_t> next_ = 0;       // the first iteration that nobody has taken; at least count_ when all are taken
    std::atomic<uint32_t> generation_ = 0; // number of loops so far
    std::atomic<bool> open_ = false;       // the loop may be joined
    std::atomic<uint32_t> inside_ = 0;     // workers that are checking open_, or are in the loop
    std::atomic<bool> stopping_ = false;
    Bell called_, left_;                // rung by each() for the workers; by the last worker inside for each()
    std::vector<std::jthread> workers_; // last, so that they are joined before the members that they use are destroyed
};

} // namespace tq
