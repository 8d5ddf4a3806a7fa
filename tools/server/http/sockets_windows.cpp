// Winsock. A socket that is connected to itself by UDP wakes a waiting thread: there are no pipes in WSAPoll.
#include "base/error.h"
#include "tools/server/http/sockets.h"
#include "tools/server/http/sockets_system.h"
#include <algorithm>

namespace tq::server {
namespace {

bool would_block() { return ::WSAGetLastError() == WSAEWOULDBLOCK; }

} // namespace

// Winsock must be started once in a process before any other of its calls. Looking up an address and making a Waker are the two
// first calls that anything here makes, so these two start it. It is never ended: sockets may live as long as the process.
void start_sockets() {
    static const int started = [] {
        WSADATA data;
        return ::WSAStartup(MAKEWORD(2, 2), &data);
    }();
    if (started != 0) fail("Winsock cannot be started: error {}", started);
}

int socket_error() { return ::WSAGetLastError(); }

std::string socket_error_text(int error) { return fmt::format("error {}", error); }

std::string look_up_error_text(int error) { return socket_error_text(error); }

bool lacks_descriptors(int error) { return error == WSAEMFILE || error == WSAENOBUFS; }

void prepare(Handle handle) {
    u_long on = 1;
    ::ioctlsocket(handle, FIONBIO, &on);
}

void close_handle(Handle handle) { ::closesocket(handle); }

int poll_all(Polled* sockets, size_t count, int timeout_ms) { return ::WSAPoll(sockets, ULONG(count), timeout_ms); }

// tools/server/http/sockets.h says what is returned, on both systems. Winsock counts in int, and has no errno: its error is
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

// The socket is bound to a free port of 127.0.0.1 and connected to that same port. So it takes datagrams from itself alone, and
// one socket is both ends. Nothing is lost if its buffer is full: one unread byte is as good as many.
Waker::Waker() {
    start_sockets();
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
