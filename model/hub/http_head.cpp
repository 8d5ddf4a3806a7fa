// A reply's headers, one line at a time, as libcurl hands them over. Several replies may come for one request (100 Continue, a
// proxy's answer to CONNECT), so each status line begins anew, and what counts is the last.
// A Content-Range that cannot be read is kept as a problem in place of an error: the receiver decides whether it matters. Texts
// that are not numbers read as 0.
#include "model/hub/http_head.h"
#include "base/printable.h"
#include "model/hub/names.h"
#include <array>
#include <charconv>
#include <optional>

namespace tq {
namespace {

constexpr size_t max_header_bytes = 8 << 10; // of one header that is kept

template <class T> T to_number(std::string_view text) {
    T value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// Returns the first byte of "bytes 7-99/100" or "bytes 7-99/*"; nullopt if it is not such a range.
std::optional<uint64_t> first_of_range(std::string_view text) {
    if (!lowercase(text).starts_with("bytes ")) return std::nullopt;
    std::array<uint64_t, 2> ends{};
    const char *at = text.data() + 6, *const end = text.data() + text.size();
    for (size_t i = 0; i < ends.size(); i++) {
        const auto [after, error] = std::from_chars(at, end, ends[i]);
        if (error != std::errc() || after == end || *after != "-/"[i]) return std::nullopt;
        at = after + 1;
    }
    return ends[0] <= ends[1] ? std::optional(ends[0]) : std::nullopt;
}

} // namespace

void read_header(HttpHead& head, std::string_view line) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) { // of this reply, or after an interim one
        const size_t space = line.find(' ');
        head = {};
        head.status = space == std::string_view::npos ? 0 : to_number<int>(line.substr(space + 1));
        return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.size() > max_header_bytes) return;
    const std::string name = lowercase(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    if (name == "link") head.link = value;
    if (name == "x-error-message") head.explanation = value;
    if (name == "retry-after") head.retry_after = std::chrono::seconds(to_number<uint32_t>(value)); // a date reads as 0
    if (name == "content-range" && head.status == 206) {
        const auto first = first_of_range(value);
        head.first_byte = first.value_or(0);
        head.range_problem = first ? "" : value;
    }
}

} // namespace tq
