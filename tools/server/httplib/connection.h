// One client's connection: its bytes, in clear, and how long they may take.
#pragma once
#include "tools/server/httplib/tls.h"
#include <atomic>
#include <string>
#include <string_view>

namespace tq::server {

using Clock = std::chrono::steady_clock;

class Connection {
  public:
    enum class State { handshake, idle, head, lingering }; // of one that waits; idle: between requests

    // stopping: ends what waits for the client.
    Connection(Socket socket, Tls* tls, std::chrono::milliseconds stall_timeout, const std::atomic<bool>& stopping);

    // Without waiting: reads what is there, at most `most` bytes more, into received(). False where the client is gone.
    bool receive(size_t most);
    bool finish_handshake(bool& done);          // without waiting; false where it failed
    void write_at_once(std::string_view bytes); // as much as the socket takes without waiting
    Waiting waiting() const;

    // Waiting for the client, which must not be slower than the stall timeout and 64 KiB/s after it.
    void begin_body();                   // from here on body bytes are counted
    long read(char* bytes, size_t size); // -1: gone, too slow, or stopping
    bool write(std::string_view bytes);  // false likewise

    bool peer_gone() const;
    bool is_late() const { return is_late_; } // it was too slow
    void finish_writing();

    std::string_view received() const { return std::string_view(received_).substr(taken_); } // and not taken yet
    std::string take(size_t bytes);

    State state = State::idle;
    Clock::time_point deadline; // of the state
    uint32_t requests = 0;

  private:
    long read_some(char* bytes, size_t size);
    long write_some(std::string_view bytes);
    bool wait_until(Clock::time_point end, bool write);

    Socket socket_;
    std::unique_ptr<TlsSession> tls_;
    std::string received_;
    size_t taken_ = 0;
    const std::chrono::milliseconds stall_timeout_;
    const std::atomic<bool>& stopping_;
    Clock::time_point body_began_;
    uint64_t body_bytes_ = 0;
    bool is_late_ = false, ended_ = false;
};

} // namespace tq::server
