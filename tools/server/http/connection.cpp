// A client's bytes, through TLS or not, and how long they may take. The loop calls the functions that do not wait; the worker
// that answers calls write() and peer_gone(). A connection belongs to one of these threads at a time (http_server.cpp), so
// nothing here is locked; `bodies_` is shared with other connections and atomic.
// Time limits rise with the bytes, so that a large body over a slow line is no stall: what is sent or received may take the stall
// timeout and, beyond it, 1 s for each 64 KiB. A client that sends one byte at a time gains nothing, because the deadline of a
// body is counted from the body's beginning (`body_began_`) and not only from the last byte. Urgent replies are small; a client
// must read them within a second, or it would hold one of the few threads for them.
// `ended_` is set by the first failed read or write and stays: after an error of TLS the session must not be used again.
#include "tools/server/http/connection.h"
#include "base/system_memory.h"
#include <algorithm>
#include <array>
#include <utility>

namespace tq::server {
namespace {

constexpr std::chrono::milliseconds look_interval{100}; // at `stopping`
constexpr std::chrono::milliseconds urgent_stall{1000};
constexpr uint64_t min_bytes_per_s = 64 << 10, large_body_bytes = 1 << 20;

std::chrono::milliseconds time_for(uint64_t bytes) { return std::chrono::milliseconds(bytes * 1000 / min_bytes_per_s); }

} // namespace

Connection::Connection(Socket socket, Tls* tls, std::chrono::milliseconds stall_timeout, const std::atomic<bool>& stopping,
                       std::atomic<uint64_t>& bodies)
    : socket_(std::move(socket)), tls_(tls ? tls->session(socket_) : nullptr), stall_timeout_(stall_timeout), stopping_(stopping),
      bodies_(bodies) {
    if (tls_) state = State::handshake;
}

long Connection::read_some(char* bytes, size_t size) {
    const long n = tls_ ? tls_->read(bytes, size) : socket_.read(bytes, size);
    ended_ = ended_ || n < 0;
    return n;
}

// Taken bytes are removed from the front only here, once for each reading, and not with each take(): many small pieces of a large
// buffer would else be moved as often.
bool Connection::receive(size_t max) {
    received_.erase(0, std::exchange(taken_, 0));
    std::array<char, 16384> bytes;
    while (max > 0) {
        const long n = read_some(bytes.data(), std::min(max, bytes.size()));
        if (n <= 0) return n == 0;
        received_.append(bytes.data(), size_t(n));
        max -= size_t(n);
    }
    return true;
}

bool Connection::finish_handshake(bool& done) {
    const long result = tls_->handshake();
    done = result > 0;
    return result >= 0;
}

Waiting Connection::waiting() const {
    const bool write = tls_ && tls_->wants_write();
    return {socket_.handle(), !write, write};
}

bool Connection::wait_to_write(Clock::time_point end) {
    const auto now = Clock::now();
    if (now >= end || stopping_) return false;
    Waiting one{socket_.handle(), false, true};
    if (tls_) one = waiting();
    if (tls_ && !one.write) one.read = true;
    wait_for({&one, 1}, std::min(look_interval, std::chrono::ceil<std::chrono::milliseconds>(end - now)));
    return true;
}

void Connection::begin_body(uint64_t max) {
    state = State::body;
    body = std::make_unique<BodyReader>(head, max);
    body_began_ = Clock::now();
    read_body();
}

// The deadline is the stall timeout after the earlier of now and the time at which a client of the least speed would have sent as
// much. So one that has sent little has a deadline that hardly moves.
void Connection::read_body() {
    take(body->push(received()));
    bodies_ += body->size() - counted_;
    counted_ = body->size();
    deadline = stall_timeout_ + std::min(Clock::now(), body_began_ + time_for(counted_));
}

// Parsing a large body took many times its bytes of memory, which the C library would keep.
void Connection::forget_body() {
    body.reset();
    const uint64_t counted = std::exchange(counted_, 0);
    bodies_ -= counted;
    if (counted >= large_body_bytes) return_freed_memory();
}

std::string Connection::take(size_t bytes) {
    std::string taken(received().substr(0, bytes));
    taken_ += taken.size();
    return taken;
}

long Connection::write_some(std::string_view bytes) {
    const long n = ended_ ? -1 : tls_ ? tls_->write(bytes.data(), bytes.size()) : socket_.write(bytes.data(), bytes.size());
    ended_ = ended_ || n < 0;
    return n;
}

void Connection::write_at_once(std::string_view bytes) {
    for (long n = 1; n > 0 && !bytes.empty(); bytes.remove_prefix(size_t(std::max(n, 0L)))) n = write_some(bytes);
}

// The limit is of the whole text, not of each piece that the socket takes: a client that reads a byte at a time would else hold
// the thread forever.
bool Connection::write(std::string_view bytes) {
    const auto end = Clock::now() + (urgent ? std::min(stall_timeout_, urgent_stall) : stall_timeout_) + time_for(bytes.size());
    while (!bytes.empty()) {
        const long n = write_some(bytes);
        ended_ = n < 0 || (n == 0 && !wait_to_write(end));
        if (ended_) return false;
        bytes.remove_prefix(size_t(n));
    }
    return true;
}

bool Connection::peer_gone() const { return ended_ || stopping_ || socket_.peer_gone(); }

void Connection::finish_writing() {
    if (tls_) tls_->finish_writing();
    socket_.finish_writing();
}

} // namespace tq::server
