// Trellis-coded levels, the counterpart of model/kv/trellis.cpp: the Viterbi algorithm on integers, for paths that end in the
// state they begin in (tail-biting). One invocation for each run (16 or 32 channels) and each of its four initial states. The
// includer declares `type` and `codes[head_dim]`, and includes kv_levels.glsl, half.glsl and exact.glsl. No loop is marked for
// unrolling: drivers with registers for arrays unroll anyway, and SwiftShader took seven times as long to compile the marked
// loops.
const uint trellis_run = KV_BITS(type) == 2 ? 16 : 32; // channels
const uint branch_levels = 1 << (KV_BITS(type) - 1); // of tq3t and tq4t
const uint trellis_paths = head_dim / (trellis_run / 4); // four for each run
const int never = 1 << 29; // above every cost
shared int path_cost[trellis_paths]; // [run][first state]
shared uint path_bits[trellis_paths];

// Returns the squared error of a level, less that of 0, at z halves of a unit.
int trellis_cost(uint index, int z) {
    const int level = trellis_level(KV_BITS(type), index);
    return level * (level - z);
}

// Returns which of a branch's levels, from `base` on, is nearest to z; the first of equals.
uint nearest(uint base, int z) {
    uint best = 0;
    for (uint i = 1; i < branch_levels; i++) best = trellis_cost(base + i, z) < trellis_cost(base + best, z) ? i : best;
    return best;
}

// Steps paths by one channel: state `to` keeps the best path among its predecessors, the first of equals.
struct Paths { int cost[4]; uint bits[4]; };

Paths step_of_two(Paths before, int z, uint i) {
    Paths after;
    for (uint code = 0; code < 4; code++) {
        int cost = before.cost[0] + trellis_cost(code << 2, z);
        uint bits = before.bits[0];
        for (uint last = 1; last < 4; last++) {
            const int sum = before.cost[last] + trellis_cost(last | code << 2, z);
            bits = sum < cost ? before.bits[last] : bits;
            cost = min(cost, sum);
        }
        after.cost[code] = cost;
        after.bits[code] = bits | code << (2 * i);
    }
    return after;
}

Paths step_by_branch(Paths before, int z, uint i) {
    int cost[4]; // of the nearest level of each branch
    for (uint branch = 0; branch < 4; branch++) {
        cost[branch] = trellis_cost(branch_levels * branch, z);
        for (uint level = 1; level < branch_levels; level++)
            cost[branch] = min(cost[branch], trellis_cost(branch_levels * branch + level, z));
    }
    Paths after;
    for (uint state = 0; state < 4; state++) {
        const uint last = state & 1, highest_bits = state << 1;
        const int first = before.cost[last << 1] + cost[trellis_branch(KV_BITS(type), highest_bits)];
        const int second = before.cost[last << 1 | 1] + cost[trellis_branch(KV_BITS(type), highest_bits | 1)];
        after.cost[state] = min(first, second);
        after.bits[state] = (second < first ? before.bits[last << 1 | 1] : before.bits[last << 1]) | (state >> 1) << i;
    }
    return after;
}

// Computes path_cost and path_bits for the numbers in codes. Starts and ends with a barrier.
void find_paths() {
    barrier();
    EACH(path, trellis_paths) {
        const uint first = path / 4 * trellis_run, begun = path & 3;
        Paths paths;
        for (uint s = 0; s < 4; s++) {
            paths.cost[s] = s == begun ? 0 : never;
            paths.bits[s] = 0;
        }
        for (uint i = 0; i < trellis_run; i++) {
            const int z = int(codes[first + i]);
            if (KV_BITS(type) == 2)
                paths = step_of_two(paths, z, i);
            else
                paths = step_by_branch(paths, z, i);
        }
        for (uint s = 0; s < 4; s++)
            if (s == begun) {
                path_cost[path] = paths.cost[s];
                path_bits[path] = paths.bits[s];
            }
    }
    barrier();
}

// codes = channel in halves of the levels' unit, rounded to whole units, for tq4t to half units.
void round_to_grid(float norm2) {
    const uint square_unit =
        (KV_BITS(type) == 2 ? TQ2T_SQUARE_UNIT : KV_BITS(type) == 3 ? TQ3T_SQUARE_UNIT : TQ4T_SQUARE_UNIT) * (head_dim / 64);
    const float inverse = divide(1.0, half_value(sqrt_quotient_half_bits(norm2, square_unit, 0)));
    EACH_CHANNEL(i) {
        precise float size = abs(OWN(channel, i)) * inverse;
        precise float half_more = size + 0.5;
        const int rounded = int(half_more) * (KV_BITS(type) == 4 ? 1 : 2);
        codes[i] = uint(OWN(channel, i) < 0.0 ? -rounded : rounded);
    }
}

// Prepares the values of the whole vector that choose_code() needs. All invocations call it.
void prepare_codes(float norm2) {
    round_to_grid(norm2);
    find_paths();
}

// Returns the code of channel i, and its level in `level`.
uint trellis_code(uint i, out int level) {
    const uint run = i / trellis_run * 4;
    uint best = run;
    for (uint path = run + 1; path < run + 4; path++) best = path_cost[path] < path_cost[best] ? path : best;
    const uint word = path_bits[best];
    if (KV_BITS(type) == 2) {
        level = trellis_level(2, bits_around(word, (2 * i - 2) & 31, 4));
        return (word >> (2 * i & 31)) & 3u;
    }
    const uint base = trellis_branch(KV_BITS(type), bits_around(word, (i - 2) & 31, 3)) * branch_levels;
    const uint own = nearest(base, int(codes[i]));
    level = trellis_level(KV_BITS(type), base + own);
    return own | ((word >> (i & 31)) & 1u) << (KV_BITS(type) - 1);
}

// Returns the code of channel i, y; `level` is the factor of |y|, which may differ in sign from y.
uint choose_code(uint i, float y, float norm2, out float level) {
    int own_level;
    const uint code = trellis_code(i, own_level);
    level = float(y < 0.0 ? -own_level : own_level);
    return norm2 == 0.0 ? 0u : code;
}
