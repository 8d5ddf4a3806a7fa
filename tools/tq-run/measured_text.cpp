#include "tools/tq-run/measured_text.h"
#include "base/printable.h"
#include "hub/digest.h"
#include "model/formats/json.h"

namespace tq {
namespace {

constexpr uint64_t most_bytes = 1 << 30;
constexpr uint32_t least_tokens = 16;

std::string hash_of(std::string_view text) {
    Digest sha256(std::string(64, '0'), 0); // its first argument only says which checksum
    sha256.update(std::as_bytes(std::span(text)));
    if (std::string digits = sha256.finish(); !digits.empty()) return digits;
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
    return fmt::format("fnv1a64:{:016x}", hash);
}

} // namespace

MeasuredText read_measured_text(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens) {
    if (chunk_tokens < least_tokens)
        fail("chunks of {} tokens say nothing: they must have at least {}", chunk_tokens, least_tokens);
    const std::string text = read_text_file(path, most_bytes);
    MeasuredText out{hash_of(text), tokenizer.encode(text)};
    if (out.ids.size() < chunk_tokens)
        fail("{} has {} tokens, and one chunk has {}: give a longer text, or shorter chunks", printable(path), out.ids.size(),
             chunk_tokens);
    return out;
}

} // namespace tq
