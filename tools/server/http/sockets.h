// TCP sockets that never block, and waiting for many of them. What differs between systems: sockets_system.h.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tq::server {

// Closes itself. Reads and writes return the number of bytes, 0 if it would block, and -1 if the connection is at its end.
class Socket {
  public:
    static constexpr intptr_t none = -1;
    explicit Socket(intptr_t handle = none) : handle_(handle) {}
    Socket(Socket&& other) noexcept : handle_(other.handle_) { other.handle_ = none; }
    Socket& operator=(Socket&& other) noexcept;
    ~Socket();

    intptr_t handle() const { return handle_; }
    bool is_open() const { return handle_ != none; }
    long read(char* bytes, size_t size);
    long write(const char* bytes, size_t size);
    bool peer_gone() const; // closed or shut down its side; bytes that it sent before may still be unread
    void finish_writing();  // sends the end of what was written

  private:
    intptr_t handle_;
};

struct Listener {
    Socket socket;
    uint16_t port = 0;
};
// Port 0: the system chooses one. Throws Error with a sentence about the port or the address.
Listener listen_on(const std::string& host, uint16_t port);
// A waiting connection, or a closed socket if there is none. `exhausted`: there are too few descriptors.
Socket accept_one(const Socket& listener, bool& exhausted);

struct Waiting {
    intptr_t handle;
    bool read, write; // wanted; afterwards: ready
};
// A connection to a server, or a closed socket if there is none within `timeout`. Throws Error for a name that nobody knows.
Socket connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout);
// Returns when a socket is ready or failed, or after `timeout`.
void wait_for(std::span<Waiting> sockets, std::chrono::milliseconds timeout);

// Ends a wait_for() of another thread.
class Waker {
  public:
    Waker();
    ~Waker();
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;
    intptr_t handle() const { return read_end_; } // readable after wake()
    void wake();
    void clear();

  private:
    intptr_t read_end_, write_end_;
};

// The greatest number of descriptors of this process, after raising its own limit as far as it may.
size_t raise_descriptor_limit();

} // namespace tq::server
