// Sets of characters as ranges, which may overlap and be out of order; those returned are disjoint, apart, and in order.
#pragma once
#include "model/text/grammar/syntax.h"
#include <algorithm>

namespace tq::grammar {

constexpr char32_t last_code_point = 0x10FFFF;

inline std::vector<CharRange> complement(std::vector<CharRange> ranges) {
    std::ranges::sort(ranges, {}, &CharRange::first);
    std::vector<CharRange> others;
    char32_t next = 0;
    for (const CharRange& r : ranges) {
        if (r.first > next) others.push_back({next, r.first - 1});
        next = std::max<char32_t>(next, r.last + 1);
    }
    if (next <= last_code_point) others.push_back({next, last_code_point});
    return others;
}

inline std::vector<CharRange> merged(std::vector<CharRange> ranges) { return complement(complement(std::move(ranges))); }

} // namespace tq::grammar
