#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// What the recurrence of a gated DeltaNet (delta_rule.comp) gets of its layer's projections. Of channel i of a row
//   c_t[i] = silu(sum over j = 0 ... 3 of w[i][j] x_(t-3+j)[i]),
// x being the rows before it in the sequence, too: the slot's state has the last three. The channels are heads of 128, queries and keys
// and then values; of queries and keys c / sqrt(sum of c^2 + eps) is stored, of queries over sqrt(128). Of each value head
//   beta = sigmoid(beta), alpha = exp(a softplus(alpha + dt)), a < 0.
// One workgroup per head (x) and row (y), and one more for the gates of a row. That of a slot's first row has the two after it, too, and
// then replaces the state's rows: nothing else reads them.
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(push_constant) uniform Push { delta_inputs_params p; };
layout(binding = 0) buffer Rows { float rows[]; }; // parts at the offsets of the parameters
layout(binding = 1) buffer State { float state[]; };
layout(binding = 2) readonly buffer Weights { vec4 weights[]; }; // of each channel; then of each value head a and dt
CONTEXT_AT(3)
#include "head_vector.glsl"
#include "recurrent.glsl"
#include "rms.glsl"

float row_of(uint t, uint i) { return rows[p.inputs + t * p.channels + i]; }
float silu(float x) { return x / (1.0 + exp(-x)); }

// log(1 + e) of 0 <= e <= 1 to some units in the last place; Vulkan's log is allowed an error of 2^-21 near 1.
float log_of_one_plus(float e) {
    const float s = e / (2.0 + e), square = s * s;
    float sum = 1.0 / 15.0;
    for (uint n = 13; n > 1; n -= 2) sum = sum * square + 1.0 / float(n);
    return 2.0 * s * (sum * square + 1.0);
}

void store_gates(uint t) {
    EACH(head, p.value_heads) {
        const uint at = t * p.value_heads + head;
        const float x = rows[p.alphas + at] + weights[p.channels + head].y;
        const float softplus = max(x, 0.0) + log_of_one_plus(exp(-abs(x)));
        rows[p.gates + 2 * at] = 1.0 / (1.0 + exp(-rows[p.betas + at]));
        rows[p.gates + 2 * at + 1] = exp(weights[p.channels + head].x * softplus);
    }
}

// The convolution of a head's channels from `first` on in row t, `before` of whose three rows before it are in the pass.
void convolve(uint t, uint before, uint first) {
    const uint history = row_slot(t) * p.state_floats + p.history;
    EACH_CHANNEL(i) {
        const uint at = first + i;
        vec4 x = vec4(0.0, 0.0, 0.0, row_of(t, at));
        [[unroll]] for (uint back = 1; back <= 3; back++)
            x[3 - back] = back <= before ? row_of(t - back, at) : state[history + (3 - back + before) * p.channels + at];
        const vec4 w = weights[at];
        OWN(channel, i) = silu(fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, w.x * x.x))));
    }
}

void normalise(float scale) {
    channel_barrier();
    EACH_CHANNEL(i) OWN(terms, i) = OWN(channel, i) * OWN(channel, i);
    sum_terms(1);
    const float inverse = inverse_rms_of(terms[0] + p.eps) * scale;
    EACH_CHANNEL(i) OWN(channel, i) *= inverse;
    channel_barrier();
}

// The state's rows are then the last three before row `end`.
void keep_rows(uint t, uint end, uint first) {
    const uint history = row_slot(t) * p.state_floats + p.history, count = end - t;
    EACH_CHANNEL(i)
        [[unroll]] for (uint r = 0; r < 3; r++) {
            const uint at = first + i;
            state[history + r * p.channels + at] =
                count + r >= 3 ? row_of(end + r - 3, at) : state[history + (count + r) * p.channels + at];
        }
}

void main() {
    const uint t = gl_WorkGroupID.y, head = gl_WorkGroupID.x, first = head * head_dim;
    if (t >= tokens) return;
    if (first == p.channels) {
        store_gates(t);
        return;
    }
    const uint before = rows_before(t, 3);
    if (before == 1 || before == 2) return;
    const uint all = rows_end(t), end = before == 0 ? min(t + 3, all) : t + 1;
    [[dont_unroll]] for (uint row = t; row < end; row++) {
        convolve(row, before == 0 ? row - t : 3, first);
        if (head < 2 * p.key_heads) normalise(head < p.key_heads ? p.query_scale : 1.0);
        EACH_CHANNEL(i) rows[p.outputs + row * p.channels + first + i] = OWN(channel, i);
    }
    if (before == 0) keep_rows(t, all, first);
}
