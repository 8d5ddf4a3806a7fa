// A head becomes an HttpRequest, and an HttpReply becomes bytes. Framing: a reply of known length has Content-Length; a stream
// has chunks, or in HTTP/1.0 its end is that of the connection. The terminating chunk goes out with the stream's last part
// (Send::last) in one write, so a client that closes after the last event has read all of it. A stream whose function throws is
// left without its end: the client sees that it broke off.
// The reply to HEAD has the headers of GET and no body. A value with CR, LF or NUL is left out, because a header could otherwise
// begin a second reply (response splitting).
#include "tools/server/http/exchange.h"
#include <fmt/format.h>
#include <utility>

namespace tq::server {
namespace {

const char* phrase(int status) {
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
    }
}

// False for replies that end with their head: a length in one would be wrong (RFC 9110, sections 8.6 and 15.4.5).
bool has_content(const HttpReply& reply) { return reply.status != 204 && reply.status != 304; }

// The head of a reply, without the empty line at its end. A value with control characters is left out: it could end the head.
std::string reply_head(const HttpReply& reply) {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, phrase(reply.status));
    const auto add = [&](std::string_view name, std::string_view value) {
        if (value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos) text += fmt::format("{}: {}\r\n", name, value);
    };
    for (const auto& [name, value] : reply.headers) add(name, value);
    if (has_content(reply)) add("Content-Type", reply.type);
    return text;
}

std::string with_length(const HttpReply& reply, const std::string& more, bool is_head) {
    std::string text = reply_head(reply);
    if (has_content(reply)) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
    text += more + "\r\n";
    if (!is_head && has_content(reply)) text += reply.body;
    return text;
}

HttpRequest request_of(const Head& head) {
    HttpRequest request;
    request.method = head.method;
    request.path = percent_decoded(head.path, false);
    request.headers = head.headers;
    std::string_view query = std::string_view(head.target).substr(std::min(head.path.size() + 1, head.target.size()));
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(pair.size() + 1, query.size()));
        const size_t equals = std::min(pair.find('='), pair.size());
        if (!pair.empty())
            request.query.emplace(percent_decoded(pair.substr(0, equals), true),
                                  percent_decoded(pair.substr(std::min(equals + 1, pair.size())), true));
    }
    return request;
}

// Sends a body part by part. Returns false if the end is missing: the client is gone, or the function threw.
bool send_stream(Connection& connection, const HttpReply& reply, bool chunked) {
    const auto framed = [&](std::string_view bytes) {
        if (bytes.empty() || !chunked) return std::string(bytes); // a chunk without bytes would be the end
        return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
    };
    bool sent = true;
    std::string end;
    try {
        reply.stream(Send([&](std::string_view bytes, bool is_last) {
            if (is_last) return end += framed(bytes), true;
            sent = sent && connection.write(framed(bytes));
            return sent && !connection.peer_gone();
        }));
    } catch (...) {
        return false;
    }
    if (chunked) end += "0\r\n\r\n";
    return sent && connection.write(end);
}

} // namespace

std::string Exchanges::keep_alive(bool closes) const {
    return closes ? "Connection: close\r\n" : fmt::format("Keep-Alive: timeout={}\r\n", idle_timeout_.count());
}

// False if the connection is at its end.
static bool send_reply(Connection& connection, const HttpReply& reply, const std::string& keep_alive) {
    const bool is_head = connection.head.method == "HEAD", chunked = !connection.head.http10;
    if (!reply.stream) return connection.write(with_length(reply, keep_alive, is_head));
    const char* const framing = chunked ? "Transfer-Encoding: chunked\r\n" : "";
    return connection.write(reply_head(reply) + keep_alive + framing + "\r\n") &&
           (is_head || send_stream(connection, reply, chunked));
}

// The body counts until the reply is sent: a stream keeps what was made of it.
bool Exchanges::answer(Connection& connection) const {
    const Head& head = connection.head;
    const bool closes = !head.keep_alive || (head.has_body && !connection.body); // a body that was refused is not read
    HttpReply reply;
    {
        HttpRequest request = request_of(head);
        if (connection.body) request.body = connection.body->take();
        request.disconnected = [&connection] { return connection.peer_gone(); };
        reply = handler_(request);
    }
    if (!reply.stream) connection.forget_body();
    const bool sent = send_reply(connection, reply, keep_alive(closes));
    reply = {};
    connection.forget_body();
    return sent && !closes;
}

std::optional<std::string> Exchanges::refusal(const Head& head) const {
    if (!refuse_head_) return std::nullopt;
    HttpRequest request = request_of(head);
    request.disconnected = [] { return false; };
    const auto reply = refuse_head_(request);
    return reply ? std::optional(with_length(*reply, keep_alive(true), false)) : std::nullopt;
}

std::string Exchanges::refusal(int status, const std::string& reason, const std::string& path) const {
    return with_length(refuse_(status, reason, path), keep_alive(true), false);
}

} // namespace tq::server
