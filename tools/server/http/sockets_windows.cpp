// Winsock. A socket that is connected to itself by UDP wakes a waiting thread: there are no pipes in WSAPoll.
#include "base/error.h"
#include "base/printable.h"
#include "tools/server/http/sockets.h"
#include "tools/server/http_server.h"
#include <algorithm>
#include <memory>
#include <vector>
#include <winsock2.h>
#include <ws2tcpip.h>

namespace tq::server {
namespace {

// Winsock must be started once in a process before any other of its calls. Looking up an address and making a Waker are the two
// first calls that anything here makes, so these two start it. It is never ended: sockets may live as long as the process.
void start_winsock() {
    static const int started = [] {
        WSADATA data;
        return ::WSAStartup(MAKEWORD(2, 2), &data);
    }();
    if (started != 0) fail("Winsock cannot be started: error {}", started);
}

void prepare(SOCKET handle) {
    u_long on = 1;
    ::ioctlsocket(handle, FIONBIO, &on);
}

void set_option(SOCKET handle, int level, int option) {
    const int on = 1;
    ::setsockopt(handle, level, option, reinterpret_cast<const char*>(&on), sizeof(on));
}

bool would_block() { return ::WSAGetLastError() == WSAEWOULDBLOCK; }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, uint16_t port) {
    start_winsock();
    addrinfo hints = {}, *found = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0)
        fail("the address {} is not known (error {}): --host takes an address of this machine", printable(host), error);
    return {found, ::freeaddrinfo};
}

[[noreturn]] void fail_to_listen(const std::string& host, uint16_t port, int error) {
    const std::string where = printable(host);
    if (error == WSAEADDRINUSE)
        fail("port {} of {} is in use: choose another with --port, or stop the program that listens there", port, where);
    if (error == WSAEACCES) fail("port {} of {} is not allowed to this user: choose another with --port", port, where);
    if (error == WSAEADDRNOTAVAIL)
        fail("this machine does not have the address {}: --host takes one of its own, such as 127.0.0.1", where);
    fail("cannot listen on port {} of {}: error {}", port, where, error);
}

uint16_t port_of(SOCKET handle) {
    sockaddr_storage address = {};
    int size = sizeof(address);
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
    if (is_open()) ::closesocket(SOCKET(handle_));
}

// The results are those of tools/server/http/sockets.h on both systems. Winsock counts in int, and has no errno: its error is
// asked for at once, because any later call may replace it.
long Socket::read(char* bytes, size_t size) {
    const int n = ::recv(SOCKET(handle_), bytes, int(std::min<size_t>(size, 1 << 20)), 0);
    return n > 0 ? n : n < 0 && would_block() ? 0 : -1;
}

long Socket::write(const char* bytes, size_t size) {
    const int n = ::send(SOCKET(handle_), bytes, int(std::min<size_t>(size, 1 << 20)), 0);
    return n >= 0 ? n : would_block() ? 0 : -1;
}

bool Socket::peer_gone() const {
    char byte;
    const int n = ::recv(SOCKET(handle_), &byte, 1, MSG_PEEK);
    return n == 0 || (n < 0 && !would_block());
}

void Socket::finish_writing() { ::shutdown(SOCKET(handle_), SD_SEND); }

// A name may have several addresses (::1 and 127.0.0.1 for localhost). The first that can be bound is taken. If none can, the
// error of the last one is reported.
Listener listen_on(const std::string& host, uint16_t port) {
    const Addresses addresses = look_up(host, port);
    int error = WSAEADDRNOTAVAIL;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket(intptr_t(::socket(at->ai_family, at->ai_socktype, at->ai_protocol)));
        if (!socket.is_open()) {
            error = ::WSAGetLastError();
            continue;
        }
        const SOCKET handle = SOCKET(socket.handle());
        prepare(handle);
        set_option(handle, SOL_SOCKET, SO_EXCLUSIVEADDRUSE); // else another program may take over the port
        if (::bind(handle, at->ai_addr, int(at->ai_addrlen)) == 0 && ::listen(handle, 512) == 0) {
            const uint16_t chosen = port_of(handle);
            return {std::move(socket), chosen};
        }
        error = ::WSAGetLastError();
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
    Socket socket(intptr_t(::accept(SOCKET(listener.handle()), nullptr, nullptr)));
    exhausted = !socket.is_open() && (::WSAGetLastError() == WSAEMFILE || ::WSAGetLastError() == WSAENOBUFS);
    if (!socket.is_open()) return socket;
    prepare(SOCKET(socket.handle()));
    set_option(SOCKET(socket.handle()), IPPROTO_TCP, TCP_NODELAY); // events are small, and each is wanted now
    return socket;
}

// A socket that has failed counts as readable and writable, so that the next read or write finds the error. If WSAPoll itself
// fails, nothing is ready.
void wait_for(std::span<Waiting> sockets, std::chrono::milliseconds timeout) {
    std::vector<WSAPOLLFD> all;
    all.reserve(sockets.size());
    for (const Waiting& one : sockets)
        all.push_back({SOCKET(one.handle), SHORT((one.read ? POLLIN : 0) | (one.write ? POLLOUT : 0)), 0});
    if (::WSAPoll(all.data(), ULONG(all.size()), int(timeout.count())) < 0)
        for (WSAPOLLFD& one : all) one.revents = 0;
    for (size_t i = 0; i < all.size(); i++) {
        const bool failed = all[i].revents & (POLLHUP | POLLERR | POLLNVAL);
        sockets[i].read = failed || (all[i].revents & POLLIN);
        sockets[i].write = failed || (all[i].revents & POLLOUT);
    }
}

// A socket that does not block connects in the background: it becomes writable when the connection stands, and SO_ERROR says
// whether it does. A WSAPoll that does not report refused connections (before Windows 10 2004) ends at the timeout, with the same
// result.
Socket connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
    const Addresses addresses = look_up(host, port);
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket(intptr_t(::socket(at->ai_family, at->ai_socktype, at->ai_protocol)));
        if (!socket.is_open()) continue;
        const SOCKET handle = SOCKET(socket.handle());
        prepare(handle);
        if (::connect(handle, at->ai_addr, int(at->ai_addrlen)) != 0 && !would_block()) continue;
        Waiting one{socket.handle(), false, true};
        wait_for({&one, 1}, timeout);
        int error = 0;
        int size = sizeof(error);
        ::getsockopt(handle, SOL_SOCKET, SO_ERROR, reinterpret_cast<char*>(&error), &size);
        if (one.write && error == 0) return socket;
    }
    return Socket();
}

// The socket is bound to a free port of 127.0.0.1 and connected to that same port. So it takes datagrams from itself alone, and
// one socket is both ends. Nothing is lost if its buffer is full: one unread byte is as good as many.
Waker::Waker() {
    start_winsock();
    const SOCKET handle = ::socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (handle == INVALID_SOCKET || ::bind(handle, generic, size) != 0 || ::getsockname(handle, generic, &size) != 0 ||
        ::connect(handle, generic, size) != 0)
        fail("cannot make a socket of this process alone: error {}", ::WSAGetLastError());
    prepare(handle);
    read_end_ = write_end_ = intptr_t(handle);
}

Waker::~Waker() { ::closesocket(SOCKET(read_end_)); }

void Waker::wake() { ::send(SOCKET(write_end_), "", 1, 0); }

void Waker::clear() {
    char bytes[16];
    while (::recv(SOCKET(read_end_), bytes, sizeof(bytes), 0) > 0) {
    }
}

size_t raise_descriptor_limit() { return 8192; } // Windows has no such limit

} // namespace tq::server
