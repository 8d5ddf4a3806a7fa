#include "tools/server/httplib/exchange.h"
#include <fmt/format.h>
#include <httplib.h>
#include <utility>

namespace tq::server {
namespace {

// What the library reads: a head of only what it needs; and where it writes.
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
        const size_t n = head_.copy(bytes, size, at_);
        at_ += n;
        return n > 0 ? ssize_t(n) : -1;
    }
    virtual ssize_t write(const char* bytes, size_t size) {
        held_.append(bytes, size);
        return holds || flush() ? ssize_t(size) : -1;
    }
    virtual void get_remote_ip_and_port(std::string&, int&) const {}
    virtual void get_local_ip_and_port(std::string&, int&) const {}
    virtual socket_t socket() const { return 0; }
    virtual time_t duration() const { return 0; }

    bool flush() { return connection_.write(std::exchange(held_, {})); }
    bool holds = false; // what is written, until flush()

  private:
    Connection& connection_;
    const std::string head_;
    std::string held_;
    size_t at_ = 0;
};

std::string minimal_head(const Head& head) {
    std::string text = fmt::format("{} {} HTTP/1.{}\r\n", head.method, head.target, head.http10 ? 0 : 1);
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
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
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

// A reply without the library, after which the connection ends.
std::string text_of(const HttpReply& reply) {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, phrase(reply.status));
    for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
    return text + fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", reply.type,
                              reply.body.size(), reply.body);
}

} // namespace

class Exchanges::Library final : public httplib::Server {
  public:
    Library(server::Handler handler, Refuse refuse, RefuseHead refuse_head, std::chrono::seconds idle_timeout);

    bool process(ClientStream& stream, Exchange& exchange);

    const server::Handler handler;
    const Refuse refuse;
    const RefuseHead refuse_head;

  private:
    void reply(const httplib::Request& from, httplib::Response& to);
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

Exchanges::Library::Library(server::Handler handler, Refuse refuse, RefuseHead refuse_head, std::chrono::seconds idle_timeout)
    : handler(std::move(handler)), refuse(std::move(refuse)), refuse_head(std::move(refuse_head)) {
    svr_sock_ = 0; // no socket: streams end early without one
    set_keep_alive_timeout(idle_timeout.count());
    set_keep_alive_max_count(1'000'000);
    set_pre_routing_handler([this](const httplib::Request& from, httplib::Response& to) {
        current->close = current->close || (current->head.has_body && !current->connection.body); // it is not read
        reply(from, to);
        return HandlerResponse::Handled;
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

void Exchanges::Library::reply(const httplib::Request& from, httplib::Response& to) {
    Connection* const connection = &current->connection;
    HttpReply reply;
    {
        HttpRequest request;
        request.method = from.method;
        request.path = current->path;
        if (connection->body) request.body = connection->body->take();
        request.headers = current->head.headers;
        request.query = {from.params.begin(), from.params.end()};
        request.disconnected = [connection] { return connection->peer_gone(); };
        reply = handler(request);
    }
    connection->forget_body();
    write(std::move(reply), to);
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
        std::string last;
        try {
            reply->stream([&](std::string_view bytes) {
                if (is_last_part()) return last += bytes, true;
                const bool sent = bytes.empty() || sink.write(bytes.data(), bytes.size()); // a chunk without bytes is the end
                return sent && !connection->peer_gone();
            });
        } catch (...) {
            return false; // the client sees that the end is missing
        }
        current->stream.holds = true;
        if (!last.empty()) sink.write(last.data(), last.size());
        sink.done();
        current->stream.holds = false;
        return current->stream.flush();
    };
    if (current->head.http10)
        to.set_content_provider(reply->type.c_str(), provide);
    else
        to.set_chunked_content_provider(reply->type.c_str(), provide);
}

Exchanges::Exchanges(Handler handler, Refuse refuse, RefuseHead refuse_head, std::chrono::seconds idle_timeout)
    : library_(std::make_unique<Library>(std::move(handler), std::move(refuse), std::move(refuse_head), idle_timeout)) {}

Exchanges::~Exchanges() = default;

bool Exchanges::answer(Connection& connection) {
    ClientStream stream(connection, minimal_head(connection.head));
    Exchange exchange{connection, stream, connection.head};
    return library_->process(stream, exchange);
}

std::optional<std::string> Exchanges::refusal(const Head& head) const {
    if (!library_->refuse_head) return std::nullopt;
    HttpRequest request;
    request.method = head.method;
    request.path = httplib::detail::decode_url(head.path, false);
    request.headers = head.headers;
    request.disconnected = [] { return false; };
    const auto reply = library_->refuse_head(request);
    return reply ? std::optional(text_of(*reply)) : std::nullopt;
}

std::string Exchanges::refusal(int status, const std::string& reason, const std::string& path) const {
    return text_of(library_->refuse(status, reason, path));
}

} // namespace tq::server
