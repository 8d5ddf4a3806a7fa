#include "model/text/grammar/utf8_ranges.h"
#include "model/text/unicode.h"

namespace tq::grammar {

// A range is cut at changes of the encoding's length, then where a trailing byte does not run through all its values.
void append_utf8_ranges(std::vector<ByteSequence>& out, char32_t first, char32_t last) {
    for (const char32_t longest : {char32_t(0x7F), char32_t(0x7FF), char32_t(0xFFFF)}) {
        if (first > longest || last <= longest) continue;
        append_utf8_ranges(out, first, longest);
        return append_utf8_ranges(out, longest + 1, last);
    }
    for (uint32_t bytes = 1; bytes < 4 && last > 0x7F; ++bytes) {
        const char32_t tail = (char32_t(1) << 6 * bytes) - 1; // the bits of the last bytes
        if ((first & ~tail) == (last & ~tail)) continue;
        if ((first & tail) != 0) {
            append_utf8_ranges(out, first, first | tail);
            return append_utf8_ranges(out, (first | tail) + 1, last);
        }
        if ((last & tail) != tail) {
            append_utf8_ranges(out, first, (last & ~tail) - 1);
            return append_utf8_ranges(out, last & ~tail, last);
        }
    }
    std::string low, high;
    append_utf8(low, first);
    append_utf8(high, last);
    ByteSequence sequence{{}, uint32_t(low.size())};
    for (size_t i = 0; i < low.size(); ++i) sequence.ranges[i] = {uint8_t(low[i]), uint8_t(high[i])};
    out.push_back(sequence);
}

} // namespace tq::grammar
