// Integers from the grid that a vector is rounded to until the codes are chosen: Viterbi's algorithm, ended where it began.
#include "model/kv/trellis.h"
#include "base/half.h"
#include "model/kv/exact.h"
#include "shaders/tables.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

constexpr size_t max_run = 32;
constexpr uint32_t states = 4;
constexpr int32_t never = 1 << 24; // above every cost: a run has less than 2^21

using Levels = std::array<int8_t, 16>;

Levels make_levels(uint32_t low, uint32_t high) {
    Levels out;
    for (uint32_t i = 0; i < 8; i++) {
        out[i] = int8_t((i < 4 ? low : high) >> (8 * (i % 4)));
        out[15 - i] = int8_t(-out[i]);
    }
    return out;
}

// The squared error of a level, less z^2.
int32_t cost_of(int32_t level, int32_t z) { return level * (level - 2 * z); }

// The best paths through a run so far, by the state they are in and the one they began in, which they must end in.
class Paths {
  public:
    Paths() {
        for (uint32_t s = 0; s < states; s++)
            for (uint32_t begun = 0; begun < states; begun++) cost_[s][begun] = s == begun ? 0 : never;
    }

    // Extends all paths by a channel: step(to, from) is what the step between two states costs, for the `count` states from(to,
    // n) that can precede a state, ascending. Of equals the first is taken: costs are compared with the state in their low bits.
    template <uint32_t count, class From, class Step> void extend(From from, Step step) {
        int32_t before[states][states];
        for (uint32_t s = 0; s < states; s++)
            for (uint32_t begun = 0; begun < states; begun++) before[s][begun] = cost_[s][begun] * 4 + int32_t(s);
        for (uint32_t to = 0; to < states; to++) {
            std::array<int32_t, states> best;
            for (uint32_t n = 0; n < count; n++) {
                const int32_t *path = before[from(to, n)], by = step(to, from(to, n)) * 4;
                for (uint32_t begun = 0; begun < states; begun++)
                    best[begun] = n == 0 ? path[begun] + by : std::min(best[begun], path[begun] + by);
            }
            for (uint32_t begun = 0; begun < states; begun++) {
                cost_[to][begun] = best[begun] >> 2;
                from_[length_][to][begun] = best[begun] & 3;
            }
        }
        length_++;
    }

    // The states after each channel of the best path; of equals the one that begins in the first state.
    std::array<uint32_t, max_run> best() const {
        uint32_t begun = 0;
        for (uint32_t other = 1; other < states; other++)
            if (cost_[other][other] < cost_[begun][begun]) begun = other;
        std::array<uint32_t, max_run> out;
        for (uint32_t i = length_, state = begun; i-- > 0; state = uint32_t(from_[i][state][begun])) out[i] = state;
        return out;
    }

  private:
    int32_t cost_[states][states];
    int32_t from_[max_run][states][states];
    uint32_t length_ = 0;
};

// 16 codes, each of which is the state that the next one finds.
std::array<uint32_t, max_run> best_codes(const int32_t* z, const Levels& levels) {
    Paths paths;
    for (uint32_t i = 0; i < 16; i++)
        paths.extend<4>([](uint32_t, uint32_t n) { return n; },
                        [&](uint32_t code, uint32_t last) { return cost_of(levels[last | code << 2], z[i]); });
    return paths.best();
}

uint32_t index_base(uint32_t bit, uint32_t last, uint32_t second_last) { return (bit ^ last ^ second_last) << 2 | last << 3; }

// Which of the four levels from `base` on is nearest to z; the first of equals.
uint32_t nearest(const Levels& levels, uint32_t base, int32_t z) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < 4; i++)
        if (cost_of(levels[base + i], z) < cost_of(levels[base + best], z)) best = i;
    return best;
}

// 32 states: a channel's third bit, above that of the channel before it.
std::array<uint32_t, max_run> best_third_bits(const int32_t* z, const Levels& levels) {
    Paths paths;
    for (uint32_t i = 0; i < 32; i++) {
        int32_t cost[states]; // of the nearest level of each base
        for (uint32_t base = 0; base < states; base++) {
            cost[base] = cost_of(levels[4 * base], z[i]);
            for (uint32_t low = 1; low < 4; low++) cost[base] = std::min(cost[base], cost_of(levels[4 * base + low], z[i]));
        }
        paths.extend<2>([](uint32_t state, uint32_t second_last) { return second_last | (state & 1) << 1; },
                        [&](uint32_t state, uint32_t from) { return cost[index_base(state >> 1, state & 1, from & 1) / 4]; });
    }
    return paths.best();
}

} // namespace

const std::array<int8_t, 16>& trellis_levels(uint32_t bits) {
    static const Levels two = make_levels(TQ2T_LEVELS_LOW, TQ2T_LEVELS_HIGH),
                        three = make_levels(TQ3T_LEVELS_LOW, TQ3T_LEVELS_HIGH);
    return bits == 2 ? two : three;
}

uint32_t trellis_index(uint32_t bits, std::span<const uint32_t> codes, size_t i) {
    if (bits == 2) return codes[(i & ~size_t(15)) | ((i - 1) & 15)] | codes[i] << 2;
    const auto third_bit = [&](size_t before) { return codes[(i & ~size_t(31)) | ((i - before) & 31)] >> 2; };
    return (codes[i] & 3) | index_base(third_bit(0), third_bit(1), third_bit(2));
}

void choose_trellis_codes(uint32_t bits, std::span<uint32_t> codes, std::span<const float> y, float norm2) {
    const Levels& levels = trellis_levels(bits);
    const uint32_t square_unit = (bits == 2 ? TQ2T_SQUARE_UNIT : TQ3T_SQUARE_UNIT) * uint32_t(y.size() / 64);
    const float inverse = divide(1, half_to_float(sqrt_quotient_half_bits(norm2, square_unit, 0)));
    const size_t run = bits == 2 ? 16 : 32;
    for (size_t first = 0; first < y.size(); first += run) {
        int32_t z[max_run];
        for (size_t i = 0; i < run; i++) {
            const float size = std::fabs(y[first + i]) * inverse;
            const auto rounded = int32_t(size + 0.5f);
            z[i] = y[first + i] < 0 ? -rounded : rounded;
        }
        const auto path = bits == 2 ? best_codes(z, levels) : best_third_bits(z, levels);
        for (uint32_t i = 0; i < run; i++) {
            const uint32_t bit = path[i] >> 1, last = path[i] & 1, second_last = path[(i + 31) % 32] & 1;
            codes[first + i] = bits == 2 ? path[i] : nearest(levels, index_base(bit, last, second_last), z[i]) | bit << 2;
        }
    }
}

} // namespace tq
