// The common part of Winsock and the sockets of POSIX (sockets_system.h has the differences).
// accept_one() tells two failures apart: nobody waits, and there are too few descriptors (`exhausted`). The second leaves the
// client in the queue, so a loop that ignored it would spin.
#include "tools/server/http/sockets.h"
#include "base/error.h"
#include "base/printable.h"
#include "tools/server/http/sockets_system.h"
#include "tools/server/http_server.h"
#include <memory>
#include <utility>
#include <vector>

namespace tq::server {
namespace {

void set_option(Handle handle, int level, int option) {
    const int on = 1;
    ::setsockopt(handle, level, option, reinterpret_cast<const char*>(&on), sizeof(on));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, uint16_t port) {
    start_sockets();
    addrinfo hints = {}, *found = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0)
        fail("the address {} is not known ({}): --host takes an address of this machine", printable(host),
             look_up_error_text(error));
    return {found, ::freeaddrinfo};
}

Socket make_socket(const addrinfo& of) { return Socket(intptr_t(::socket(of.ai_family, of.ai_socktype, of.ai_protocol))); }

[[noreturn]] void fail_to_listen(const std::string& host, uint16_t port, int error) {
    const std::string where = printable(host);
    if (error == address_in_use)
        fail("port {} of {} is in use: choose another with --port, or stop the program that listens there", port, where);
    if (error == address_denied)
        fail("port {} of {} is not allowed to this user: choose {} with --port", port, where, allowed_ports);
    if (error == address_unknown)
        fail("this machine does not have the address {}: --host takes one of its own, such as 127.0.0.1", where);
    fail("cannot listen on port {} of {}: {}", port, where, socket_error_text(error));
}

uint16_t port_of(Handle handle) {
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
    if (is_open()) close_handle(Handle(handle_));
}

// A name may have several addresses (::1 and 127.0.0.1 for localhost). The first that can be bound is taken. If none can, the
// error of the last one is reported.
Listener listen_on(const std::string& host, uint16_t port) {
    const Addresses addresses = look_up(host, port);
    int error = address_unknown;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket = make_socket(*at);
        if (!socket.is_open()) {
            error = socket_error();
            continue;
        }
        const auto handle = Handle(socket.handle());
        prepare(handle);
        set_option(handle, SOL_SOCKET, listener_option);
        if (::bind(handle, at->ai_addr, socklen_t(at->ai_addrlen)) == 0 && ::listen(handle, 512) == 0) {
            const uint16_t chosen = port_of(handle);
            return {std::move(socket), chosen};
        }
        error = socket_error();
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
    Socket socket(intptr_t(::accept(Handle(listener.handle()), nullptr, nullptr)));
    exhausted = !socket.is_open() && lacks_descriptors(socket_error());
    if (!socket.is_open()) return socket;
    const auto handle = Handle(socket.handle());
    prepare(handle);
    set_option(handle, IPPROTO_TCP, TCP_NODELAY); // events are small, and each is wanted now
    return socket;
}

// A socket that has failed counts as readable and writable, so that the next read or write finds the error. If the wait itself
// fails (a signal), nothing is ready.
void wait_for(std::span<Waiting> sockets, std::chrono::milliseconds timeout) {
    std::vector<Polled> all;
    all.reserve(sockets.size());
    for (const Waiting& one : sockets)
        all.push_back({Handle(one.handle), short((one.read ? POLLIN : 0) | (one.write ? POLLOUT : 0)), 0});
    if (poll_all(all.data(), all.size(), int(timeout.count())) < 0)
        for (Polled& one : all) one.revents = 0;
    for (size_t i = 0; i < all.size(); i++) {
        const bool failed = all[i].revents & (POLLHUP | POLLERR | POLLNVAL);
        sockets[i].read = failed || (all[i].revents & POLLIN);
        sockets[i].write = failed || (all[i].revents & POLLOUT);
    }
}

// A socket that does not block connects in the background: it becomes writable when that has ended, and SO_ERROR says how. Each
// address of the name has the whole time. A WSAPoll that does not report refused connections (before Windows 10 2004) ends at the
// timeout, with the same result.
Socket connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
    const Addresses addresses = look_up(host, port);
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
        Socket socket = make_socket(*at);
        if (!socket.is_open()) continue;
        const auto handle = Handle(socket.handle());
        prepare(handle);
        if (::connect(handle, at->ai_addr, socklen_t(at->ai_addrlen)) != 0 && socket_error() != connecting) continue;
        Waiting one{socket.handle(), false, true};
        wait_for({&one, 1}, timeout);
        int error = 0;
        socklen_t size = sizeof(error);
        ::getsockopt(handle, SOL_SOCKET, SO_ERROR, reinterpret_cast<char*>(&error), &size);
        if (one.write && error == 0) return socket;
    }
    return Socket();
}

} // namespace tq::server
