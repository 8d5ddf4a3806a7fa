#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// Inputs of the recurrence of a gated DeltaNet (delta_rule.comp), from its layer's projections. For channel i of row t
// c_t[i] = silu(sum over j = 0 ... 3 of w[i][j] x_(t-3+j)[i])
// where rows x before the first are those of the sequence: the slot's state has the last three. The channels are heads of 128:
// queries, keys, then values. Stored are c / sqrt(sum of c^2 + eps) for keys, this over sqrt(128) for queries, and c for values.
// For each value head
// beta = sigmoid(beta), alpha = exp(a softplus(alpha + dt)), a < 0.
// One workgroup per head (x) and row (y), and one more for the gates of a row. The workgroup of a slot's first row also computes
// the two rows after it, and then replaces the state's rows: no other workgroup reads them. If tokens of the slot are pending
// (StateRange of model/pass_rows.h), their inputs come before the first row's. The inputs and results of rows that stay pending
// are kept, too, in other places of the ring.
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

float silu(float x) { return x / (1.0 + exp(-x)); }

uint state_at(uint t) { return row_slot(t) * p.state_floats; }
bool stays_pending(uint t) { return row_position(t) >= row_state_end(t); }

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
        const float beta = 1.0 / (1.0 + exp(-rows[p.betas + at])), alpha = exp(weights[p.channels + head].x * softplus);
        rows[p.gates + 2 * at] = beta;
        rows[p.gates + 2 * at + 1] = alpha;
        if (stays_pending(t)) {
            const uint kept = state_at(t) + p.pending_gates + (row_position(t) % p.ring * p.value_heads + head) * 2;
            state[kept] = beta;
            state[kept + 1] = alpha;
        }
    }
}

// A row of inputs: offset of its first channel, in the rows of the pass or in the state.
struct Inputs {
    bool in_pass;
    uint at;
};
float input_of(Inputs row, uint i) { return row.in_pass ? rows[row.at + i] : state[row.at + i]; }

// Returns the inputs at a position of a slot whose first row is t. The position is that of a row, of a pending token, or of one
// of the last three tokens before them.
Inputs inputs_at(uint t, int position) {
    const int own = int(row_position(t)), begin = int(min(row_state_begin(t), row_position(t)));
    if (position >= own) return Inputs(true, p.inputs + (t + uint(position - own)) * p.channels);
    const uint row = position >= begin ? p.pending_inputs + uint(position) % p.ring * p.channels
                                       : p.history + uint(3 + position - begin) * p.channels;
    return Inputs(false, state_at(t) + row);
}

// The convolution of a head's channels from `first` on in row t, `before` rows after the first of its slot, or more.
void convolve(uint t, uint before, uint first) {
    EACH_CHANNEL(i) OWN(channel, i) = 0.0;
    [[dont_unroll]] for (uint tap = 0; tap < 4; tap++) {
        const Inputs row = inputs_at(t - before, int(row_position(t) + tap) - 3);
        EACH_CHANNEL(i) OWN(channel, i) = fma(weights[first + i][tap], input_of(row, first + i), OWN(channel, i));
    }
    EACH_CHANNEL(i) OWN(channel, i) = silu(OWN(channel, i));
}

void normalise(float scale) {
    channel_barrier();
    EACH_CHANNEL(i) OWN(terms, i) = OWN(channel, i) * OWN(channel, i);
    sum_terms(1);
    const float inverse = inverse_rms_of(terms[0] + p.eps) * scale;
    EACH_CHANNEL(i) OWN(channel, i) *= inverse;
    channel_barrier();
}

// The state's rows are then the last three before the token that it is after: of rows t to `end` - 1, and those before them.
void keep_rows(uint t, uint end, uint first) {
    const uint position = row_position(t), settled = min(row_state_end(t), position + end - t);
    if (settled == min(row_state_begin(t), position)) return;
    [[dont_unroll]] for (uint r = 0; r < 3; r++) {
        const Inputs row = inputs_at(t, int(settled + r) - 3);
        const uint to = state_at(t) + p.history + r * p.channels;
        EACH_CHANNEL(i) state[to + first + i] = input_of(row, first + i);
    }
}

void main() {
    const uint t = gl_WorkGroupID.y, head = gl_WorkGroupID.x, first = head * head_dim;
    if (t >= tokens) return;
    if (first == p.channels) {
        if (p.settle == 0) store_gates(t);
        return;
    }
    if (p.settle != 0) {
        if (t == 0) keep_rows(t, t, first);
        return;
    }
    const uint before = rows_before(t, 3);
    if (before == 1 || before == 2) return;
    const uint all = rows_end(t), end = before == 0 ? min(t + 3, all) : t + 1;
    [[dont_unroll]] for (uint row = t; row < end; row++) {
        convolve(row, before == 0 ? row - t : 3, first);
        if (head < 2 * p.key_heads) normalise(head < p.key_heads ? p.query_scale : 1.0);
        EACH_CHANNEL(i) rows[p.outputs + row * p.channels + first + i] = OWN(channel, i);
        if (stays_pending(row)) {
            const uint kept = state_at(row) + row_position(row) % p.ring * p.channels + first;
            EACH_CHANNEL(i) {
                state[kept + p.pending_inputs + i] = rows[p.inputs + row * p.channels + first + i];
                state[kept + p.pending_outputs + i] = OWN(channel, i);
            }
        }
    }
    if (before == 0) keep_rows(t, all, first);
}
