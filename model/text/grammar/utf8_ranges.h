// Ranges of code points as sequences of byte ranges: the automaton of a character class.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace tq::grammar {

struct ByteRange {
    uint8_t first, last;
    bool operator==(const ByteRange&) const = default;
    auto operator<=>(const ByteRange&) const = default;
};

struct ByteSequence { // one to four ranges: a character has one byte of each
    std::array<ByteRange, 4> ranges;
    uint32_t length;
};

// Appends the sequences that together match the UTF-8 of exactly the code points from `first` to `last`, none a surrogate.
void append_utf8_ranges(std::vector<ByteSequence>& out, char32_t first, char32_t last);

} // namespace tq::grammar
