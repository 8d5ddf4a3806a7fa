#include "tests/support/document_trellis.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tq::test {
namespace {

constexpr int levels_of_two[] = {-1, 24, 65, -43, 105, -15, -68, 35, -35, 68, 15, -105, 43, -65, -24, 1};
constexpr int levels_of_three[] = {62, 116, 14, -25, -83, -48, 35, -5, 5, -35, 48, 83, 25, -14, -116, -62};

constexpr int levels_of_four[] = {-125, -64, -37, -16, 3, 22, 43, 73, -85, -49, -26, -7, 12, 32, 56, 101};

using Path = std::pair<int64_t, uint64_t>; // its cost, then its word

int64_t cost(int level, int64_t z) { return (z - level) * (z - level); }

// For tq3t and tq4t: the level of a code after codes with these highest bits.
int level_after(KvType type, uint32_t code, uint32_t last, uint32_t second_last) {
    if (type == KvType::tq3t) return levels_of_three[code % 4 + 4 * ((code / 4 + last + second_last) % 2) + 8 * last];
    const int level = levels_of_four[second_last == 0 ? code : (code + 8) % 16];
    return last == 0 ? level : -level;
}

// For one channel whose highest bit, and those of the two before it, are these.
std::pair<int64_t, uint32_t> best_low_bits(KvType type, uint32_t bit, uint32_t last, uint32_t second_last, int64_t z) {
    const uint32_t count = type == KvType::tq3t ? 4 : 8;
    std::pair<int64_t, uint32_t> best{std::numeric_limits<int64_t>::max(), 0};
    for (uint32_t low = 0; low < count; low++)
        best = std::min(best,
                        {cost(level_after(type, low + count * bit, last, second_last) * (type == KvType::tq4t ? 2 : 1), z), low});
    return best;
}

// The word of symbols of `width` bits that has the least cost in a run with `step(z, state, symbol)`, the smallest of equals; a
// state is the last two bits of the word.
template <class Step> uint64_t best_word(std::span<const int64_t> z, uint32_t width, Step step) {
    constexpr Path none{std::numeric_limits<int64_t>::max() / 2, 0};
    Path best = none;
    for (uint32_t begun = 0; begun < 4; begun++) {
        std::vector<Path> paths(4, none);
        paths[begun] = {0, 0};
        for (size_t i = 0; i < z.size(); i++) {
            std::vector<Path> next(4, none);
            for (uint32_t state = 0; state < 4; state++)
                for (uint64_t symbol = 0; symbol < 1u << width; symbol++) {
                    Path& to = next[((state | symbol << 2) >> width) % 4];
                    to = std::min(to, {paths[state].first + step(z[i], state, uint32_t(symbol)),
                                       paths[state].second | symbol << (width * i)});
                }
            paths = next;
        }
        best = std::min(best, paths[begun]);
    }
    return best.second;
}

size_t run_of(KvType type) { return code_bits(type) == 2 ? 16 : 32; }

// The index `before` places before i, cyclically within its run.
size_t place(size_t i, size_t before, size_t run) { return i / run * run + (i % run + run - before) % run; }

} // namespace

std::vector<uint32_t> document_trellis_codes(KvType type, std::span<const float> y, float unit) {
    const size_t run = run_of(type);
    std::vector<uint32_t> codes;
    for (size_t first = 0; first < y.size(); first += run) {
        std::vector<int64_t> z;
        for (const float v : y.subspan(first, run)) {
            const float inverse = 1 / unit, size = std::fabs(v) * inverse, more = size + 0.5f;
            z.push_back(v < 0 ? -int64_t(more) : int64_t(more));
        }
        if (type == KvType::tq2t) {
            const uint64_t word = best_word(
                z, 2, [](int64_t v, uint32_t state, uint32_t symbol) { return cost(levels_of_two[state + 4 * symbol], v); });
            for (size_t i = 0; i < run; i++) codes.push_back(uint32_t(word >> (2 * i)) % 4);
            continue;
        }
        const uint64_t word = best_word(z, 1, [&](int64_t v, uint32_t state, uint32_t bit) {
            return best_low_bits(type, bit, state >> 1, state & 1, v).first;
        });
        const auto bit = [&](size_t i, size_t before) { return uint32_t(word >> place(i, before, run)) & 1; };
        for (size_t i = 0; i < run; i++)
            codes.push_back(best_low_bits(type, bit(i, 0), bit(i, 1), bit(i, 2), z[i]).second +
                            (type == KvType::tq3t ? 4 : 8) * bit(i, 0));
    }
    return codes;
}

std::vector<int> document_trellis_levels(KvType type, const std::vector<uint32_t>& codes) {
    std::vector<int> levels;
    for (size_t i = 0; i < codes.size(); i++) {
        const auto code = [&](size_t before) { return codes[place(i, before, run_of(type))]; };
        const uint32_t below = type == KvType::tq3t ? 4 : 8;
        levels.push_back(type == KvType::tq2t ? levels_of_two[code(1) + 4 * code(0)]
                                              : level_after(type, code(0), code(1) / below, code(2) / below));
    }
    return levels;
}

} // namespace tq::test
