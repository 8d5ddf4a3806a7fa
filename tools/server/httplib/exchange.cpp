#include "tools/server/httplib/exchange.h"
#include <fmt/format.h>
#include <httplib.h>
#include <utility>

namespace tq::server {
namespace {

constexpr uint64_t max_unframed_bytes = 32 << 10; // read in one go, without any of them being the body's

// What the library reads: a head of only what it needs, then the body; and where it writes.
class ClientStream final : public httplib::Stream {
  public:
    ClientStream(Connection& connection, std::string head) : connection_(connection), head_(std::move(head)) {}

    // Without `override`: which of these there are depends on the library's version.
    virtual bool is_readable() const { return true; }
    virtual bool is_writable() const { return true; }
    virtual bool wait_readable() const { return true; }
    virtual bool wait_writable() const { return true; }
    virtual bool is_peer_alive() const { return !connection_.peer_gone(); }
    virtual ssize_t read(char* bytes, size_t size) {
        if (at_ < head_.size()) {
            const size_t n = head_.copy(bytes, size, at_);
            at_ += n;
            return ssize_t(n);
        }
        const long n = unframed_bytes < max_unframed_bytes ? connection_.read(bytes, size) : -1;
        unframed_bytes += uint64_t(std::max(n, 0L));
        return ssize_t(n);
    }
    virtual ssize_t write(const char* bytes, size_t size) { return connection_.write({bytes, size}) ? ssize_t(size) : -1; }
    virtual void get_remote_ip_and_port(std::string&, int&) const {}
    virtual void get_local_ip_and_port(std::string&, int&) const {}
    virtual socket_t socket() const { return 0; }
    virtual time_t duration() const { return 0; }

    uint64_t unframed_bytes = 0;

  private:
    Connection& connection_;
    const std::string head_;
    size_t at_ = 0;
};

std::string minimal_head(const Head& head) {
    std::string text = fmt::format("{} {} HTTP/1.{}\r\n", head.method, head.target, head.http10 ? 0 : 1);
    if (head.chunked)
        text += "Transfer-Encoding: chunked\r\n";
    else if (head.has_body)
        text += fmt::format("Content-Length: {}\r\n", head.content_length);
    if (head.has_body && head.headers.contains("expect")) text += "Expect: 100-continue\r\n";
    if (!head.keep_alive) text += "Connection: close\r\n";
    return text + "\r\n";
}

// One that is answered by this thread.
struct Exchange {
    Connection& connection;
    ClientStream& stream;
    const Head& head;
    std::string path = {}; // decoded
    bool replied = false, close = false;
};
thread_local Exchange* current = nullptr;

const char* phrase(int status) {
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
    }
}

} // namespace

class Exchanges::Library final : public httplib::Server {
  public:
    Library(server::Handler handler, Refuse refuse, const HeadLimits& limits, std::chrono::seconds idle_timeout);

    bool process(ClientStream& stream, Exchange& exchange);

    const server::Handler handler;
    const Refuse refuse;
    const HeadLimits limits;

  private:
    void reply(const httplib::Request& from, std::string body, httplib::Response& to);
    void read_and_reply(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read);
    void write(HttpReply reply, httplib::Response& to);
    void write_stream(std::shared_ptr<HttpReply> reply, httplib::Response& to);

    // The library's signature grew: addresses came with 0.16.1, and web sockets later.
    template <class Self> static bool process_request_of(Self& self, httplib::Stream& stream, bool& closed,
                                                         const std::function<void(httplib::Request&)>& setup) {
        if constexpr (requires { self.process_request(stream, false, closed, setup); })
            return self.process_request(stream, false, closed, setup);
        else
            return self.process_request(stream, std::string(), 0, std::string(), 0, false, closed, setup);
    }
};

Exchanges::Library::Library(server::Handler handler, Refuse refuse, const HeadLimits& limits, std::chrono::seconds idle_timeout)
    : handler(std::move(handler)), refuse(std::move(refuse)), limits(limits) {
    svr_sock_ = 0;                    // no socket: streams end early without one
    set_payload_max_length(SIZE_MAX); // read_and_reply() counts
    set_keep_alive_timeout(idle_timeout.count());
    set_keep_alive_max_count(1'000'000);
    set_pre_routing_handler([this](const httplib::Request& from, httplib::Response& to) {
        const Head& head = current->head;
        if (head.has_body && head.method == "POST") return HandlerResponse::Unhandled;
        current->close = current->close || head.has_body; // it is not read
        reply(from, "", to);
        return HandlerResponse::Handled;
    });
    Post("/", [this](const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read) {
        read_and_reply(from, to, read);
    });
    set_error_handler(HandlerWithResponse([this](const httplib::Request&, httplib::Response& to) {
        if (current->replied) return HandlerResponse::Unhandled;
        current->close = true;
        write(this->refuse(to.status, "the request is not well-formed", current->head.path), to);
        return HandlerResponse::Handled;
    }));
    set_post_routing_handler([](const httplib::Request&, httplib::Response& to) {
        to.headers.erase("Accept-Ranges");
        if (!current->close) return;
        to.headers.erase("Keep-Alive");
        to.headers.erase("Connection");
        to.set_header("Connection", "close");
    });
}

bool Exchanges::Library::process(ClientStream& stream, Exchange& exchange) {
    current = &exchange;
    bool closed = false;
    const auto setup = [&](httplib::Request& request) { exchange.path = std::exchange(request.path, std::string(1, '/')); };
    const bool written = process_request_of(*this, stream, closed, setup);
    current = nullptr;
    return written && !closed && !exchange.close;
}

void Exchanges::Library::reply(const httplib::Request& from, std::string body, httplib::Response& to) {
    Connection* const connection = &current->connection;
    HttpRequest request;
    request.method = from.method;
    request.path = current->path;
    request.body = std::move(body);
    request.headers = current->head.headers;
    request.query = {from.params.begin(), from.params.end()};
    request.disconnected = [connection] { return connection->peer_gone(); };
    write(handler(request), to);
}

void Exchanges::Library::read_and_reply(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read) {
    std::string body;
    bool is_too_long = false;
    const bool whole = read([&](const char* bytes, size_t size) {
        current->stream.unframed_bytes = 0;
        is_too_long = size > limits.body_bytes - body.size();
        if (!is_too_long) body.append(bytes, size);
        return !is_too_long;
    });
    if (whole) return reply(from, std::move(body), to);
    current->close = true;
    const std::string& path = current->head.path;
    if (is_too_long) return write(refuse(413, fmt::format("the body has more than {} bytes", limits.body_bytes), path), to);
    if (current->connection.is_late())
        return write(refuse(408, "the body did not come in time: send it faster, or a shorter one", path), to);
    write(refuse(400, "the body breaks off, or its chunks are not well-formed", path), to);
}

void Exchanges::Library::write(HttpReply reply, httplib::Response& to) {
    current->replied = true;
    current->close = current->close || !current->head.keep_alive;
    to.status = reply.status;
    to.headers.erase("Content-Length");
    for (const auto& [name, value] : reply.headers) to.set_header(name.c_str(), value.c_str());
    if (reply.stream) return write_stream(std::make_shared<HttpReply>(std::move(reply)), to);
    to.set_content(reply.body, reply.type.c_str());
}

void Exchanges::Library::write_stream(std::shared_ptr<HttpReply> reply, httplib::Response& to) {
    Connection* const connection = &current->connection;
    const auto provide = [reply, connection](size_t, httplib::DataSink& sink) {
        try {
            reply->stream([&](std::string_view bytes) {
                const bool sent = bytes.empty() || sink.write(bytes.data(), bytes.size()); // a chunk without bytes is the end
                return sent && !connection->peer_gone();
            });
        } catch (...) {
            return false; // the client sees that the end is missing
        }
        sink.done();
        return true;
    };
    if (current->head.http10)
        to.set_content_provider(reply->type.c_str(), provide);
    else
        to.set_chunked_content_provider(reply->type.c_str(), provide);
}

Exchanges::Exchanges(Handler handler, Refuse refuse, const HeadLimits& limits, std::chrono::seconds idle_timeout)
    : library_(std::make_unique<Library>(std::move(handler), std::move(refuse), limits, idle_timeout)) {}

Exchanges::~Exchanges() = default;

bool Exchanges::answer(Connection& connection) {
    const std::string bytes = connection.take(head_length(connection.received()));
    Head head;
    if (const auto refused = read_head(bytes, library_->limits, head)) {
        connection.write(refusal(refused->status, refused->reason, head.path));
        return false;
    }
    ClientStream stream(connection, minimal_head(head));
    Exchange exchange{connection, stream, head};
    connection.begin_body();
    return library_->process(stream, exchange);
}

std::string Exchanges::refusal(int status, const std::string& reason, const std::string& path) const {
    const HttpReply reply = library_->refuse(status, reason, path);
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, phrase(reply.status));
    for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
    return text + fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", reply.type,
                              reply.body.size(), reply.body);
}

} // namespace tq::server
