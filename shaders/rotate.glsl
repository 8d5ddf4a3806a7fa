// The fixed-order operations on one head vector that the codec's bytes depend on (model/kv/turboquant.md): every addition and
// multiplication is `precise`, and every order is written out. A kernel that rotates by a dense matrix defines ROTATION_MATRIX,
// its buffer of floats, before it includes this; a subgroup variant does not. The push constants are `p`, with the rotation's
// signs.
#include "rms.glsl"
#include "kv_types.h"
#include "head_vector.glsl"

// Returns exactly 1 / head_dim, which a division may not.
float inverse_head_dim() { return head_dim == 64 ? 0.015625 : head_dim == 128 ? 0.0078125 : 0.00390625; }

// channel = signs * channel, signs one of the push constants' arrays. Each invocation accesses its own channels. A macro:
// drivers copy an array that is passed to a function into slow memory.
#define FLIP(signs) EACH_CHANNEL(i) if (((signs[WORD_OF(i)] >> (i & 31)) & 1) != 0) OWN(channel, i) = -OWN(channel, i)

#ifdef ROTATION_MATRIX
// channel = M^T channel, or M channel when `back`, M the buffer's [head_dim][head_dim]. Starts and ends with a barrier.
void multiply_by_matrix(bool back) {
    barrier();
    EACH(i, head_dim) {
        float y = 0.0;
        for (uint j = 0; j < head_dim; j++) {
            precise float product = ROTATION_MATRIX[back ? i * head_dim + j : j * head_dim + i] * channel[j];
            precise float sum = y + product;
            y = sum;
        }
        terms[i] = y;
    }
    barrier();
    EACH(i, head_dim) channel[i] = terms[i];
    barrier();
}
#endif

// The offset of the scales of values in the buffer that they share with the matrix of a dense rotation.
#define VALUE_SCALES_AT(rotation) ((rotation) == ROTATION_HAAR ? head_dim * head_dim : 0u)

// Bits are unequal by how fast RoPE turns a channel: the slowest matter most. Channels c and c + head_dim / 2 turn equally fast,
// and the more slowly the greater c is. Returns the channel that goes to place i, whose eighth of that half is 3, 0, 2, 1 for
// i % 4 = 0, 1, 2, 3; and the place of channel c.
const uint eighth = head_dim / 8;
uint channel_at(uint i) {
    const uint n = i >> 2, quarter = i & 3, by_speed = (quarter & 1) == 0 ? 3 - quarter / 2 : quarter / 2;
    return n / eighth * (head_dim / 2) + by_speed * eighth + n % eighth;
}
uint place_of(uint c) {
    const uint by_speed = c / eighth & 3, quarter = by_speed >= 2 ? 2 * (3 - by_speed) : 2 * by_speed + 1;
    return (c / (head_dim / 2) * eighth + c % eighth) * 4 + quarter;
}

#ifdef SUBGROUP
shared float placed[head_dim];
#define PLACED placed
#else
#define PLACED terms
#endif
// Moves channel from(i) to i.
#define MOVE_CHANNELS(from)                                                                                                      \
    barrier();                                                                                                                  \
    EACH_CHANNEL(i) PLACED[i] = OWN(channel, i);                                                                                \
    barrier();                                                                                                                  \
    EACH_CHANNEL(i) OWN(channel, i) = PLACED[from(i)];

// channel = R channel. Starts and ends with a barrier if there is a rotation.
void rotate(uint rotation) {
    if (rotation == ROTATION_WHT) {
        FLIP(p.signs);
        hadamard(1);
    }
    if (rotation == ROTATION_WHT_QUARTERS) {
        MOVE_CHANNELS(channel_at)
        FLIP(p.signs);
        hadamard(4);
    }
#ifdef ROTATION_MATRIX
    if (rotation == ROTATION_HAAR) {
        multiply_by_matrix(false);
        // An element that is almost cancelled counts as zero, so that no later square can be denormal.
        EACH_CHANNEL(i) if (((floatBitsToUint(OWN(channel, i)) >> 23) & 255u) < 127u - 39u) OWN(channel, i) = 0.0;
        barrier();
    }
#endif
}

// channel = R^T channel / gain; an invocation may then read the channels that EACH_CHANNEL gives it.
void rotate_back(uint rotation) {
    if (rotation == ROTATION_NONE) return;
    if (rotation == ROTATION_WHT) {
        hadamard(1);
        FLIP(p.signs);
    }
    if (rotation == ROTATION_WHT_QUARTERS) {
        hadamard(4);
        FLIP(p.signs);
        MOVE_CHANNELS(place_of)
    }
#ifdef ROTATION_MATRIX
    if (rotation == ROTATION_HAAR) multiply_by_matrix(true);
#endif
    const float inverse_gain = rotation == ROTATION_HAAR           ? 0.00390625 // 1 / 256
                               : rotation == ROTATION_WHT_QUARTERS ? inverse_head_dim() * 4.0
                                                                   : inverse_head_dim();
    EACH_CHANNEL(i) {
        precise float scaled = OWN(channel, i) * inverse_gain;
        OWN(channel, i) = scaled;
    }
}

// The offset of the factors of a kv head in the buffer of a norm's weights: after these come factors and means, head by head.
#define FACTORS_AT(kv_head) (((kv_head) * 2 + 1) * head_dim)

// channel = channel * factor, for queries.
#define CONDITION_QUERY(weight, kv_head)                                                                                        \
    EACH_CHANNEL(i) {                                                                                                           \
        precise float scaled = OWN(channel, i) * weight[FACTORS_AT(kv_head) + i];                                               \
        OWN(channel, i) = scaled;                                                                                               \
    }

// channel = (channel - mean) * factor, for a key at position `at`, whose page's first position the mean turns with.
#define CONDITION_KEY(weight, kv_head, at)                                                                                      \
    EACH_BELOW(i, rotary / 2) {                                                                                                 \
        const uint mean = FACTORS_AT(kv_head) + head_dim + i;                                                                   \
        const vec2 turn = rope_turn((at) / PAGE * PAGE * (rotary / 2) + i);                                                     \
        precise float u = weight[mean] * turn.x - weight[mean + rotary / 2] * turn.y;                                           \
        precise float w = weight[mean + rotary / 2] * turn.x + weight[mean] * turn.y;                                           \
        precise float a = OWN(channel, i) - u, b = OWN_AT(channel, i, rotary / 2) - w;                                          \
        OWN(channel, i) = a;                                                                                                    \
        OWN_AT(channel, i, rotary / 2) = b;                                                                                     \
    }                                                                                                                           \
    EACH_FROM(i, rotary) {                                                                                                      \
        precise float a = OWN(channel, i) - weight[FACTORS_AT(kv_head) + head_dim + i];                                         \
        OWN(channel, i) = a;                                                                                                    \
    }                                                                                                                           \
    channel_barrier();                                                                                                          \
    CONDITION_QUERY(weight, kv_head)

// channel = RoPE(w * channel / rms(channel)) at rotary position `at`; RoPE(w * channel) if eps is below 0. The first `rotary`
// channels are turned, in pairs (i, i + rotary / 2). Starts and ends with a barrier.
#define NORM_AND_ROPE(weight, eps, at)                                                                                          \
    channel_barrier();                                                                                                          \
    EACH_CHANNEL(i) {                                                                                                           \
        precise float square = OWN(channel, i) * OWN(channel, i);                                                               \
        OWN(terms, i) = square;                                                                                                 \
    }                                                                                                                           \
    sum_terms(1);                                                                                                                \
    precise float mean_square = terms[0] / float(head_dim) + eps;                                                               \
    const float inverse_rms = (eps) < 0.0 ? 1.0 : inverse_rms_of(mean_square);                                                  \
    EACH_BELOW(i, rotary / 2) {                                                                                                 \
        precise float a = OWN(channel, i) * inverse_rms * weight[i];                                                            \
        precise float b = OWN_AT(channel, i, rotary / 2) * inverse_rms * weight[i + rotary / 2];                                \
        const vec2 turn = rope_turn((at) * (rotary / 2) + i);                                                                   \
        precise float u = a * turn.x - b * turn.y, w = b * turn.x + a * turn.y;                                                 \
        OWN(channel, i) = u;                                                                                                    \
        OWN_AT(channel, i, rotary / 2) = w;                                                                                     \
    }                                                                                                                           \
    EACH_FROM(i, rotary) {                                                                                                      \
        precise float normed = OWN(channel, i) * inverse_rms * weight[i];                                                       \
        OWN(channel, i) = normed;                                                                                               \
    }                                                                                                                           \
    channel_barrier()
