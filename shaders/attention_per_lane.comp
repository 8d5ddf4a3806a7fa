#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// params: attention_params
#define TEXEL
#define UNROLL [[unroll]]
#include "attention.glsl"

// attention.comp for Mesa's software driver (read.glsl), whose invocations are SIMD lanes:
// shared memory, and arrays with an index that is unknown at compile time, are read lane by lane, and barriers are expensive.
// So a lane has its own keys and its own maximum: it scores `run` keys, `width` channels at a time, whose queries stay in
// registers; then it sums their values in the same way. Only at the end are the lanes' sums combined.
const uint run = 64;
const uint width = 32;
const uint blocks = head_dim / width;

shared float lane_max[rows * lanes], lane_sum[rows * lanes];
shared float sums[lanes * width];

float scores[run * rows];       // [key][row]; later the weights of the values
vec4 acc[rows * head_dim / 4]; // [row][head_dim]
float row_max[rows], row_scale[rows], l[rows];

uint key_of(uint first, uint i) { return first + i * lanes + gl_LocalInvocationID.x; }

// Returns the number of the vector of this lane's key number i.
uint vector_of(uint first, uint i, uint end) {
    const uint key = min(key_of(first, i), end - 1);
    return vector_near(key, PAGE % lanes == 0 ? min(first + i * lanes, end - 1) : key);
}

void score(uint first, uint end, uint count) {
    for (uint b = 0; b < blocks; b++) {
        vec4 query[rows * width / 4];
        UNROLL for (uint r = 0; r < rows; r++)
            UNROLL for (uint j = 0; j < width / 4; j++) query[r * width / 4 + j] = query_of(r, b * width / 4 + j);
        for (uint i = 0; i < count; i++) {
            const uint at = vector_of(first, i, end);
            vec4 terms[rows], k[8];
            UNROLL for (uint r = 0; r < rows; r++) terms[r] = vec4(0.0);
            load32(k_type, p.k_codes, p.k_scales, at, b, k);
            UNROLL for (uint r = 0; r < rows; r++)
                UNROLL for (uint j = 0; j < 8; j++) terms[r] += query[r * width / 4 + j] * k[j];
            const vec4 by = scales_of(k_type, p.k_scales, at);
            UNROLL for (uint r = 0; r < rows; r++) {
                const float sum = score_of(terms[r], by);
                scores[i * rows + r] = sum + (b == 0 ? page_score(r, min(key_of(first, i), end - 1)) : scores[i * rows + r]);
            }
        }
    }
}

// scores = the weights of the values; the sums of earlier keys are rescaled.
void weigh(uint first, uint end, uint count) {
    for (uint r = 0; r < rows; r++) {
        const uvec2 seen = seen_keys(r, end);
        float m = row_max[r];
        for (uint i = 0; i < count; i++) m = is_seen(seen, key_of(first, i)) ? max(m, scores[i * rows + r]) : m;
        row_scale[r] = exp(row_max[r] - m);
        row_max[r] = m;
        l[r] *= row_scale[r];
    }
    for (uint i = 0; i < count; i++) {
        const uint key = key_of(first, i);
        const float by = scales_of(v_type, p.v_scales, vector_of(first, i, end)).x;
        for (uint r = 0; r < rows; r++) {
            const float weight = is_seen(seen_keys(r, end), key) ? exp(scores[i * rows + r] - row_max[r]) : 0.0;
            l[r] += weight;
            scores[i * rows + r] = weight == 0.0 ? 0.0 : weight * by;
        }
    }
}

void add_values(uint first, uint end, uint count) {
    for (uint b = 0; b < blocks; b++) {
        vec4 a[rows * width / 4];
        UNROLL for (uint r = 0; r < rows; r++)
            UNROLL for (uint j = 0; j < width / 4; j++)
                a[r * width / 4 + j] = acc[(r * blocks + b) * width / 4 + j] * row_scale[r];
        for (uint i = 0; i < count; i++) {
            vec4 v[8];
            load32(v_type, p.v_codes, p.v_scales, vector_of(first, i, end), b, v);
            UNROLL for (uint r = 0; r < rows; r++)
                UNROLL for (uint j = 0; j < 8; j++) a[r * width / 4 + j] += scores[i * rows + r] * v[j];
        }
        UNROLL for (uint r = 0; r < rows; r++)
            UNROLL for (uint j = 0; j < width / 4; j++) acc[(r * blocks + b) * width / 4 + j] = a[r * width / 4 + j];
    }
}

// Combines the lanes' sums.
void write_parts() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint r = 0; r < rows; r++) {
        lane_max[r * lanes + lane] = row_max[r];
        lane_sum[r * lanes + lane] = l[r];
    }
    barrier();
    for (uint r = 0; r < rows; r++) {
        if (row_token(r) >= end_token) break;
        float m = masked, sum = 0.0;
        for (uint i = 0; i < lanes; i++) m = max(m, lane_max[r * lanes + i]);
        for (uint i = 0; i < lanes; i++) sum += lane_sum[r * lanes + i] * exp(lane_max[r * lanes + i] - m);
        const float by = exp(row_max[r] - m);
        for (uint b = 0; b < blocks; b++) {
            for (uint j = 0; j < width; j++) sums[lane * width + j] = acc[(r * blocks + b) * width / 4 + j / 4][j % 4] * by;
            barrier();
            for (uint j = lane; j < width; j += lanes) {
                float all = 0.0;
                for (uint i = 0; i < lanes; i++) all += sums[i * width + j];
                partials[partial_of(r) + b * width + j] = all;
            }
            barrier();
        }
        if (lane == 0) {
            partials[partial_of(r) + partial_size - 2] = m;
            partials[partial_of(r) + partial_size - 1] = sum;
        }
    }
}

void main() {
    if (!find_tile()) return;
    const uint begin = key_range().x, end = key_range().y;
    if (!is_read(begin)) return;

    for (uint i = 0; i < rows * head_dim / 4; i++) acc[i] = vec4(0.0);
    for (uint r = 0; r < rows; r++) {
        row_max[r] = masked;
        l[r] = 0.0;
    }
    for (uint first = begin; first < end; first += lanes * run) {
        const uint count = min(run, (end - first + lanes - 1) / lanes);
        score(first, end, count);
        weigh(first, end, count);
        add_values(first, end, count);
    }
    write_parts();
}
