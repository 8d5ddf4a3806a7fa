// The head of an HTTP request: one that proxies might understand in another way is refused.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tq::server {

struct HeadLimits {
    size_t bytes = 64 << 10, line = 8000, target = 4096, headers = 128;
    uint64_t body_bytes = uint64_t(32) << 20;
};

struct Head {
    std::string method, target, path;                // target: from its path on; path: without the query, not decoded
    std::string authority;                           // of an absolute address; empty if it is a path
    std::multimap<std::string, std::string> headers; // names in lower case
    bool http10 = false, has_body = false, chunked = false, keep_alive = true;
    uint64_t content_length = 0;
};

// A request that is not served.
struct Refusal {
    int status;
    std::string reason; // a sentence
};

// Replaces %XX by its byte, and with `plus_is_space` each + by a space. A % without two hex digits stays as it is.
std::string percent_decoded(std::string_view text, bool plus_is_space);

// The length of a head, with the empty line at its end; 0 if that has not come yet.
size_t head_length(std::string_view bytes);
// Reads a whole head. If it is refused, `head` has what could be read.
std::optional<Refusal> read_head(std::string_view bytes, const HeadLimits& limits, Head& head);

} // namespace tq::server
