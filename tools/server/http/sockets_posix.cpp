// Sockets of POSIX, non-blocking, closed in child processes. poll() waits, so descriptors beyond FD_SETSIZE are no matter. What
// differs between them is here: Linux has MSG_NOSIGNAL and POLLRDHUP, macOS SO_NOSIGPIPE and neither of them.
// peer_gone() is asked while an answer is computed, and must take nothing from the socket. A client that closed is told from one
// that has sent its next request early (pipelining) by POLLRDHUP, else by looking at one byte without taking it.
#include "base/error.h"
#include "tools/server/http/sockets.h"
#include "tools/server/http/sockets_system.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tq::server {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0; // prepare() sets SO_NOSIGPIPE instead
#endif
#ifdef POLLRDHUP
constexpr short peer_closed = POLLRDHUP;
#else
constexpr short peer_closed = 0;
#endif

// EINTR counts as "not now": a signal has come, and the loop asks again.
bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

} // namespace

void start_sockets() {}

int socket_error() { return errno; }

std::string socket_error_text(int error) { return std::strerror(error); }

std::string look_up_error_text(int error) { return ::gai_strerror(error); }

bool lacks_descriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

void prepare(Handle handle) {
    ::fcntl(handle, F_SETFD, FD_CLOEXEC);
    ::fcntl(handle, F_SETFL, ::fcntl(handle, F_GETFL) | O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    const int on = 1;
    ::setsockopt(handle, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

void close_handle(Handle handle) { ::close(handle); }

int poll_all(Polled* sockets, size_t count, int timeout_ms) { return ::poll(sockets, nfds_t(count), timeout_ms); }

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
