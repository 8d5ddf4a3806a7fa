// Extracts complete characters from a stream of bytes.
#include "model/text/tokenizer.h"
#include "model/text/unicode.h"

namespace tq {
namespace {
constexpr char32_t replacement = 0xFFFD;
}

std::string Utf8Stream::push(std::string_view bytes) {
    pending_ += bytes;
    std::string out;
    size_t pos = 0;
    while (pos < pending_.size()) {
        const Utf8Step step = step_utf8(pending_, pos);
        if (step.kind == Utf8Step::Kind::incomplete) break;
        if (step.kind == Utf8Step::Kind::character)
            out.append(pending_, pos, step.length);
        else
            append_utf8(out, replacement);
        pos += step.length;
    }
    pending_.erase(0, pos);
    return out;
}

std::string Utf8Stream::flush() {
    std::string out;
    if (!pending_.empty()) append_utf8(out, replacement);
    pending_.clear();
    return out;
}

} // namespace tq
