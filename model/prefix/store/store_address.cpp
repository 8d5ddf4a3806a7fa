// Parses the address of the shared store: a directory, or redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]. Messages never show the
// text before the @. The last @ divides, as a password may contain one.
#include "model/prefix/store/store_address.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/text.h"

namespace tq {
namespace {

constexpr std::string_view redis_scheme = "redis://";

// A user or password, in which bytes may be written as %NN.
std::string percent_decoded(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        uint8_t byte = uint8_t(text[i]);
        if (text[i] == '%') {
            const std::string_view digits = text.substr(i + 1, 2);
            if (digits.size() != 2 || !parse_number(digits, byte, 16))
                fail("the user or password of the redis:// address has a % without two hexadecimal digits: write %25 for a %");
            i += 2;
        }
        out += char(byte);
    }
    return out;
}

// Only what follows the password is shown.
[[noreturn]] void refuse(std::string_view shown, const char* what) {
    fail("redis://{} {}: the address has the form redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]", printable(shown, 200), what);
}

RedisAddress parse_redis(std::string_view rest) {
    RedisAddress address;
    if (const size_t at = rest.rfind('@'); at != rest.npos) {
        const std::string_view access = rest.substr(0, at);
        rest.remove_prefix(at + 1);
        const size_t colon = access.find(':');
        if (colon == access.npos) refuse(rest, "has a user and no password");
        address.user = percent_decoded(access.substr(0, colon));
        address.password = percent_decoded(access.substr(colon + 1));
    }
    const std::string_view shown = rest;
    if (const size_t slash = rest.find('/'); slash != rest.npos) {
        const std::string_view database = rest.substr(slash + 1);
        if (!database.empty() && !parse_number(database, address.database)) refuse(shown, "has a database that is no number");
        rest = rest.substr(0, slash);
    }
    const bool is_v6 = rest.starts_with('[');
    const size_t host_end = is_v6 ? rest.find(']') : rest.find(':');
    if (is_v6 && host_end == rest.npos) refuse(shown, "has a [ without ]");
    address.host = rest.substr(is_v6 ? 1 : 0, is_v6 ? host_end - 1 : host_end);
    rest.remove_prefix(std::min(rest.size(), is_v6 ? host_end + 1 : host_end));
    if (address.host.empty()) refuse(shown, "names no host");
    if (!rest.empty() && (rest[0] != ':' || !parse_number(rest.substr(1), address.port) || address.port == 0))
        refuse(shown, "has a port that is none");
    return address;
}

} // namespace

std::string StoreAddress::text() const {
    if (!redis) return printable(utf8_text(directory), 200);
    return printable(fmt::format("redis://{}:{}/{}", redis->host, redis->port, redis->database), 200);
}

StoreAddress parse_store_address(const std::string& text) {
    StoreAddress address;
    if (text.empty()) fail("the shared prefix cache has an empty address: give a directory or redis://HOST");
    if (text.starts_with(redis_scheme)) {
        address.redis = parse_redis(std::string_view(text).substr(redis_scheme.size()));
    } else if (text.starts_with("rediss://")) {
        fail("rediss:// is not supported: put a TLS tunnel such as stunnel in front of Redis, and give redis://localhost");
    } else if (const size_t scheme = text.find("://"); scheme != text.npos) {
        fail("{}:// is not supported for the shared prefix cache: give a directory or redis://HOST",
             printable(text.substr(0, scheme), 40));
    } else {
        address.directory = utf8_path(text);
    }
    return address;
}

} // namespace tq
