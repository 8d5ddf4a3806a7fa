#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "sampling.glsl"

// candidates[g] = key and id of the settings.candidates greatest of logits 1024 g, 1024 g + 1, ..., in descending order, without
// the excluded ones, after penalties; NO_LOGIT if there are fewer. One workgroup per stretch g.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { sample_candidates_params p; };
layout(binding = 0) writeonly buffer Candidates { uvec2 candidates[]; };
layout(binding = 1) readonly buffer Logits { uint logits[]; }; // fp32, as bits: a denormal counts too
SAMPLING_AT(2, readonly);
#include "sampling_keys.glsl"

// At most this many candidates; each column has every 64th logit.
const uint columns = SAMPLING_CANDIDATES;
shared uint keys[SAMPLING_STRETCH];
shared uint column_key[columns], column_at[columns]; // the greatest of each column, and its index
shared uint min_key, min_at;                     // the settings.candidates-th greatest of these: no candidate comes after it
shared uint found, found_at[SAMPLING_STRETCH];

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += workgroup)

void main() {
    const uint count = settings.candidates, first = gl_WorkGroupID.x * SAMPLING_STRETCH;
    if (gl_LocalInvocationID.x == 0) found = 0u;
    EACH(c, columns) {
        uint best = NO_LOGIT, at = c;
        for (uint i = c; i < SAMPLING_STRETCH; i += columns) {
            const uint key = key_at(first + i, p.vocab_size);
            keys[i] = key;
            if (key > best) {
                best = key;
                at = i;
            }
        }
        column_key[c] = best;
        column_at[c] = at;
    }
    barrier();
    EACH(c, columns) {
        uint rank = 0u;
        for (uint i = 0; i < columns; i++) rank += precedes(column_key[i], column_at[i], column_key[c], column_at[c]) ? 1u : 0u;
        if (rank == count - 1) {
            min_key = column_key[c];
            min_at = column_at[c];
        }
    }
    barrier();
    EACH(i, SAMPLING_STRETCH)
        if (keys[i] != NO_LOGIT && !precedes(min_key, min_at, keys[i], i)) found_at[atomicAdd(found, 1u)] = i;
    barrier();
    EACH(f, found) {
        const uint at = found_at[f], key = keys[at];
        uint rank = 0u;
        for (uint i = 0; i < found && rank < count; i++) rank += precedes(keys[found_at[i]], found_at[i], key, at) ? 1u : 0u;
        if (rank < count) candidates[gl_WorkGroupID.x * count + rank] = uvec2(key, first + at);
    }
    EACH(r, count)
        if (r >= found) candidates[gl_WorkGroupID.x * count + r] = uvec2(NO_LOGIT, NO_TOKEN);
}
