#version 460
#extension GL_GOOGLE_include_directive : require
// params: attention_params
#define SIMD
#include "attention.glsl"

// attention.comp for devices that are processors (read.glsl). An invocation is a lane of a vector there; shared memory, and arrays by
// an index that is not known when the kernel is built, are read lane by lane, and barriers are dear. So a lane has keys of its own,
// with a maximum of its own: it scores `run` of them, `width` channels at a time, whose queries stay in registers; then it
// sums their values, likewise. Only in the end are the lanes' sums put together.
const uint run = 64;
const uint width = 32;
const uint blocks = head_dim / width;

shared float lane_max[rows * lanes], lane_sum[rows * lanes];
shared float sums[lanes * width];

float scores[run * rows], residual_scores[KV_QJL(v_type) == 0 ? 1 : run * rows]; // [key][row]; later the weights of the values
vec4 acc[v_parts * rows * head_dim / 4];                                          // [part][row][head_dim]
float row_max[rows], row_scale[rows], l[rows];

uint key_of(uint first, uint i) { return first + i * lanes + gl_LocalInvocationID.x; }
bool sees(uint r, uint key, uint end) { return key < end && key <= position + row_token(r); } // causal

void score(uint head_base, uint first, uint end, uint count) {
    for (uint b = 0; b < blocks; b++) {
        vec4 query[k_parts * rows * width / 4];
        [[unroll]] for (uint part = 0; part < k_parts; part++)
            [[unroll]] for (uint r = 0; r < rows; r++)
                [[unroll]] for (uint j = 0; j < width / 4; j++)
                    query[(part * rows + r) * width / 4 + j] = query_of(part, r, b * width / 4 + j);
        for (uint i = 0; i < count; i++) {
            const uint at = head_base + min(key_of(first, i), end - 1);
            vec4 terms[rows], residuals[rows];
            [[unroll]] for (uint r = 0; r < rows; r++) terms[r] = residuals[r] = vec4(0.0);
            [[unroll]] for (uint c = 0; c < width / 32; c++) {
                vec4 k[8], z[8];
                load32(k_type, p.k_codes, p.k_scales, at, b * (width / 32) + c, k, z);
                [[unroll]] for (uint r = 0; r < rows; r++)
                    [[unroll]] for (uint j = 0; j < 8; j++) {
                        terms[r] += query[r * width / 4 + c * 8 + j] * k[j];
                        if (k_parts == 2) residuals[r] += query[(rows + r) * width / 4 + c * 8 + j] * z[j];
                    }
            }
            const vec2 by = vector_scales(k_type, p.k_scales, at);
            [[unroll]] for (uint r = 0; r < rows; r++) {
                float sum = sum_of(terms[r]) * by.x;
                if (k_parts == 2) sum += sum_of(residuals[r]) * by.y;
                scores[i * rows + r] = b == 0 ? sum : scores[i * rows + r] + sum;
            }
        }
    }
}

// scores = the weights of the values, those of the keys before rescaled.
void weigh(uint head_base, uint first, uint end, uint count) {
    for (uint r = 0; r < rows; r++) {
        float m = row_max[r];
        for (uint i = 0; i < count; i++) m = sees(r, key_of(first, i), end) ? max(m, scores[i * rows + r]) : m;
        row_scale[r] = exp(row_max[r] - m);
        row_max[r] = m;
        l[r] *= row_scale[r];
    }
    for (uint i = 0; i < count; i++) {
        const uint key = key_of(first, i);
        const vec2 by = vector_scales(v_type, p.v_scales, head_base + min(key, end - 1));
        for (uint r = 0; r < rows; r++) {
            const float weight = sees(r, key, end) ? exp(scores[i * rows + r] - row_max[r]) : 0.0;
            l[r] += weight;
            scores[i * rows + r] = weight == 0.0 ? 0.0 : weight * by.x;
            if (v_parts == 2) residual_scores[i * rows + r] = weight == 0.0 ? 0.0 : weight * by.y;
        }
    }
}

void add_values(uint head_base, uint first, uint end, uint count) {
    for (uint b = 0; b < blocks; b++) {
        vec4 a[v_parts * rows * width / 4];
        [[unroll]] for (uint part = 0; part < v_parts; part++)
            [[unroll]] for (uint r = 0; r < rows; r++)
                [[unroll]] for (uint j = 0; j < width / 4; j++)
                    a[(part * rows + r) * width / 4 + j] = acc[((part * rows + r) * blocks + b) * width / 4 + j] * row_scale[r];
        for (uint i = 0; i < count; i++) {
            const uint at = head_base + min(key_of(first, i), end - 1);
            [[unroll]] for (uint c = 0; c < width / 32; c++) {
                vec4 v[8], z[8];
                load32(v_type, p.v_codes, p.v_scales, at, b * (width / 32) + c, v, z);
                [[unroll]] for (uint r = 0; r < rows; r++)
                    [[unroll]] for (uint j = 0; j < 8; j++) {
                        a[r * width / 4 + c * 8 + j] += scores[i * rows + r] * v[j];
                        if (v_parts == 2) a[(rows + r) * width / 4 + c * 8 + j] += residual_scores[i * rows + r] * z[j];
                    }
            }
        }
        [[unroll]] for (uint part = 0; part < v_parts; part++)
            [[unroll]] for (uint r = 0; r < rows; r++)
                [[unroll]] for (uint j = 0; j < width / 4; j++)
                    acc[((part * rows + r) * blocks + b) * width / 4 + j] = a[(part * rows + r) * width / 4 + j];
    }
}

// The lanes' sums, put together.
void write_parts() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint r = 0; r < rows; r++) {
        lane_max[r * lanes + lane] = row_max[r];
        lane_sum[r * lanes + lane] = l[r];
    }
    barrier();
    for (uint r = 0; r < rows; r++) {
        if (row_token(r) >= tokens) break;
        float m = nothing, sum = 0.0;
        for (uint i = 0; i < lanes; i++) m = max(m, lane_max[r * lanes + i]);
        for (uint i = 0; i < lanes; i++) sum += lane_sum[r * lanes + i] * exp(lane_max[r * lanes + i] - m);
        const float by = exp(row_max[r] - m);
        for (uint b = 0; b < v_parts * blocks; b++) {
            const uint from = (b / blocks * rows + r) * blocks + b % blocks;
            for (uint j = 0; j < width; j++) sums[lane * width + j] = acc[from * width / 4 + j / 4][j % 4] * by;
            barrier();
            for (uint j = lane; j < width; j += lanes) {
                float all = 0.0;
                for (uint i = 0; i < lanes; i++) all += sums[i * width + j];
                partials[part_of(r) + b * width + j] = all;
            }
            barrier();
        }
        if (lane == 0) {
            partials[part_of(r) + part_size - 2] = m;
            partials[part_of(r) + part_size - 1] = sum;
        }
    }
}

void main() {
    if (gl_WorkGroupID.z * tile >= tokens) return;
    const uint head_base = gl_WorkGroupID.y / per_kv_head * p.capacity;
    const uint length = position + min(tokens, (gl_WorkGroupID.z + 1) * tile); // keys that the tile's last token sees
    const uint part = part_length(p.splits, length, lanes);
    const uint begin = gl_WorkGroupID.x * part, end = min(length, begin + part);
    if (begin >= end) return; // an empty part, which nothing reads

    for (uint i = 0; i < v_parts * rows * head_dim / 4; i++) acc[i] = vec4(0.0);
    for (uint r = 0; r < rows; r++) {
        row_max[r] = nothing;
        l[r] = 0.0;
    }
    for (uint first = begin; first < end; first += lanes * run) {
        const uint count = min(run, (end - first + lanes - 1) / lanes);
        score(head_base, first, end, count);
        weigh(head_base, first, end, count);
        add_values(head_base, first, end, count);
    }
    write_parts();
}
