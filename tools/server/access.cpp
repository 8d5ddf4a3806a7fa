// Three independent checks of who may ask; Server::find() puts them in order.
// - A key: `Authorization: Bearer KEY`, else `x-api-key: KEY`. All keys are compared, each over its whole length, so that the
//   time of a reply says nothing about how much of a guess was right.
// - The Origin header, which browsers set and pages cannot: a page of another site must not use a server that asks for no key.
//   Requests without it, of programs, are let through.
// - The Host header. A page can make its own name resolve to 127.0.0.1 after it was loaded (DNS rebinding), and its requests then
//   have the same origin as the server. So a name is accepted only if it is an address, has no dot, or ends in a domain that
//   nobody can register.
// The replies' CORS headers (allow_origin) are set for the sites of --cors-origin alone.
#include "tools/server/access.h"
#include "base/printable.h"
#include "model/prefix/page_name.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq::server {
namespace {

std::string_view brought_key(const HttpRequest& request) {
    const std::string_view authorization = request.header("authorization");
    if (lowercase(authorization.substr(0, 7)) == "bearer ") {
        std::string_view key = authorization.substr(7);
        while (key.starts_with(' ')) key.remove_prefix(1);
        return key;
    }
    return request.header("x-api-key");
}

// All of `key` is looked at, whatever `given` is.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
    volatile unsigned difference = given.size() == key.size() ? 0 : 1;
    for (size_t i = 0; i < key.size(); i++) {
        const char other = given.empty() ? '\0' : given[i % given.size()];
        difference = difference | unsigned(uint8_t(other) ^ uint8_t(key[i]));
    }
    return difference == 0;
}

std::string_view without_port(std::string_view host) {
    if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
    return host.substr(0, host.rfind(':'));
}

std::string_view host_of(std::string_view origin) {
    const size_t scheme = origin.find("://");
    return scheme == origin.npos ? origin : origin.substr(scheme + 3);
}

bool is_allowed(std::string_view origin, std::span<const std::string> allowed) {
    return std::ranges::any_of(allowed, [&](const std::string& one) { return one == "*" || one == origin; });
}

} // namespace

std::optional<std::string> accepted_key(const HttpRequest& request, std::span<const std::string> keys) {
    const std::string_view given = brought_key(request);
    const std::string* accepted = nullptr;
    for (const std::string& key : keys)
        if (equal_in_constant_time(given, key)) accepted = &key;
    return accepted ? std::optional(*accepted) : std::nullopt;
}

std::string tenant_of(const std::string& key) { return name_of_owner("a tenant with the key " + key).hex(); }

bool is_from_other_site(const HttpRequest& request, std::span<const std::string> allowed) {
    const std::string origin = lowercase(request.header("origin"));
    const bool is_site = origin == "null" || origin.starts_with("http://") || origin.starts_with("https://");
    return is_site && host_of(origin) != lowercase(request.header("host")) && !is_allowed(origin, allowed);
}

bool is_foreign_host(const HttpRequest& request, std::span<const std::string> allowed) {
    const std::string host = lowercase(without_port(request.header("host")));
    const bool is_address = host.starts_with('[') || host.find_first_not_of("0123456789.") == host.npos;
    if (is_address || host.find('.') == host.npos) return false;
    for (const char* ending : {".localhost", ".local", ".lan", ".internal", ".home.arpa"}) // nobody can buy these
        if (host.ends_with(ending)) return false;
    return std::ranges::none_of(allowed,
                                [&](const std::string& one) { return one == "*" || without_port(host_of(one)) == host; });
}

void allow_origin(HttpReply& reply, const HttpRequest& request, std::span<const std::string> allowed) {
    const std::string origin = lowercase(request.header("origin"));
    if (allowed.empty()) return;
    reply.headers["Vary"] = "Origin";
    if (origin.empty() || !is_allowed(origin, allowed)) return;
    reply.headers["Access-Control-Allow-Origin"] = origin;
    reply.headers["Access-Control-Expose-Headers"] = "x-request-id, request-id, retry-after";
    if (request.method != "OPTIONS") return;
    const std::string_view requested = request.header("access-control-request-headers");
    reply.headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS";
    reply.headers["Access-Control-Allow-Headers"] = requested.empty() ? "authorization, content-type, x-api-key" : requested;
    reply.headers["Access-Control-Max-Age"] = "86400";
    if (!request.header("access-control-request-private-network").empty())
        reply.headers["Access-Control-Allow-Private-Network"] = "true";
}

} // namespace tq::server
