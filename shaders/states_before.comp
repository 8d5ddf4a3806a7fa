#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = the hidden state of the token before row t in its sequence: row t - 1 of x if it is of the same slot, else the kept
// state of the slot's last tokens (each at its position modulo the ring); zeros at the start of a sequence. kept:
// [slots][ring][cols]. One workgroup per row.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { states_before_params p; };
layout(binding = 0) writeonly buffer Y { vec4 y[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
layout(binding = 2) readonly buffer Kept { vec4 kept[]; };
CONTEXT_AT(3)
#include "recurrent.glsl"

void main() {
    const uint t = gl_WorkGroupID.x, quads = p.cols / 4;
    if (t >= tokens) return;
    const uint position = row_position(t);
    const bool in_pass = rows_before(t, 1) == 1;
    const uint from = in_pass ? (t - 1) * quads : (row_slot(t) * p.ring + (position + p.ring - 1) % p.ring) * quads;
    for (uint i = gl_LocalInvocationID.x; i < quads; i += workgroup) {
        vec4 state = vec4(0.0);
        if (position != 0) {
            if (in_pass)
                state = x[from + i];
            else
                state = kept[from + i];
        }
        y[t * quads + i] = state;
    }
}
