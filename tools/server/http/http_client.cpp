// A GET by the server's own sockets and TLS, for `launch`, which asks a server whether it is ready. It speaks HTTP/1.0, so the
// reply has no chunks and ends with the connection. Handshake and reply share one deadline; each address of the name may take as
// long to connect. A reply is read up to 1 MiB.
// Anything that goes wrong on the way is "no server": the caller asks again. Only an address that can never be right throws.
#include "tools/server/http_client.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/server/http/connection.h"
#include <charconv>
#include <fmt/format.h>

namespace tq::server {
namespace {

constexpr size_t max_reply_bytes = 1 << 20;

struct Address {
    std::string host;
    uint16_t port = 80;
    bool tls = false;
};

Address read_address(const std::string& url) {
    Address address;
    std::string_view rest = url;
    address.tls = rest.starts_with("https://");
    if (!address.tls && !rest.starts_with("http://")) fail("{} is no address such as http://127.0.0.1:8080", printable(url));
    rest.remove_prefix(address.tls ? 8 : 7);
    if (address.tls) address.port = 443;
    const size_t colon = rest.find(':', rest.starts_with('[') ? rest.find(']') : 0);
    if (colon != rest.npos && !parse_number(rest.substr(colon + 1), address.port))
        fail("{} has no port from 1 to 65535 behind its last colon, or a path behind that", printable(url));
    std::string_view host = rest.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (host.empty() || host.find_first_of("/@ ") != host.npos)
        fail("{} is no address such as http://127.0.0.1:8080", printable(url));
    address.host = host;
    return address;
}

// Waits until the connection can go on. Returns false after `end`.
bool wait_until(const Connection& connection, Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    Waiting one = connection.waiting();
    wait_for({&one, 1}, left);
    return true;
}

// All bytes of a reply; empty if none came in time.
std::string exchange(Connection& connection, const std::string& request, Clock::time_point end) {
    for (bool done = connection.state != Connection::State::handshake; !done;)
        if (!connection.finish_handshake(done) || (!done && !wait_until(connection, end))) return {};
    if (!connection.write(request)) return {};
    while (connection.received().size() < max_reply_bytes && connection.receive(max_reply_bytes - connection.received().size()))
        if (!wait_until(connection, end)) return {};
    return std::string(connection.received());
}

} // namespace

std::optional<HttpAnswer> http_get(const std::string& url, const std::string& path, const std::string& key,
                                   std::chrono::milliseconds timeout) {
    const Address address = read_address(url);
    const std::unique_ptr<Tls> tls = address.tls ? open_client_tls(address.host) : nullptr;
    const auto end = Clock::now() + timeout;
    const std::atomic<bool> never = false;
    std::atomic<uint64_t> bodies = 0;
    std::string reply;
    try {
        Socket socket = connect_to(address.host, address.port, timeout);
        if (!socket.is_open()) return std::nullopt;
        Connection connection(std::move(socket), tls.get(), timeout, never, bodies);
        const std::string authorization = key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key);
        reply = exchange(
            connection, fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\n{}\r\n", path, url.substr(url.find("//") + 2), authorization),
            end);
    } catch (const Error&) { // nobody knows the name
        return std::nullopt;
    }
    HttpAnswer answer{0, {}};
    const size_t head = reply.find("\r\n\r\n"), status = reply.find(' ');
    if (!reply.starts_with("HTTP/1.") || head == reply.npos || status > head) return std::nullopt;
    std::from_chars(reply.data() + status + 1, reply.data() + head, answer.status);
    answer.body = reply.substr(head + 4);
    return answer;
}

} // namespace tq::server
