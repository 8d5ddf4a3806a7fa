#include "tests/document_trellis.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tq::test {
namespace {

constexpr int levels_of_two[] = {-1, 24, 65, -43, 105, -15, -68, 35, -35, 68, 15, -105, 43, -65, -24, 1};
constexpr int levels_of_three[] = {62, 116, 14, -25, -83, -48, 35, -5, 5, -35, 48, 83, 25, -14, -116, -62};

using Path = std::pair<int64_t, uint64_t>; // its cost, then its word

int64_t cost(int level, int64_t z) { return (z - level) * (z - level); }

// Of one channel whose third bit, and those of the two before it, are these.
std::pair<int64_t, uint32_t> best_low_bits(uint32_t bit, uint32_t last, uint32_t second_last, int64_t z) {
    std::pair<int64_t, uint32_t> best{std::numeric_limits<int64_t>::max(), 0};
    for (uint32_t low = 0; low < 4; low++) {
        const uint32_t index = low + 4 * ((bit + last + second_last) % 2) + 8 * last;
        best = std::min(best, {cost(levels_of_three[index], z), low});
    }
    return best;
}

// What `step(z, state, symbol)` makes of a run: the word of symbols of `width` bits of the least cost, the least of those; a
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

// The number `before` places before i, around its run.
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
        const uint64_t word = best_word(
            z, 1, [](int64_t v, uint32_t state, uint32_t bit) { return best_low_bits(bit, state >> 1, state & 1, v).first; });
        const auto bit = [&](size_t i, size_t before) { return uint32_t(word >> place(i, before, run)) & 1; };
        for (size_t i = 0; i < run; i++)
            codes.push_back(best_low_bits(bit(i, 0), bit(i, 1), bit(i, 2), z[i]).second + 4 * bit(i, 0));
    }
    return codes;
}

std::vector<int> document_trellis_levels(KvType type, const std::vector<uint32_t>& codes) {
    std::vector<int> levels;
    for (size_t i = 0; i < codes.size(); i++) {
        const auto code = [&](size_t before) { return codes[place(i, before, run_of(type))]; };
        const uint32_t last = code(1) / 4, parity = (code(0) / 4 + last + code(2) / 4) % 2;
        levels.push_back(type == KvType::tq2t ? levels_of_two[code(1) + 4 * code(0)]
                                              : levels_of_three[code(0) % 4 + 4 * parity + 8 * last]);
    }
    return levels;
}

} // namespace tq::test
