#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"
#include "sampling.glsl"

// ids[0] = sampled[sampled_tokens] = the token sampled from the candidates of all stretches as
// model/engine/sampling/device_sampling.h defines; its uses are counted if settings.penalises; the row's position and
// sampled_tokens are incremented. NO_TOKEN if there is none; ids[0] is 0 then. One workgroup.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { sample_params p; };
layout(binding = 0) writeonly buffer Ids { uint ids[]; };
SAMPLING_AT(1, );
layout(binding = 2) readonly buffer Candidates { uvec2 candidates[]; }; // [stretches][settings.candidates], each in order
CONTEXT_OF(3, )
#include "sampled_token.glsl"

// Only the lists with the greatest heads can contain one of the `count` greatest. Element j of the i-th of these lists comes
// after the j before it and after i heads: i + j < count, a triangle of keys.
shared uint heads[SAMPLING_STRETCHES];
shared uint lists[SAMPLING_CANDIDATES];
shared uint keys[SAMPLING_CANDIDATES * (SAMPLING_CANDIDATES + 1) / 2];
shared uint chosen_key[SAMPLING_CANDIDATES], chosen_at[SAMPLING_CANDIDATES], weights[SAMPLING_CANDIDATES];

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += workgroup)

// Returns the offset of list i's keys.
uint row(uint i, uint count) { return i * count - i * (i - 1) / 2; }

void find_lists(uint count) {
    EACH(g, p.stretches) heads[g] = candidates[g * count].x;
    barrier();
    EACH(g, p.stretches) {
        uint rank = 0u;
        for (uint i = 0; i < p.stretches; i++) rank += precedes(heads[i], i, heads[g], g) ? 1u : 0u;
        if (rank < count) lists[rank] = g;
    }
    barrier();
}

// Ties are broken by the place in `candidates`, which grows with the id.
void find_top(uint count) {
    const uint used = min(count, p.stretches);
    EACH(e, used * count) {
        const uint i = e / count, j = e % count;
        if (i + j < count) keys[row(i, count) + j] = candidates[lists[i] * count + j].x;
    }
    barrier();
    EACH(e, used * count) {
        const uint i = e / count, j = e % count;
        if (i + j >= count) continue;
        const uint key = keys[row(i, count) + j], at = lists[i] * count + j;
        uint rank = j;
        for (uint other = 0; other < used && rank < count; other++) {
            if (other == i) continue;
            for (uint k = 0; other + k < count && rank < count; k++, rank++)
                if (!precedes(keys[row(other, count) + k], lists[other] * count + k, key, at)) break;
        }
        if (rank < count) {
            chosen_key[rank] = key;
            chosen_at[rank] = at;
        }
    }
    barrier();
}

// Returns the high word of a b; `more`: whether the low one is not 0.
uint product(uint a, uint b, out bool more) {
    uint high, low;
    umulExtended(a, b, high, low);
    more = low != 0u;
    return high;
}

// Returns the index that is sampled from the weights.
uint sampled_index(uint count, uint random_bits) {
    uint sum = 0u;
    for (uint i = 0; i < count; i++) sum += weights[i];
    bool more;
    uint min_mass = product(sum, settings.top_p, more);
    if (more) min_mass++;
    uint mass = weights[0], kept = 1u;
    for (; kept < count && mass < min_mass && weights[kept] >= settings.min_p; kept++) mass += weights[kept];
    const uint target = product(mass, random_bits, more);
    uint chosen = 0u;
    for (uint reached = weights[0]; chosen + 1 < kept && reached <= target; reached += weights[chosen]) chosen++;
    return chosen;
}

void main() {
    const uint count = settings.candidates;
    find_lists(count);
    find_top(count);
    const float max_logit = logit_of(chosen_key[0]);
    EACH(i, count)
        weights[i] =
            chosen_key[i] == NO_LOGIT ? 0u : sampling_weight(logit_of(chosen_key[i]), max_logit, settings.inverse_temperature);
    barrier();
    if (gl_LocalInvocationID.x != 0) return;
    const bool none = chosen_key[0] == NO_LOGIT || chosen_key[0] == NONFINITE_LOGIT;
    const uint id = none ? NO_TOKEN : candidates[chosen_at[sampled_index(count, random[sampled_tokens])]].y;
    take_token(id, p.use_words);
}
