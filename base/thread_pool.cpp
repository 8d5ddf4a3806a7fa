// A pool for loops that take microseconds: a token takes many of them, one after the other. Waking a thread by the system takes
// as long as such a loop, so threads spin for 50 us before they sleep, and a call takes no lock unless somebody sleeps.
// The protocol of each(): the loop's fields are written, `open_` is set, and `generation_` is raised, which tells the workers.
// All threads, the caller's too, take ranges from a shared counter until none is left. Then the caller closes the loop and waits
// only for the workers that are inside. A worker that wakes late finds the loop closed and goes back to sleep; it cannot touch a
// later loop's fields halfway, as it counts itself in (inside_) before it looks at open_, and each() does both in the opposite
// order. These are sequentially consistent, which the argument needs.
// The next range is a 64-bit counter, as it runs beyond count by a step for each thread.
#include "base/thread_pool.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace tq {
namespace {

// Waits for `done` for some microseconds: after one loop of a pool usually comes the next, and waking a thread takes longer than
// many loops. Returns false when `done` stayed false.
template <class Done> bool spin_until(Done done) {
    using namespace std::chrono;
    constexpr auto patience = microseconds(50);
    if (done()) return true;
    for (const auto start = steady_clock::now(); steady_clock::now() - start < patience;)
        if (done()) return true;
    return false;
}

// Notes it once: a program makes several pools, and each reaches the same limit.
void note_missing_threads(uint32_t started, uint32_t requested, const char* why) {
    static std::atomic<bool> noted = false;
    if (noted.exchange(true)) return;
    fmt::print(stderr,
               "tq-run: only {} of {} threads could be started ({}), and tq-run continues with those: ask for fewer with -t, or "
               "raise the limit of threads (ulimit -u, or a container's limit of pids)\n",
               started, requested, why);
}

} // namespace

ThreadPool::ThreadPool(uint32_t threads) {
    if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
    workers_.reserve(threads - 1);
    try {
        while (workers_.size() < threads - 1) workers_.emplace_back([this] { work(); });
    } catch (const std::exception& error) { // not rethrown: the destructor, which stops the threads, would not run
        note_missing_threads(this->threads(), threads, error.what());
    }
}

ThreadPool::~ThreadPool() {
    stopping_ = true;
    generation_++;
    called_.ring();
}

// std::atomic::wait is not used: that of gcc 12 for Windows reads the value before it takes the lock, and so misses a change in
// between.
template <class Done> void ThreadPool::Bell::wait_for(Done done) {
    if (spin_until(done)) return;
    std::unique_lock lock(mutex);
    sleepers++; // before done() looks for the last time: who changes something looks at the sleepers after that
    changed.wait(lock, done);
    sleepers--;
}

void ThreadPool::Bell::ring() {
    if (sleepers == 0) return;
    std::unique_lock(mutex).unlock(); // whoever was counted is asleep by now
    changed.notify_all();
}

void ThreadPool::each(uint32_t count, uint32_t grain, const std::function<void(uint32_t, uint32_t)>& body) {
    constexpr uint32_t ranges_per_thread = 8; // the others wait for at most one range of a preempted thread
    const uint32_t min = std::max(1u, grain);
    if (workers_.empty() || count / min <= 1) {
        if (count > 0) body(0, count);
        return;
    }
    const uint32_t ranges = std::min(count / min, ranges_per_thread * threads());
    body_ = &body;
    count_ = count;
    step_ = (count + ranges - 1) / ranges;
    next_ = 0;
    open_ = true;
    generation_++; // publishes the fields above
    called_.ring();
    take_ranges();
    open_ = false; // a worker that has not arrived yet is not waited for
    left_.wait_for([&] { return inside_ == 0; });
}

void ThreadPool::take_ranges() {
    for (uint64_t begin = next_.fetch_add(step_); begin < count_; begin = next_.fetch_add(step_))
        (*body_)(uint32_t(begin), uint32_t(std::min<uint64_t>(count_, begin + step_)));
}

void ThreadPool::work() {
    for (uint32_t seen = 0;;) {
        called_.wait_for([&] { return generation_ != seen; });
        seen = generation_;
        if (stopping_) return;
        inside_++; // before it reads open_: each() does both in the opposite order
        if (open_) take_ranges();
        if (--inside_ == 0) left_.ring();
    }
}

} // namespace tq
