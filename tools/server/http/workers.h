// Threads that come when there is work, and go when there has been none for a while.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace tq::server {

class Workers {
  public:
    explicit Workers(uint32_t max) : max_(max) {}
    ~Workers() { stop(); }

    void run(std::function<void()> task); // at once, or when a thread is free
    void stop();                          // forgets what has not begun, and waits for the rest
    size_t threads() const;

  private:
    void work();

    const uint32_t max_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::map<std::thread::id, std::thread> threads_;
    std::vector<std::thread> ended_; // or about to, to be joined
    uint32_t free_ = 0;
    bool stopping_ = false;
};

} // namespace tq::server
