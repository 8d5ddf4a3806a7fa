// A client's connection: its bytes, in clear, and how long they may take.
#pragma once
#include "tools/server/http/body.h"
#include "tools/server/http/tls.h"
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

namespace tq::server {

using Clock = std::chrono::steady_clock;

class Connection {
  public:
    enum class State { handshake, idle, head, body, lingering }; // of one that waits; idle: between requests

    // stopping: ends what waits for the client. bodies: bytes of the bodies of all connections; this connection adds its own.
    Connection(Socket socket, Tls* tls, std::chrono::milliseconds stall_timeout, const std::atomic<bool>& stopping,
               std::atomic<uint64_t>& bodies);
    ~Connection() { forget_body(); }

    // Reads the bytes that have arrived, at most `max` more, into received(), without waiting. Returns false if the client is
    // gone.
    bool receive(size_t max);
    bool finish_handshake(bool& done);          // without waiting; false if it failed
    void write_at_once(std::string_view bytes); // as much as the socket takes without waiting
    Waiting waiting() const;

    // Waiting for the client, which must not be slower than the stall timeout and 64 KiB/s after it. False: it is gone or too
    // slow, or the server stops.
    bool write(std::string_view bytes);

    // A body, which must come as fast, and not stall any longer. Until when more must come is in `deadline`.
    void begin_body(uint64_t max);
    void read_body(); // what was received of it
    void forget_body();

    bool peer_gone() const;
    void finish_writing();

    std::string_view received() const { return std::string_view(received_).substr(taken_); } // and not taken yet
    std::string take(size_t bytes);

    State state = State::idle;
    Clock::time_point deadline; // of the state
    uint32_t requests = 0;
    Head head; // of the request that is read or answered
    std::unique_ptr<BodyReader> body;
    bool urgent = false; // it is answered by threads of its own, and must read its reply at once

  private:
    long read_some(char* bytes, size_t size);
    long write_some(std::string_view bytes);
    bool wait_to_write(Clock::time_point end);

    Socket socket_;
    std::unique_ptr<TlsSession> tls_;
    std::string received_;
    size_t taken_ = 0;
    const std::chrono::milliseconds stall_timeout_;
    const std::atomic<bool>& stopping_;
    std::atomic<uint64_t>& bodies_;
    uint64_t counted_ = 0; // of bodies_
    Clock::time_point body_began_;
    bool ended_ = false;
};

} // namespace tq::server
