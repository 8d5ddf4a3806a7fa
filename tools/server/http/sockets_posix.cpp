// Sockets of POSIX, non-blocking, closed in child processes. poll() waits, so descriptors beyond FD_SETSIZE are no matter. What
// differs between systems is here: Linux has MSG_NOSIGNAL and POLLRDHUP, macOS SO_NOSIGPIPE and neither of them.
// peer_gone() is asked while an answer is computed, and must take nothing from the socket. A client that closed is told from one
// that has sent its next request early (pipelining) by POLLRDHUP, else by looking at one byte without taking it.
// accept_one() tells two failures apart: nobody waits, and there are too few descriptors (`exhausted`). The second leaves the
// client in the queue, so a loop that ignored it would spin.
#include "base/error.h"
#include "base/printable.h"
#include "tools/server/http/sockets.h"
#include "tools/server/http_server.h"
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace tq::server {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0; // SO_NOSIGPIPE is set instead
#endif
#ifdef POLLRDHUP
constexpr short peer_closed = POLLRDHUP;
#else
constexpr short peer_closed = 0;
#endif

void prepare(int handle) {
    ::fcntl(handle, F_SETFD, FD_CLOEXEC);
    ::fcntl(handle, F_SETFL, ::fcntl(handle, F_GETFL) | O_NONBLOCK);
}

void set_option(int handle, int level, int option) {
    const int on = 1;
    ::setsockopt(handle, level, option, &on, sizeof(on));
}

// EINTR counts as "not now": a signal has come, and the loop asks again.
bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, uint16_t port) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0)
        fail("the address {} is not known ({}): --host takes an address of this machine", printable(host), ::gai_strerror(error));
    return {found, ::freeaddrinfo};
}

[[noreturn]] void fail_to_listen(const std::string& host, uint16_t port, int error) {
    const std::string where = printable(host);
    if (error == EADDRINUSE)
        fail("port {} of {} is in use: choose another with --port, or stop the program that listens there", port, where);
    if (error == EACCES) fail("port {} of {} is not allowed to this user: choose one from 1024 on with --port", port, where);
    if (error == EADDRNOTAVAIL)
        fail("this machine does not have the address {}: --host takes one of its own, such as 127.0.0.1", where);
    fail("cannot listen on port {} of {}: {}", port, where, std::strerror(error));
}

uint16_t port_of(int handle) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    ::getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size);
    if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

} // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
}

Socket::~Socket() {
    if (is_open()) ::close(int(handle_));
}

long Socket::read(char* bytes, size_t size) {
    const ssize_t n = ::recv(int(handle_), bytes, size, 0);
    return n > 0 ? long(n) : n < 0 && would_block() ? 0 : -1;
}

long Socket::write(const char* bytes, size_t size) {
    const ssize_t n = ::send(int(handle_), bytes, size, send_flags);
    return n >= 0 ? long(n) : would_block() ? 0 : -1;
}

bool Socket::peer_gone() const {
    pollfd one = {int(handle_), short(POLLIN | peer_closed), 0};
    if (::poll(&one, 1, 0) <= 0) return false;
    if (one.revents & (POLLHUP | POLLERR | POLLNVAL | peer_closed)) return true;
    char byte;
    const ssize_t n = ::recv(int(handle_), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && !would_block());
}

void Socket::finish_writing() { ::shutdown(int(handle_), SHUT_WR); }

// A name may have several addresses (::1 and 127.0.0.1 for localhost). The first that can be bound is taken. If none can, the
// error of the last one is reported.
Listener listen_on(const std::string& host, uint16_t port) {
    const Addresses addresses = look_up(host, port);
    int error = EADDRNOTAVAIL;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket(::socket(at->ai_family, at->ai_socktype, at->ai_protocol));
        if (!socket.is_open()) {
            error = errno;
            continue;
        }
        const int handle = int(socket.handle());
        prepare(handle);
        set_option(handle, SOL_SOCKET, SO_REUSEADDR); // a server that was just stopped may start again
        if (::bind(handle, at->ai_addr, at->ai_addrlen) == 0 && ::listen(handle, 512) == 0) {
            const uint16_t chosen = port_of(handle);
            return {std::move(socket), chosen};
        }
        error = errno;
    }
    fail_to_listen(host, port, error);
}

// All addresses of the name must be of this machine, not one of them: which of several is bound is known only afterwards. An
// empty host means all interfaces.
bool is_loopback(const std::string& host) {
    const Addresses addresses = look_up(host, 0);
    if (host.empty()) return false;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        if (at->ai_family == AF_INET) {
            const uint32_t address = ntohl(reinterpret_cast<const sockaddr_in*>(at->ai_addr)->sin_addr.s_addr);
            if (address >> 24 != 127) return false;
        } else if (at->ai_family != AF_INET6 ||
                   !IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(at->ai_addr)->sin6_addr)) {
            return false;
        }
    }
    return true;
}

Socket accept_one(const Socket& listener, bool& exhausted) {
    Socket socket(::accept(int(listener.handle()), nullptr, nullptr));
    exhausted = !socket.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (!socket.is_open()) return socket;
    prepare(int(socket.handle()));
    set_option(int(socket.handle()), IPPROTO_TCP, TCP_NODELAY); // events are small, and each is wanted now
#ifdef SO_NOSIGPIPE
    set_option(int(socket.handle()), SOL_SOCKET, SO_NOSIGPIPE);
#endif
    return socket;
}

// A socket that has failed counts as readable and writable, so that the next read or write finds the error. If poll() itself
// fails (a signal), nothing is ready.
void wait_for(std::span<Waiting> sockets, std::chrono::milliseconds timeout) {
    std::vector<pollfd> all;
    all.reserve(sockets.size());
    for (const Waiting& one : sockets)
        all.push_back({int(one.handle), short((one.read ? POLLIN : 0) | (one.write ? POLLOUT : 0)), 0});
    if (::poll(all.data(), nfds_t(all.size()), int(timeout.count())) < 0)
        for (pollfd& one : all) one.revents = 0;
    for (size_t i = 0; i < all.size(); i++) {
        const bool failed = all[i].revents & (POLLHUP | POLLERR | POLLNVAL);
        sockets[i].read = failed || (all[i].revents & POLLIN);
        sockets[i].write = failed || (all[i].revents & POLLOUT);
    }
}

// A socket that does not block connects in the background: it becomes writable when that has ended, and SO_ERROR says how. Each
// address of the name has the whole time.
Socket connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
    const Addresses addresses = look_up(host, port);
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket(::socket(at->ai_family, at->ai_socktype, at->ai_protocol));
        if (!socket.is_open()) continue;
        const int handle = int(socket.handle());
        prepare(handle);
        if (::connect(handle, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) continue;
        Waiting one{socket.handle(), false, true};
        wait_for({&one, 1}, timeout);
        int error = 0;
        socklen_t size = sizeof(error);
        ::getsockopt(handle, SOL_SOCKET, SO_ERROR, &error, &size);
        if (one.write && error == 0) return socket;
    }
    return Socket();
}

Waker::Waker() {
    int ends[2];
    if (::pipe(ends) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
    prepare(ends[0]);
    prepare(ends[1]);
    read_end_ = ends[0];
    write_end_ = ends[1];
}

Waker::~Waker() {
    ::close(int(read_end_));
    ::close(int(write_end_));
}

void Waker::wake() {
    if (::write(int(write_end_), "", 1) < 0) return; // full: it is awake
}

void Waker::clear() {
    char bytes[256];
    while (::read(int(read_end_), bytes, sizeof(bytes)) > 0) {
    }
}

// The soft limit is often 1024, which a server with many idle clients reaches; the hard one is higher and needs no rights. 8192
// are as many as are needed here.
size_t raise_descriptor_limit() {
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max == RLIM_INFINITY ? rlim_t(8192) : std::min(limit.rlim_max, rlim_t(8192));
    if (raised.rlim_cur > limit.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    return size_t(std::min(limit.rlim_cur, rlim_t(1) << 20));
}

} // namespace tq::server
