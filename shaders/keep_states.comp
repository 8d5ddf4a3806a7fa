#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// Keeps hidden states that states_before.comp reads later: kept[slot][position % ring] = x[t] for the last rows of each slot, at
// most as many as the ring has. One workgroup per row.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { keep_states_params p; };
layout(binding = 0) writeonly buffer Kept { vec4 kept[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
CONTEXT_AT(2)
#include "recurrent.glsl"

void main() {
    const uint t = gl_WorkGroupID.x, quads = p.cols / 4;
    if (t >= tokens || rows_end(t) - t > p.ring) return;
    const uint to = (row_slot(t) * p.ring + row_position(t) % p.ring) * quads;
    for (uint i = gl_LocalInvocationID.x; i < quads; i += workgroup) kept[to + i] = x[t * quads + i];
}
