#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "attention.glsl"

// The partials of softmax(q K^T) V over one split of the sequence, in the cache's own (rotated) space, with an online softmax.
// once more for texels
// once more for subgroups
layout(constant_id = 8) const uint keys = 1; // keys that an invocation scores at a time with each query that it loads
layout(constant_id = 9) const uint subgroup = 4; // invocations of a subgroup, in the subgroup variant

const uint scored = keys * rows, batch = lanes * keys;
// Values are decoded 8 channels at a time: `sharers` invocations divide the channels of a value, `chunks` times 8 each, and
// take every `turns`-th value.
const uint sharers = lanes * 8 < head_dim ? lanes : head_dim / 8;
const uint chunks = head_dim / 8 / sharers;
const uint turns = lanes / sharers;

shared vec4 query[rows * head_dim / 4]; // [row][head_dim]; in the end the sums of other turns [row][head_dim]
shared float scores[rows * batch];       // [row][key]; later the weights of the values

const uint acc_size = rows * chunks * 2;

void load_queries() {
    for (uint i = gl_LocalInvocationID.x; i < rows * head_dim / 4; i += lanes)
        query[i] = query_of(i / (head_dim / 4), i % (head_dim / 4));
    prepare_levels();
    barrier();
}

// Returns the position of an invocation's key number i in the batch that begins at `first`.
uint key_of(uint first, uint i) { return first + i * lanes + gl_LocalInvocationID.x; }

// Returns the number of a key's vector; `first` is the first of its batch.
uint vector_of(uint key, uint first) { return vector_near(key, PAGE % batch == 0 ? first : key); }

// s[i * rows + r] = query[r] . key i, if key i is visible to the row
void score(uint first, uint end, inout float s[scored]) {
    vec4 sums[scored];
    for (uint i = 0; i < scored; i++) sums[i] = vec4(0.0);
    for (uint b = 0; b < head_dim / 32; b++) {
        vec4 k[keys * 8];
        for (uint i = 0; i < keys; i++) {
            vec4 k_of[8];
            load32(k_type, p.k_codes, p.k_scales, vector_of(min(key_of(first, i), end - 1), first), b, k_of);
            for (uint j = 0; j < 8; j++) k[i * 8 + j] = k_of[j];
        }
        for (uint r = 0; r < rows; r++)
            for (uint j = 0; j < 8; j++) {
                const vec4 of_row = query[r * (head_dim / 4) + b * 8 + j];
                for (uint i = 0; i < keys; i++) sums[i * rows + r] += of_row * k[i * 8 + j];
            }
    }
    for (uint i = 0; i < keys; i++) {
        const uint key = key_of(first, i);
        const vec4 by = scales_of(k_type, p.k_scales, vector_of(min(key, end - 1), first));
        for (uint r = 0; r < rows; r++) {
            const float sum = score_of(sums[i * rows + r], by) + page_score(r, min(key, end - 1));
            if (is_seen(seen_keys(r, end), key)) s[i * rows + r] = sum;
        }
    }
}

// row_max[r] = the greatest score of row r so far, row_scale[r] = the factor that rescales the earlier sums.
#ifdef SUBGROUP
float row_max[rows], row_scale[rows];
const uint subgroups = lanes < subgroup ? 1 : lanes / subgroup;
shared float subgroup_max[rows * subgroups];
void begin_maxima() {
    for (uint r = 0; r < rows; r++) row_max[r] = masked;
}
void update_maxima(float s[scored]) {
    for (uint r = 0; r < rows; r++) {
        float m = s[r];
        for (uint i = 1; i < keys; i++) m = max(m, s[i * rows + r]);
        m = subgroupMax(m);
        if (subgroupElect()) subgroup_max[r * subgroups + gl_LocalInvocationID.x / subgroup] = m;
    }
    barrier();
    for (uint r = 0; r < rows; r++) {
        float m = row_max[r];
        for (uint i = 0; i < subgroups; i++) m = max(m, subgroup_max[r * subgroups + i]);
        row_scale[r] = exp(row_max[r] - m);
        row_max[r] = m;
    }
}
#else
shared float row_max[rows];
shared float row_scale[rows];
void begin_maxima() {
    for (uint r = gl_LocalInvocationID.x; r < rows; r += lanes) row_max[r] = masked;
}
void update_maxima(float s[scored]) {
    for (uint i = 0; i < keys; i++)
        for (uint r = 0; r < rows; r++) scores[r * batch + key_of(0, i)] = s[i * rows + r];
    barrier();
    for (uint r = gl_LocalInvocationID.x; r < rows; r += lanes) {
        float m = row_max[r];
        for (uint i = 0; i < batch; i++) m = max(m, scores[r * batch + i]);
        row_scale[r] = exp(row_max[r] - m);
        row_max[r] = m;
    }
    barrier();
}
#endif

// turn(): an invocation's turn; share(): its channels. Separate, so that drivers see which is the same for all lanes.
uint turn() { return turns == 1 ? 0 : gl_LocalInvocationID.x / sharers; }
uint share() { return turns == 1 ? gl_LocalInvocationID.x : gl_LocalInvocationID.x % sharers; }

// Loops over an invocation's arrays have one exit and contain no long loop, so that drivers unroll them: an array with an index
// that is unknown at compile time is kept in slow memory.
void main() {
    if (!find_tile()) return;
    const uint lane = gl_LocalInvocationID.x, begin = key_range().x, end = key_range().y;
    if (!is_read(begin)) return;

    vec4 acc[acc_size]; // [row][chunk][2]: sums of values by their weights
    float l[rows];
    for (uint i = 0; i < acc_size; i++) acc[i] = vec4(0.0);
    for (uint r = 0; r < rows; r++) l[r] = 0.0;
    begin_maxima();
    load_queries();

    for (uint first = begin; first < end; first += batch) {
        float s[scored];
        for (uint i = 0; i < scored; i++) s[i] = masked;
        if (key_of(first, 0) < end) score(first, end, s);
        update_maxima(s);
        for (uint i = 0; i < keys; i++) {
            const uint key = key_of(first, i);
            const float by = scales_of(v_type, p.v_scales, vector_of(min(key, end - 1), first)).x;
            for (uint r = 0; r < rows; r++) {
                const float weight = s[i * rows + r] == masked ? 0.0 : exp(s[i * rows + r] - row_max[r]);
                l[r] = (i == 0 ? l[r] * row_scale[r] : l[r]) + weight;
                scores[r * batch + key - first] = weight == 0.0 ? 0.0 : weight * by;
            }
        }
        barrier();

        for (uint r = 0; r < rows; r++)
            for (uint i = 0; i < 2 * chunks; i++) acc[r * 2 * chunks + i] *= row_scale[r];
        const uint count = min(batch, end - first);
        for (uint t = turn(); t < count; t += turns)
            for (uint c = 0; c < chunks; c++) {
                float v[8];
                load_channels(v_type, p.v_codes, p.v_scales, vector_of(first + t, first), (c * sharers + share()) * 8, 8, v);
                for (uint r = 0; r < rows; r++)
                    for (uint i = 0; i < 2; i++)
                        acc[(r * chunks + c) * 2 + i] += scores[r * batch + t] * vec4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
            }
        barrier();
    }

    // Turn 0 adds the other turns' results to its own. The loop must not be unrolled, since its code is long.
    if (turns > 1)
        [[dont_unroll]] for (uint other = 1; other < turns; other++) {
            barrier();
            if (turn() == other)
                for (uint i = 0; i < acc_size; i++) query[i * sharers + share()] = acc[i];
            barrier();
            if (turn() == 0)
                for (uint i = 0; i < acc_size; i++) acc[i] += query[i * sharers + share()];
        }
    for (uint r = 0; r < rows; r++) scores[r * lanes + lane] = l[r];
    barrier();
    for (uint r = 0; r < rows; r++) {
        if (row_token(r) >= end_token) continue;
        if (turn() == 0)
            for (uint i = 0; i < 2 * chunks; i++)
                for (uint c = 0; c < 4; c++)
                    partials[partial_of(r) + (i / 2 * sharers + share()) * 8 + i % 2 * 4 + c] = acc[r * 2 * chunks + i][c];
        if (lane == 0) partials[partial_of(r) + partial_size - 2] = row_max[r];
    }
    for (uint r = lane; r < rows; r += lanes) {
        if (row_token(r) >= end_token) break;
        float sum = 0.0;
        for (uint i = 0; i < lanes; i++) sum += scores[r * lanes + i];
        partials[partial_of(r) + partial_size - 1] = sum;
    }
}
