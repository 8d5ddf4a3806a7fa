#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"
#include "sampling.glsl"

// ids[0] = sampled[sampled_tokens] = the token sampled from all logits, or from the settings.candidates greatest, as sampled_id()
// and the comment above it in model/engine/sampling/device_sampling.h define; sample.comp does that for a few candidates. Digit
// by digit, eight bits at a time, it finds the last key that top-k leaves, and then top-p. One workgroup.
// How a sorted order is avoided. Logits become keys, unsigned integers in the same order (key_of in sampling.glsl). The k-th
// greatest key is found digit by digit (radix selection): four times all keys with the digits found so far are counted by their
// next eight bits, in 256 bins of shared memory, and one invocation goes down from the greatest bin until k is used up. Top-p
// does the same with sums of weights in place of counts. Nothing is sorted, and the logits are read some ten times, whatever k
// is.
// Weights are integers (sampling_weight), so sums do not depend on the order in which invocations add: this makes a token the
// same on every device and on the host. A sum of all weights needs 42 bits, and Vulkan promises atomics of 32 only: a bin has two
// sums, of the weights' low 12 bits and of the rest, each below 2^31 for 2^18 ids.
// If several keys equal the last one, `ties` of them are kept, those with the lowest ids. Their weights are equal, so it is
// enough to count them for each stretch of ids, and to take them from the front when the sampled place is looked for.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { sample_all_params p; };
layout(binding = 0) writeonly buffer Ids { uint ids[]; };
SAMPLING_AT(1, );
layout(binding = 2) readonly buffer Logits { uint logits[]; }; // fp32, as bits
CONTEXT_OF(3, )
#include "sampling_keys.glsl"
#include "sampled_token.glsl"

const uint bins = SAMPLING_STRETCHES; // as many as a digit has values
shared uint low_sums[bins], high_sums[bins]; // of weights: of their low 12 bits, and of the others
shared uint counts[bins];
// Kept are the keys greater than last_key, and `ties` keys equal to it, in the order of ids.
shared uint max_key; // key
shared uint last_key, ties;
shared uint prefix; // the digits found so far, and `left`: the rest that they
shared uvec2 left;  // leave of a number of keys, or of a mass
shared uint weights[SAMPLING_STRETCH];
shared uint chosen_stretch;

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += workgroup)

// Sums of weights are 64-bit numbers: (low, high).
uvec2 plus(uvec2 a, uvec2 b) {
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}
uvec2 minus(uvec2 a, uvec2 b) {
    uint borrow;
    const uint low = usubBorrow(a.x, b.x, borrow);
    return uvec2(low, a.y - b.y - borrow);
}
bool less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
uvec2 times(uint a, uint b) {
    uvec2 product;
    umulExtended(a, b, product.y, product.x);
    return product;
}
// Returns a fraction / 2^32, rounded down or up.
uvec2 fraction_of(uvec2 a, uint fraction, bool up) {
    const uvec2 low = times(a.x, fraction);
    return plus(times(a.y, fraction), uvec2(low.y + (up && low.x != 0u ? 1u : 0u), 0u));
}

uint weight_of(uint key) { return sampling_weight(logit_of(key), logit_of(max_key), settings.inverse_temperature); }
uvec2 sum_of_bin(uint b) { return plus(times(high_sums[b], 1u << 12), uvec2(low_sums[b], 0u)); }
void add_weight(uint b, uint weight) {
    atomicAdd(low_sums[b], weight & 0xfffu);
    atomicAdd(high_sums[b], weight >> 12);
}
void clear_bins() {
    barrier();
    EACH(b, bins) low_sums[b] = high_sums[b] = counts[b] = 0u;
    barrier();
}

void find_max_key() {
    if (gl_LocalInvocationID.x == 0) max_key = NO_LOGIT;
    barrier();
    uint own_max = NO_LOGIT;
    EACH(id, p.vocab_size) own_max = max(own_max, key_at(id, p.vocab_size));
    atomicMax(max_key, own_max);
    barrier();
}

bool has_prefix(uint key, uint shift) { return shift == 24 || key >> (shift + 8) == prefix >> (shift + 8); }

// last_key = the settings.candidates-th greatest key. If there are fewer keys, or all are candidates: NO_LOGIT, which no key is.
void keep_candidates() {
    if (gl_LocalInvocationID.x == 0) {
        last_key = prefix = NO_LOGIT;
        ties = 0u;
        left.x = settings.candidates;
    }
    if (settings.candidates == 0u) return;
    for (int shift = 24; shift >= 0; shift -= 8) {
        clear_bins();
        EACH(id, p.vocab_size) {
            const uint key = key_at(id, p.vocab_size);
            if (key != NO_LOGIT && has_prefix(key, uint(shift))) atomicAdd(counts[key >> shift & 255u], 1u);
        }
        barrier();
        if (gl_LocalInvocationID.x == 0) {
            uint digit = 255u;
            for (; digit > 0u && counts[digit] < left.x; digit--) left.x -= counts[digit];
            prefix |= digit << shift;
        }
    }
    if (gl_LocalInvocationID.x == 0) {
        last_key = prefix;
        ties = left.x;
    }
}

// Adds the weights of the keys that top-k leaves to the bins of their digits.
void weigh_digits(uint shift) {
    clear_bins();
    EACH(id, p.vocab_size) {
        const uint key = key_at(id, p.vocab_size);
        if (key > last_key && has_prefix(key, shift)) add_weight(key >> shift & 255u, weight_of(key));
    }
    barrier();
    if (gl_LocalInvocationID.x != 0 || last_key == NO_LOGIT || !has_prefix(last_key, shift)) return;
    const uvec2 tied = times(weight_of(last_key), ties);
    const uint b = last_key >> shift & 255u;
    low_sums[b] += tied.x & 0xfffu;
    high_sums[b] += tied.x >> 12 | tied.y << 20;
}

// Adds a digit to the prefix: the greatest with which the weights of the keys from there on sum to the wanted mass.
void find_digit(uint shift) {
    if (shift == 24) {
        prefix = 0u;
        uvec2 sum = uvec2(0u);
        for (uint b = 0; b < bins; b++) sum = plus(sum, sum_of_bin(b));
        left = fraction_of(sum, settings.top_p, true);
        if (left == uvec2(0u)) left.x = 1u; // the greatest is always kept
    }
    uint digit = 255u;
    for (; digit > 0u && less(sum_of_bin(digit), left); digit--) left = minus(left, sum_of_bin(digit));
    prefix |= digit << shift;
}

// Keeps the fewest of the kept keys whose weights sum to top-p of all.
void keep_nucleus() {
    if (settings.top_p == 0xffffffffu) return;
    for (int shift = 24; shift >= 0; shift -= 8) {
        weigh_digits(uint(shift));
        if (gl_LocalInvocationID.x == 0) find_digit(uint(shift));
    }
    barrier();
    if (gl_LocalInvocationID.x != 0) return;
    const uint weight = weight_of(prefix);
    uint number = 0u; // of ties that do not suffice
    for (uint bit = SAMPLING_STRETCHES * SAMPLING_STRETCH / 2; bit != 0u; bit >>= 1)
        if (less(times(weight, number + bit), left)) number += bit;
    last_key = prefix;
    ties = number + 1u;
}

// Returns the weight of a key that is kept, 0 for others. Keys that tie with the last one have it even if no ties are left.
uint kept_weight(uint key) {
    if (key == NO_LOGIT || key < last_key) return 0u;
    const uint weight = weight_of(key);
    return weight < settings.min_p ? 0u : weight;
}

// Takes up to `tied` of the ties that are left.
uint take_ties(uint tied) {
    const uint taken = min(tied, ties);
    ties -= taken;
    return taken;
}

// Chooses the stretch that contains target = floor(mass random / 2^32) of the mass of the kept ids, in ascending order; `left` is
// what the stretches before it leave of the target, `ties` of the ties. For one invocation.
void choose_stretch(uint random_bits) {
    const uint tied_weight = kept_weight(last_key), all_ties = ties;
    uvec2 mass = uvec2(0u), reached = uvec2(0u);
    for (uint b = 0; b < bins; b++) mass = plus(mass, plus(sum_of_bin(b), times(take_ties(counts[b]), tied_weight)));
    const uvec2 target = fraction_of(mass, random_bits, false);
    ties = all_ties;
    uint b = 0u, before = ties;
    for (; b < bins; b++) {
        before = ties;
        const uvec2 next = plus(reached, plus(sum_of_bin(b), times(take_ties(counts[b]), tied_weight)));
        if (less(target, next)) break;
        reached = next;
    }
    ties = before;
    chosen_stretch = b;
    left = minus(target, reached);
}

// Returns the number of the chosen id in the stretch: the first whose weights, with those before it, exceed `left`. For one
// invocation.
uint choose_in_stretch() {
    uint i = 0u;
    for (; i < SAMPLING_STRETCH; i++) {
        const bool tied = (weights[i] & 0x80000000u) != 0u;
        const uint weight = tied && take_ties(1u) == 0u ? 0u : weights[i] & 0x7fffffffu;
        if (less(left, uvec2(weight, 0u))) break;
        left = minus(left, uvec2(weight, 0u));
    }
    return i;
}

// Sums the weights of the kept ids of each stretch, chooses a stretch, and finds the weights of its ids.
void weigh_kept(uint random_bits) {
    clear_bins();
    EACH(id, p.vocab_size) {
        const uint key = key_at(id, p.vocab_size), weight = kept_weight(key), stretch = id / SAMPLING_STRETCH;
        if (key == last_key && weight != 0u)
            atomicAdd(counts[stretch], 1u);
        else
            add_weight(stretch, weight);
    }
    barrier();
    if (gl_LocalInvocationID.x == 0) choose_stretch(random_bits);
    barrier();
    EACH(i, SAMPLING_STRETCH) {
        const uint key = key_at(chosen_stretch * SAMPLING_STRETCH + i, p.vocab_size);
        weights[i] = kept_weight(key) | (key == last_key ? 0x80000000u : 0u);
    }
    barrier();
}

void main() {
    find_max_key();
    keep_candidates();
    keep_nucleus();
    barrier();
    weigh_kept(random[sampled_tokens]);
    if (gl_LocalInvocationID.x != 0) return;
    const bool none = max_key == NO_LOGIT || max_key == NONFINITE_LOGIT;
    take_token(none ? NO_TOKEN : chosen_stretch * SAMPLING_STRETCH + choose_in_stretch(), (p.vocab_size + 31) / 32);
}
