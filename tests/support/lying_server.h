// A server that says the same whatever it is asked.
#pragma once
#include "tests/support/redis_server.h"
#include <atomic>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace tq::test {

// Answers every connection, once its request has ended, with the same bytes, and then keeps it open, or closes it.
class LyingServer {
  public:
    // `between`: the time between bytes, which are then sent one by one.
    explicit LyingServer(std::string reply, std::chrono::milliseconds between = {}, bool closes = false)
        : reply_(std::move(reply)), between_(between), closes_(closes) {
        listen(socket_.fd, 8);
        thread_ = std::thread([this] { serve(); });
    }
    ~LyingServer() {
        stop_ = true;
        thread_.join();
    }
    uint16_t port() const { return socket_.port; }
    size_t sent() const { return sent_; }

  private:
    static bool readable(int fd) {
        pollfd one{fd, POLLIN, 0};
        return poll(&one, 1, 20) > 0;
    }
    void send_reply(int fd) {
        for (size_t at = 0; !stop_ && at < reply_.size();) {
            const size_t max = between_.count() > 0 ? 1 : reply_.size() - at;
            const ssize_t n = send(fd, reply_.data() + at, max, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN) return;
            if (n < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            at += n > 0 ? size_t(n) : 0;
            sent_ = at;
            std::this_thread::sleep_for(between_);
        }
    }
    void serve() {
        while (!stop_) {
            if (!readable(socket_.fd)) continue;
            const int fd = accept(socket_.fd, nullptr, nullptr);
            char bytes[4096];
            while (!stop_ && !readable(fd)) {
            }
            for (int quiet = 0; !stop_ && quiet < 3;) // the whole request
                quiet = readable(fd) && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0 ? 0 : quiet + 1;
            send_reply(fd);
            if (closes_) shutdown(fd, SHUT_WR); // close() would reset the connection if a request was not read
            while (!stop_ && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) != 0)
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            close(fd);
        }
    }

    const LocalSocket socket_;
    const std::string reply_;
    const std::chrono::milliseconds between_;
    const bool closes_;
    std::atomic<bool> stop_ = false;
    std::atomic<size_t> sent_ = 0;
    std::thread thread_;
};

} // namespace tq::test
