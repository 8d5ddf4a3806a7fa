// Parses a request's head. The danger is not a crash but a second reading: a proxy in front and this server must agree on where a
// request ends, or a client can hide a request within another's body (request smuggling). So what RFC 9112 lets a server repair
// is refused here: bare LF, a space before a colon, folded lines, two lengths, a length and an encoding together, encodings but
// chunked. Names of headers are tokens, values have no control characters, the target is printable ASCII without a fragment.
// Each refusal has a status and a sentence; `head` keeps what was read until then, so that the log can name the path.
// An absolute address, as clients send to proxies, is taken apart: its authority replaces the Host header (RFC 9112, section
// 3.2.2), so the check of foreign hosts sees the one that counts.
#include "tools/server/http/head.h"
#include "base/printable.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace tq::server {
namespace {

bool is_token(std::string_view text) {
    constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
    return !text.empty() && std::ranges::all_of(text, [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || marks.find(c) != marks.npos;
    });
}

std::string_view without_spaces(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

std::optional<Refusal> refuse(int status, std::string reason) { return Refusal{status, std::move(reason)}; }

// Removes all before the path from an address as clients send it to proxies, "http://host:80/path", and returns "host:80".
// Returns an empty text for other addresses.
std::string take_authority(std::string_view& target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (lowercase(target.substr(0, scheme.size())) != scheme) continue;
        const std::string_view authority =
            target.substr(scheme.size()).substr(0, target.find_first_of("/?", scheme.size()) - scheme.size());
        if (authority.empty() || authority.find('@') != authority.npos) break;
        target.remove_prefix(scheme.size() + authority.size());
        return std::string(authority);
    }
    return {};
}

// `head` gets what was read before it is judged: a refusal's line in the log names the path.
std::optional<Refusal> read_target(std::string_view target, const HeadLimits& limits, Head& head) {
    if (target.size() > limits.target)
        return refuse(414, fmt::format("the address has {} bytes, but at most {} are served: parameters belong into the body",
                                       target.size(), limits.target));
    const bool is_plain = std::ranges::all_of(target, [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
    const std::string_view whole = target;
    head.authority = take_authority(target);
    head.target = fmt::format("{}{}", !head.authority.empty() && !target.starts_with('/') ? "/" : "", target);
    if (!is_plain || (head.target[0] != '/' && !(target == "*" && head.method == "OPTIONS")))
        return refuse(400, fmt::format("the address {} is not a path such as /v1/models", printable(whole, 100)));
    head.path = head.target.substr(0, head.target.find('?'));
    return std::nullopt;
}

std::optional<Refusal> read_request_line(std::string_view line, const HeadLimits& limits, Head& head) {
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == line.npos || first == last || !is_token(line.substr(0, first)) || line.find('\r') != line.npos)
        return refuse(400, "the first line of the request is not of the form: METHOD /path HTTP/1.1");
    head.method = line.substr(0, first);
    const std::string_view version = line.substr(last + 1), target = line.substr(first + 1, last - first - 1);
    head.http10 = version == "HTTP/1.0";
    if (!head.http10 && version != "HTTP/1.1")
        return refuse(version.starts_with("HTTP/") ? 505 : 400,
                      fmt::format("the protocol {} is not served, only HTTP/1.1 and HTTP/1.0", printable(version, 20)));
    constexpr std::string_view known[]{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
    if (std::ranges::find(known, head.method) == std::end(known))
        return refuse(501, fmt::format("the method {} is not known", printable(head.method, 20)));
    return read_target(target, limits, head);
}

std::optional<Refusal> read_header(std::string_view line, const HeadLimits& limits, Head& head) {
    if (line.size() > limits.line)
        return refuse(431, fmt::format("a header has {} bytes, but at most {} are served", line.size(), limits.line));
    if (head.headers.size() == limits.headers)
        return refuse(431, fmt::format("the request has more than {} headers", limits.headers));
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon)))
        return refuse(400, fmt::format("the header {} is not of the form: Name: value", printable(line, 60)));
    const std::string_view value = without_spaces(line.substr(colon + 1));
    if (std::ranges::any_of(value, [](char c) { return (uint8_t(c) < 0x20 && c != '\t') || c == 0x7f; }))
        return refuse(400, fmt::format("the value of the header {} has control characters", line.substr(0, colon)));
    head.headers.emplace(lowercase(line.substr(0, colon)), value);
    return std::nullopt;
}

std::optional<std::string_view> the_one(const Head& head, const char* name, size_t& count) {
    count = head.headers.count(name);
    return count == 1 ? std::optional<std::string_view>(head.headers.find(name)->second) : std::nullopt;
}

// Digits alone: from_chars would stop at whatever follows them ("5, 5"), which a proxy may read otherwise. A number beyond 64
// bits is an error of from_chars, and too large in any case.
std::optional<Refusal> read_content_length(std::string_view text, const HeadLimits& limits, Head& head) {
    const bool is_number = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) return refuse(400, fmt::format("Content-Length is {}, but must be a number", printable(text, 40)));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.content_length);
    if (error != std::errc() || head.content_length > limits.body_bytes)
        return refuse(413,
                      fmt::format("the body has {} bytes, but at most {} are served", printable(text, 40), limits.body_bytes));
    head.has_body = head.content_length > 0;
    return std::nullopt;
}

// Reads how the body is divided and encoded. A head that can be read in two ways is refused.
std::optional<Refusal> read_framing(const HeadLimits& limits, Head& head) {
    size_t lengths, encodings, hosts, ignored;
    const auto length = the_one(head, "content-length", lengths), encoding = the_one(head, "transfer-encoding", encodings);
    if (lengths > 1 || encodings > 1 || lengths + encodings > 1)
        return refuse(400, "the request says more than once how long its body is (Content-Length, Transfer-Encoding)");
    if (encoding && (head.http10 || lowercase(*encoding) != "chunked"))
        return refuse(501, fmt::format("the Transfer-Encoding {} is not served, only chunked", printable(*encoding, 40)));
    if (encoding) head.chunked = head.has_body = true;
    if (length)
        if (auto refusal = read_content_length(*length, limits, head)) return refusal;
    if (const auto content = the_one(head, "content-encoding", ignored);
        ignored > 1 || (content && lowercase(*content) != "identity"))
        return refuse(415, "the body is compressed (Content-Encoding): send it as it is");
    the_one(head, "host", hosts);
    if (hosts > 1 || (hosts == 0 && !head.http10)) return refuse(400, "the request must have one Host header");
    if (!head.authority.empty()) { // RFC 9112, section 3.2.2: it replaces what the header says
        head.headers.erase("host");
        head.headers.emplace("host", head.authority);
    }
    if (const auto expected = the_one(head, "expect", ignored);
        ignored > 1 || (expected && lowercase(*expected) != "100-continue"))
        return refuse(417, "only 100-continue can be expected (Expect)");
    return std::nullopt;
}

} // namespace

std::string percent_decoded(std::string_view text, bool plus_is_space) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
        unsigned byte = 0;
        const std::string_view digits = text.substr(std::min(i + 1, text.size()), 2);
        const bool is_code = text[i] == '%' && digits.size() == 2 &&
                             std::from_chars(digits.data(), digits.data() + 2, byte, 16).ptr == digits.data() + 2;
        if (is_code) i += 2;
        decoded += is_code ? char(byte) : text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
    return decoded;
}

// Two bare line feeds end a head as well, so that a client that sends them is refused (read_head) at once and not after the
// timeout.
size_t head_length(std::string_view bytes) {
    const size_t end = bytes.find("\r\n\r\n");
    const size_t bare = bytes.substr(0, end).find("\n\n"); // no more will come of a client that ends lines so
    if (bare != bytes.npos) return bare + 2;
    return end == bytes.npos ? 0 : end + 4;
}

// Reads the lines one by one, and then what several headers say together (read_framing). `bytes` ends with the empty line.
std::optional<Refusal> read_head(std::string_view bytes, const HeadLimits& limits, Head& head) {
    if (bytes.size() > limits.bytes)
        return refuse(431,
                      fmt::format("the head of the request has {} bytes, but at most {} are served", bytes.size(), limits.bytes));
    if (!bytes.ends_with("\r\n\r\n")) return refuse(400, "the lines of the request must end with CR LF");
    bytes.remove_suffix(2);
    for (bool is_first = true; !bytes.empty(); is_first = false) {
        const size_t end = bytes.find('\n');
        if (end == 0 || bytes[end - 1] != '\r') return refuse(400, "the lines of the request must end with CR LF");
        const std::string_view line = bytes.substr(0, end - 1);
        bytes.remove_prefix(end + 1);
        if (auto refusal = is_first ? read_request_line(line, limits, head) : read_header(line, limits, head)) return refusal;
    }
    const auto connection = head.headers.find("connection");
    head.keep_alive =
        !head.http10 && (connection == head.headers.end() || lowercase(connection->second).find("close") == std::string::npos);
    return read_framing(limits, head);
}

} // namespace tq::server
