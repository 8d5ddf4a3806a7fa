// Viterbi's algorithm for tail-biting paths, which end in the state they begin in. A path has one of
// four states after each channel of a run; a step along a branch costs the squared error of the branch's nearest level. For each
// of the four states a path may begin with, the algorithm keeps the cheapest path to each state, channel by channel, and at the
// end takes only the one that came back. The cheapest of the four is stored. All four searches and several runs are lanes of a
// vector, so find_words() has no branch that depends on data. A path is not kept as pointers back, as usual, but as the word of
// its symbols, which fits 32 bits; so no second pass is needed to read it. From the rounding to a grid until the codes are
// chosen, there are only integers, because the bytes must be the same everywhere and ties would be decided by rounding. The
// integers are fp32 numbers below 2^24, which every instruction set adds and compares exactly. In measure_steps() the number of
// the nearest level is in the low bits of its cost, so that one minimum finds both; of equal costs the first wins, as
// model/kv/turboquant.md says. shaders/trellis.glsl does the same on devices.
#include "model/kv/trellis.h"
#include "base/half.h"
#include "model/kv/exact.h"
#include "shaders/tables.h"
#include <algorithm>
#include <array>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kv/trellis.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef TQ_TRELLIS_SHAPE
#define TQ_TRELLIS_SHAPE
namespace tq {

constexpr size_t max_channels = 256, max_runs = 16;

constexpr std::array<int8_t, 32> make_levels(std::initializer_list<uint32_t> words) {
    std::array<int8_t, 32> out{};
    const uint32_t count = uint32_t(words.size()) * 4;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = int8_t(words.begin()[i / 4] >> (8 * (i % 4)));
        out[count == 8 ? 15 - i : i + 16] = int8_t(-out[i]);
    }
    return out;
}

constexpr std::array levels_of_bits{make_levels({TQ2T_LEVELS_LOW, TQ2T_LEVELS_HIGH}),
                                    make_levels({TQ3T_LEVELS_LOW, TQ3T_LEVELS_HIGH}),
                                    make_levels({TQ4T_LEVELS_0, TQ4T_LEVELS_1, TQ4T_LEVELS_2, TQ4T_LEVELS_3})};

// Returns the branch: the third or fourth bits of a channel and of the two before it choose one of four, each of 4 or 8 levels.
constexpr uint32_t branch_of(uint32_t bits, uint32_t bit, uint32_t last, uint32_t second_last) {
    return (bits == 3 ? bit ^ last ^ second_last : bit ^ second_last) | last << 1;
}

// A path is a word of one symbol per channel: the code of two bits, or the highest bit of a code. Its state is the last two bits.
template <uint32_t code_bits> struct Trellis {
    static constexpr uint32_t bits = code_bits, symbol_bits = bits == 2 ? 2 : 1, run = 32 / symbol_bits; // channels
    static constexpr uint32_t branches = bits == 2 ? 16 : 4, levels = bits == 2 ? 1 : 1u << (bits - 1);  // per branch
    static constexpr uint32_t predecessors = bits == 2 ? 4 : 2;                                          // per state, ascending

    static constexpr uint32_t symbol(uint32_t state) { return bits == 2 ? state : state >> 1; }
    static constexpr uint32_t predecessor(uint32_t state, uint32_t n) { return bits == 2 ? n : (state & 1) << 1 | n; }
    static constexpr uint32_t branch(uint32_t state, uint32_t n) {
        return bits == 2 ? n | state << 2 : branch_of(bits, state >> 1, state & 1, n);
    }
};

// The run of each lane, if there are more lanes than `runs`.
template <size_t runs> struct Lane {
    int32_t number[16];
    constexpr Lane() : number{} {
        for (size_t l = 0; l < 16; l++) number[l] = int32_t(l % runs);
    }
};

// The cost that a step along a branch adds to a path, and the branch's level that gives it: [branch][channel of a run][run].
struct Steps {
    alignas(64) float cost[16][max_channels + 16]; // padded, since whole vectors are read
    alignas(64) int32_t level[4][max_channels];
};

} // namespace tq
#endif

HWY_BEFORE_NAMESPACE();
namespace tq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The squared error of a level L at z, in halves of a unit, is z^2 / 4 more than L (L - z). The number of the level is stored
// below the cost, so that one minimum finds both, the first of equals.
template <class T> void measure_steps(Steps& steps, const float* HWY_RESTRICT z, size_t d) {
    const hn::CappedTag<float, 16> f;
    const hn::RebindToSigned<decltype(f)> i32;
    constexpr int shift = T::bits - 1;
    float factor[32], rest[32];
    for (uint32_t i = 0; i < T::branches * T::levels; i++) {
        const int level = levels_of_bits[T::bits - 2][i] * int(T::levels);
        factor[i] = float(level);
        rest[i] = float(level * level / int(T::levels) + int(i % T::levels));
    }
    for (size_t i = 0; i < d; i += hn::Lanes(f)) {
        const auto at = hn::Load(f, z + i);
        for (uint32_t branch = 0; branch < T::branches; branch++) {
            const float *by = factor + branch * T::levels, *plus = rest + branch * T::levels;
            auto best = hn::NegMulAdd(hn::Set(f, by[0]), at, hn::Set(f, plus[0]));
            for (uint32_t n = 1; n < T::levels; n++)
                best = hn::Min(best, hn::NegMulAdd(hn::Set(f, by[n]), at, hn::Set(f, plus[n])));
            if constexpr (T::levels > 1) {
                const auto both = hn::ConvertTo(i32, best);
                hn::Store(hn::And(both, hn::Set(i32, T::levels - 1)), i32, steps.level[branch] + i);
                best = hn::ConvertTo(f, hn::ShiftRight<shift>(both));
            }
            hn::Store(best, f, steps.cost[branch] + i);
        }
    }
}

// words[run] = the cheapest paths that end in the state they begin in, the first of equals. Lanes are runs and, if these are few,
// also the four initial states: run l % runs from state l / runs.
template <class T, size_t runs> void find_words(uint32_t* words, const Steps& steps) {
    const hn::CappedTag<float, std::min<size_t>(4 * runs, 16)> f;
    const hn::RebindToUnsigned<decltype(f)> u;
    using V = hn::Vec<decltype(f)>;
    using Words = hn::Vec<decltype(u)>;
    constexpr size_t lanes = hn::MaxLanes(f);
    constexpr float never = 1 << 23; // above every cost: those of a run are below 2^21
    alignas(64) float costs[4 * runs];
    alignas(64) uint32_t paths[4 * runs];
    const auto run_of_lane = hn::SetTableIndices(f, Lane<runs>().number);
    for (size_t at = 0; at < 4 * runs; at += lanes) {
        const auto begun = hn::ShiftRight<std::countr_zero(runs)>(hn::Iota(u, uint32_t(at)));
        V cost[4];
        Words word[4];
        for (uint32_t s = 0; s < 4; s++) {
            cost[s] = hn::IfThenElse(hn::RebindMask(f, hn::Eq(begun, hn::Set(u, s))), hn::Zero(f), hn::Set(f, never));
            word[s] = hn::Zero(u);
        }
        for (uint32_t i = 0; i < T::run; i++) {
            V step[T::branches], next_cost[4];
            Words next_word[4];
            HWY_UNROLL(16)
            for (uint32_t b = 0; b < T::branches; b++) {
                step[b] = hn::LoadU(f, steps.cost[b] + i * runs + at % runs);
                if constexpr (runs < lanes) step[b] = hn::TableLookupLanes(step[b], run_of_lane);
            }
            HWY_UNROLL(4)
            for (uint32_t to = 0; to < 4; to++) {
                next_cost[to] = hn::Add(cost[T::predecessor(to, 0)], step[T::branch(to, 0)]);
                next_word[to] = word[T::predecessor(to, 0)];
                HWY_UNROLL(4)
                for (uint32_t n = 1; n < T::predecessors; n++) {
                    const V other = hn::Add(cost[T::predecessor(to, n)], step[T::branch(to, n)]);
                    const auto better = hn::RebindMask(u, hn::Lt(other, next_cost[to]));
                    next_word[to] = hn::IfThenElse(better, word[T::predecessor(to, n)], next_word[to]);
                    next_cost[to] = hn::Min(next_cost[to], other);
                }
                next_word[to] = hn::Or(next_word[to], hn::Set(u, T::symbol(to) << (T::symbol_bits * i)));
            }
            for (uint32_t s = 0; s < 4; s++) {
                cost[s] = next_cost[s];
                word[s] = next_word[s];
            }
        }
        for (uint32_t s = 1; s < 4; s++) {
            const auto own = hn::Eq(begun, hn::Set(u, s));
            cost[0] = hn::IfThenElse(hn::RebindMask(f, own), cost[s], cost[0]);
            word[0] = hn::IfThenElse(own, word[s], word[0]);
        }
        hn::Store(cost[0], f, costs + at);
        hn::Store(word[0], u, paths + at);
    }
    for (size_t r = 0; r < runs; r++) {
        size_t best = r;
        for (size_t l = r + runs; l < 4 * runs; l += runs) best = costs[l] < costs[best] ? l : best;
        words[r] = paths[best];
    }
}

template <class T> void find_paths(uint32_t* words, Steps& steps, const float* z, size_t d) {
    measure_steps<T>(steps, z, d);
    switch (d) {
    case 64: return find_words<T, 64 / T::run>(words, steps);
    case 128: return find_words<T, 128 / T::run>(words, steps);
    default: return find_words<T, 256 / T::run>(words, steps);
    }
}

void find_paths_of_two(uint32_t* words, Steps& steps, const float* z, size_t d) { find_paths<Trellis<2>>(words, steps, z, d); }
void find_paths_of_three(uint32_t* words, Steps& steps, const float* z, size_t d) { find_paths<Trellis<3>>(words, steps, z, d); }
void find_paths_of_four(uint32_t* words, Steps& steps, const float* z, size_t d) { find_paths<Trellis<4>>(words, steps, z, d); }

} // namespace
} // namespace tq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq {
namespace {

HWY_EXPORT(find_paths_of_two);
HWY_EXPORT(find_paths_of_three);
HWY_EXPORT(find_paths_of_four);

// z[channel of a run][run] = y in halves of a level unit.
void round_to_grid(float* z, std::span<const float> y, uint32_t bits, size_t run, float norm2) {
    const uint32_t units[] = {TQ2T_SQUARE_UNIT, TQ3T_SQUARE_UNIT, TQ4T_SQUARE_UNIT}; // tq4t: per half unit
    const uint32_t square_unit = units[bits - 2] * uint32_t(y.size() / 64);
    const float inverse = divide(1, half_to_float(sqrt_quotient_half_bits(norm2, square_unit, 0)));
    const float halves = bits == 4 ? 1 : 2;
    std::array<float, max_channels> rounded;
    for (size_t i = 0; i < y.size(); i++) {
        const float size = std::fabs(y[i]) * inverse;
        rounded[i] = std::copysign(float(int32_t(size + 0.5f)) * halves, y[i]);
    }
    const size_t runs = y.size() / run;
    for (size_t r = 0; r < runs; r++)
        for (size_t i = 0; i < run; i++) z[i * runs + r] = rounded[r * run + i];
}

} // namespace

std::span<const int8_t> trellis_levels(uint32_t bits) { return std::span(levels_of_bits[bits - 2]).first(bits == 4 ? 32 : 16); }

uint32_t trellis_index(uint32_t bits, std::span<const uint32_t> codes, size_t i) {
    if (bits == 2) return codes[(i & ~size_t(15)) | ((i - 1) & 15)] | codes[i] << 2;
    const uint32_t low = bits - 1;
    const auto highest_bit = [&](size_t before) { return codes[(i & ~size_t(31)) | ((i - before) & 31)] >> low; };
    return (codes[i] & ((1u << low) - 1)) | branch_of(bits, highest_bit(0), highest_bit(1), highest_bit(2)) << low;
}

void choose_trellis_codes(uint32_t bits, std::span<uint32_t> codes, std::span<int32_t> levels, std::span<const float> y,
                          float norm2) {
    const size_t d = y.size(), run = bits == 2 ? 16 : 32, runs = d / run;
    alignas(64) float z[max_channels];
    uint32_t words[max_runs];
    Steps steps;
    round_to_grid(z, y, bits, run, norm2);
    const auto& level_of = levels_of_bits[bits - 2];
    if (bits == 2) {
        HWY_DYNAMIC_DISPATCH(find_paths_of_two)(words, steps, z, d);
        for (size_t r = 0; r < runs; r++) {
            const uint32_t last = std::rotl(words[r], 2);
            for (uint32_t i = 0; i < 16; i++) {
                const uint32_t code = words[r] >> 2 * i & 3;
                codes[r * 16 + i] = code;
                levels[r * 16 + i] = level_of[(last >> 2 * i & 3) | code << 2];
            }
        }
        return;
    }
    if (bits == 3)
        HWY_DYNAMIC_DISPATCH(find_paths_of_three)(words, steps, z, d);
    else
        HWY_DYNAMIC_DISPATCH(find_paths_of_four)(words, steps, z, d);
    for (size_t r = 0; r < runs; r++) {
        const uint32_t last = std::rotl(words[r], 1), second_last = std::rotl(words[r], 2);
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t bit = words[r] >> i & 1, branch = branch_of(bits, bit, last >> i & 1, second_last >> i & 1);
            const auto low = uint32_t(steps.level[branch][i * runs + r]);
            codes[r * 32 + i] = low | bit << (bits - 1);
            levels[r * 32 + i] = level_of[low | branch << (bits - 1)];
        }
    }
}

} // namespace tq
#endif
