// A single thread waits for all connections until a request is complete, so that slow clients hold no thread; other threads, as
// many as are needed, answer.
// A connection belongs to one thread at a time. It moves into the task of a worker (dispatch), and back by returned_ and the
// waker; so its state needs no lock. While a worker streams an answer it waits for the client itself, for which
// Connection::write() sets the limits. Each state of a waiting connection has a deadline. If descriptors or connections run
// out, the one that has been silent longest is closed. Urgent requests (/health) have a few threads of their own, which answer
// if all others are busy.
// A refusal is sent, and then what the client still sends is read and forgotten for a while (lingering): to close a socket
// with unread bytes resets the connection, and the client may lose the refusal (RFC 9112, section 9.6).
// The bodies of all requests share a limit. The head is judged before its body is read, so a client without a key costs no
// memory.
#include "tools/server/http_server.h"
#include "tools/server/http/exchange.h"
#include "tools/server/http/workers.h"
#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace tq::server {
namespace {

using Waiter = std::unique_ptr<Connection>;

constexpr std::chrono::milliseconds linger_timeout{2000};
constexpr size_t read_at_once = 64 << 10;
constexpr size_t other_descriptors = 64; // that are not connections
constexpr uint32_t urgent_threads = 4;
constexpr char tls_handshake = 22;                                       // the first byte of a client that speaks TLS
constexpr std::string_view tls_alert("\x15\x03\x01\x00\x02\x02\x28", 7); // fatal, handshake_failure

HttpOptions within_limits(HttpOptions options) {
    const size_t max = raise_descriptor_limit();
    options.connections = uint32_t(std::min<size_t>(options.connections, max - std::min(max / 2, other_descriptors)));
    return options;
}

} // namespace

class HttpServer::Loop {
  public:
    Loop(const HttpOptions& options, Handler handler, Refuse refuse, RefuseHead refuse_head);
    ~Loop() { stop(); }

    void stop();
    uint16_t port() const { return listener_.port; }
    Status status() const { return {connections_, workers_.threads() + urgent_.threads(), answering_}; }

  private:
    void run();
    std::chrono::milliseconds until_first_deadline() const;
    void accept_all();
    bool make_room();
    void take_returned();
    void look_at(Waiter& waiter, bool ready);
    bool receive(Connection& connection);
    void take_request(Waiter& waiter);
    void take_body(Waiter& waiter);
    void dispatch(Waiter& waiter);
    void answer(Connection& connection);
    void refuse(Connection& connection, int status, const std::string& reason);
    void end_with(Connection& connection, const std::string& reply);
    void enter(Connection& connection, Connection::State state) const;
    std::chrono::milliseconds timeout_of(const Connection& connection) const;

    const HttpOptions options_;
    const HeadLimits limits_;
    Exchanges exchanges_;
    const std::unique_ptr<Tls> tls_;
    Listener listener_;
    Waker waker_;
    std::atomic<bool> stopping_ = false;
    std::atomic<size_t> connections_ = 0;
    std::atomic<uint64_t> bodies_ = 0;  // bytes
    std::vector<Waiter> waiting_;       // only the loop's thread uses it
    std::atomic<size_t> answering_ = 0; // given to the workers and not returned; only the loop's thread changes it
    bool exhausted_ = false;
    std::mutex mutex_;
    std::vector<Waiter> returned_; // by the workers
    Workers workers_, urgent_{urgent_threads};
    std::thread thread_;
};

HttpServer::Loop::Loop(const HttpOptions& options, Handler handler, Refuse refuse, RefuseHead refuse_head)
    : options_(within_limits(options)), limits_{.body_bytes = options.body_bytes},
      exchanges_(std::move(handler), std::move(refuse), std::move(refuse_head),
                 std::chrono::duration_cast<std::chrono::seconds>(options.idle_timeout)),
      tls_(options.certificate_file.empty() ? nullptr : open_tls(options.certificate_file, options.key_file)),
      listener_(listen_on(options.host, options.port)), workers_(options.threads), thread_([this] { run(); }) {}

// The order matters. First the loop's thread ends, so that no request is given out any more; then the workers end their tasks,
// which see `stopping_` in Connection::write() and give up waiting for slow clients; then nobody is left who uses a connection.
void HttpServer::Loop::stop() {
    if (stopping_.exchange(true)) return;
    waker_.wake();
    thread_.join();
    workers_.stop();
    urgent_.stop();
    waiting_.clear();
    returned_.clear();
    connections_ = 0;
    listener_.socket = Socket();
}

void HttpServer::Loop::run() {
    std::vector<Waiting> sockets;
    while (!stopping_) {
        sockets.assign(1, {waker_.handle(), true, false});
        sockets.push_back({listener_.socket.handle(), !exhausted_, false});
        for (const Waiter& one : waiting_) sockets.push_back(one->waiting());
        wait_for(sockets, until_first_deadline());
        waker_.clear();
        for (size_t i = 0; i < waiting_.size(); i++) look_at(waiting_[i], sockets[i + 2].read || sockets[i + 2].write);
        std::erase(waiting_, nullptr);
        take_returned();
        exhausted_ = false;
        accept_all(); // also without news: the listener is not asked while descriptors are exhausted
        connections_ = waiting_.size() + answering_;
    }
}

// If descriptors are exhausted, the listener is not waited for: it would be ready at once, again and again. Instead the loop
// looks every 50 ms whether one has become free.
std::chrono::milliseconds HttpServer::Loop::until_first_deadline() const {
    auto first = Clock::now() + (exhausted_ ? std::chrono::milliseconds(50) : std::chrono::milliseconds(10'000));
    for (const Waiter& one : waiting_) first = std::min(first, one->deadline);
    return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()));
}

// Closes a connection that has its reply, else the one that has waited longest since something was done. The deadlines alone
// would close new connections before bodies that do not come, whose deadlines are later.
bool HttpServer::Loop::make_room() {
    const auto first = std::ranges::min_element(waiting_, {}, [this](const Waiter& one) {
        const bool is_over = one->state == Connection::State::lingering;
        return is_over ? Clock::time_point::min() : one->deadline - timeout_of(*one);
    });
    if (first == waiting_.end()) return false;
    std::swap(*first, waiting_.back());
    waiting_.pop_back();
    return true;
}

// If there is no room for a client, it is told so, but not over TLS, because a handshake needs room, too.
void HttpServer::Loop::accept_all() {
    for (int i = 0; i < 64; i++) { // others are to be looked at, too
        Socket socket = accept_one(listener_.socket, exhausted_);
        if (exhausted_ && make_room()) continue;
        if (!socket.is_open()) return;
        const bool is_full = waiting_.size() + answering_ >= options_.connections && !make_room();
        auto connection = std::make_unique<Connection>(std::move(socket), tls_.get(), options_.stall_timeout, stopping_, bodies_);
        if (is_full) {
            if (!tls_)
                connection->write_at_once(
                    exchanges_.refusal(503, "the server has as many connections as it can: try again later"));
            continue;
        }
        enter(*connection, tls_ ? Connection::State::handshake : Connection::State::idle);
        waiting_.push_back(std::move(connection));
    }
}

std::chrono::milliseconds HttpServer::Loop::timeout_of(const Connection& connection) const {
    using enum Connection::State;
    if (connection.state == lingering) return linger_timeout;
    if (connection.state == body) return options_.stall_timeout;
    return connection.state == idle && connection.requests > 0 ? options_.idle_timeout : options_.head_timeout;
}

void HttpServer::Loop::enter(Connection& connection, Connection::State state) const {
    connection.state = state;
    connection.deadline = Clock::now() + timeout_of(connection);
}

void HttpServer::Loop::take_returned() {
    std::vector<Waiter> returned;
    {
        const std::lock_guard lock(mutex_);
        returned.swap(returned_);
    }
    answering_ -= returned.size();
    for (Waiter& one : returned) {
        waiting_.push_back(std::move(one));
        if (waiting_.back()->state != Connection::State::lingering) look_at(waiting_.back(), true);
    }
    std::erase(waiting_, nullptr);
}

// Input is taken before the deadline is looked at, so no client is given up whose request has just become complete. Empties
// `waiter` if it no longer waits.
void HttpServer::Loop::look_at(Waiter& waiter, bool ready) {
    using enum Connection::State;
    Connection& connection = *waiter;
    if (ready && connection.state == handshake) {
        bool done = false;
        if (!connection.finish_handshake(done)) return waiter.reset();
        if (done) enter(connection, idle);
    }
    if (ready && connection.state == body) {
        take_body(waiter);
        if (!waiter) return;
    } else if (ready && connection.state != handshake) {
        if (!receive(connection)) return waiter.reset();
        if (connection.state == head && head_length(connection.received()) > 0) {
            take_request(waiter);
            if (!waiter) return;
        }
    }
    if (Clock::now() < connection.deadline) return;
    if (connection.state == body)
        return refuse(connection, 408, "the body did not come in time: send it faster, or a shorter one");
    if (connection.state != head) return waiter.reset();
    refuse(connection, 408, "the head of the request did not come in time");
}

// False if the connection is at its end.
bool HttpServer::Loop::receive(Connection& connection) {
    using enum Connection::State;
    const bool open = connection.receive(read_at_once);
    if (connection.state == lingering) {
        connection.take(connection.received().size());
        return open;
    }
    if (connection.state == idle) { // an empty line between requests is allowed
        while (connection.received().starts_with("\r\n")) connection.take(2);
        if (!connection.received().empty()) enter(connection, head);
    }
    if (!tls_ && connection.state == head && connection.received().starts_with(tls_handshake)) {
        exchanges_.refusal(400,
                           "a client speaks https, but this port serves http: give it an address that begins with http://, or "
                           "serve https with --ssl-cert-file and --ssl-key-file"); // for the log
        end_with(connection, std::string(tls_alert));
        return open;
    }
    if (head_length(connection.received()) > 0) return true; // is answered, though nothing may follow
    if (connection.received().size() > limits_.bytes) refuse(connection, 431, "the head of the request is too long");
    return open;
}

// A client without a valid key, or with an unknown path, is refused before its body is read.
void HttpServer::Loop::take_request(Waiter& waiter) {
    Connection& connection = *waiter;
    connection.head = {};
    connection.forget_body();
    const Head& head = connection.head;
    const std::string bytes = connection.take(head_length(connection.received()));
    if (const auto refused = read_head(bytes, limits_, connection.head))
        return end_with(connection, exchanges_.refusal(refused->status, refused->reason, head.path));
    connection.urgent = options_.is_urgent && options_.is_urgent(head.method, head.path);
    if (!head.has_body || head.method != "POST") return dispatch(waiter);
    if (const auto refusal = exchanges_.refusal(head)) return end_with(connection, *refusal);
    connection.begin_body(limits_.body_bytes);
    if (head.headers.contains("expect") && !connection.body->done()) connection.write_at_once("HTTP/1.1 100 Continue\r\n\r\n");
    take_body(waiter);
}

// Reads as long as the socket gives full buffers, so that one large body does not wait for the others after each 64 KiB, and at
// most as much as its length says. The limit of all bodies is looked at after each piece, since a length that was promised is not
// yet memory that is used.
void HttpServer::Loop::take_body(Waiter& waiter) {
    Connection& connection = *waiter;
    bool open = true;
    for (size_t more = read_at_once; more == read_at_once && open && !connection.body->done();) {
        open = connection.receive(read_at_once);
        more = connection.received().size();
        connection.read_body();
        if (const auto& refused = connection.body->refusal()) return refuse(connection, refused->status, refused->reason);
        if (bodies_ > options_.bodies_bytes)
            return refuse(connection, 503, "the bodies of other requests fill the memory for them: try again later");
    }
    if (connection.body->done()) return dispatch(waiter);
    if (!open) refuse(connection, 400, "the body breaks off");
}

// Sends what the socket takes at once; the rest of what the client sends is read and forgotten, for a while.
void HttpServer::Loop::end_with(Connection& connection, const std::string& reply) {
    connection.forget_body();
    connection.write_at_once(reply);
    connection.finish_writing();
    enter(connection, Connection::State::lingering);
}

void HttpServer::Loop::refuse(Connection& connection, int status, const std::string& reason) {
    end_with(connection,
             exchanges_.refusal(status, reason, connection.state == Connection::State::body ? connection.head.path : ""));
}

// The task owns the connection until it gives it back. std::function must be copyable, and a unique_ptr is not: hence the
// shared_ptr around it.
void HttpServer::Loop::dispatch(Waiter& waiter) {
    answering_++;
    Workers& workers = waiter->urgent ? urgent_ : workers_;
    workers.run([this, shared = std::make_shared<Waiter>(std::move(waiter))] {
        answer(**shared);
        {
            const std::lock_guard lock(mutex_);
            returned_.push_back(std::move(*shared));
        }
        waker_.wake();
    });
}

void HttpServer::Loop::answer(Connection& connection) {
    connection.requests++;
    if (exchanges_.answer(connection)) return enter(connection, Connection::State::idle);
    connection.finish_writing();
    enter(connection, Connection::State::lingering);
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Refuse refuse, RefuseHead refuse_head)
    : loop_(std::make_unique<Loop>(options, std::move(handler), std::move(refuse), std::move(refuse_head))) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return loop_->port(); }
void HttpServer::stop() { loop_->stop(); }
HttpServer::Status HttpServer::status() const { return loop_->status(); }

} // namespace tq::server
