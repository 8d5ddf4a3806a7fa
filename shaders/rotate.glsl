// One head vector of `head_dim` channels in shared memory and the fixed-order operations on it that the codec's bytes depend on
// (model/kv/turboquant.md): every addition and multiplication is `precise`, every order is written out. A kernel that rotates by a
// dense matrix defines ROTATION_MATRIX, its buffer of floats, before it includes this.
#include "rms.glsl"
#include "kv_types.h"

shared float channel[head_dim];
shared float terms[head_dim];

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += gl_WorkGroupSize.x)

bool sign_of(uint signs[8], uint i) { return ((signs[i >> 5] >> (i & 31)) & 1) != 0; }

// terms[0] = the sum of terms[], by terms[i] += terms[i + s] for s = head_dim / 2 ... 1. Ends with a barrier.
void sum_terms() {
    for (uint s = head_dim / 2; s > 0; s >>= 1) {
        barrier();
        EACH(i, s) {
            precise float sum = terms[i] + terms[i + s];
            terms[i] = sum;
        }
    }
    barrier();
}

// channel = H channel, the unnormalised Hadamard matrix as butterflies of stride 1, 2, ..., head_dim / 2. Ends with a barrier.
void hadamard() {
    for (uint stride = 1; stride < head_dim; stride <<= 1) {
        barrier();
        EACH(pair, head_dim / 2) {
            const uint i = (pair & ~(stride - 1)) * 2 + (pair & (stride - 1));
            const float u = channel[i], w = channel[i + stride];
            precise float sum = u + w, difference = u - w;
            channel[i] = sum;
            channel[i + stride] = difference;
        }
    }
    barrier();
}

// Exactly 1 / head_dim, which a division need not be.
float inverse_head_dim() { return head_dim == 64 ? 0.015625 : head_dim == 128 ? 0.0078125 : 0.00390625; }

// channel = signs * channel. Each invocation touches its own channels.
void flip(uint signs[8]) {
    EACH(i, head_dim) if (sign_of(signs, i)) channel[i] = -channel[i];
}

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

// channel = R channel. Starts and ends with a barrier where it does anything.
void rotate(uint rotation, uint signs[8]) {
    if (rotation == ROTATION_WHT) {
        flip(signs);
        hadamard();
    } else if (rotation == ROTATION_HAAR) {
        multiply_by_matrix(false);
        // What cancels almost to nothing counts as nothing, so that no later square can be denormal.
        EACH(i, head_dim) if (((floatBitsToUint(channel[i]) >> 23) & 255u) < 127u - 39u) channel[i] = 0.0;
        barrier();
    }
}

// channel = R^T channel / gain; an invocation may then read the channels that EACH gives it.
void rotate_back(uint rotation, uint signs[8]) {
    if (rotation == ROTATION_NONE) return;
    if (rotation == ROTATION_WHT) {
        hadamard();
        flip(signs);
    } else {
        multiply_by_matrix(true);
    }
    const float inverse_gain = rotation == ROTATION_WHT ? inverse_head_dim() : 0.00390625; // 1 / 256
    EACH(i, head_dim) {
        precise float scaled = channel[i] * inverse_gain;
        channel[i] = scaled;
    }
}
#endif

// channel = RoPE(w * channel / rms(channel)) at rotary position `at`, pairs (i, i + head_dim / 2). Starts and ends with a barrier.
#define NORM_AND_ROPE(weight, eps, at)                                                                                          \
    barrier();                                                                                                                  \
    EACH(i, head_dim) {                                                                                                         \
        precise float square = channel[i] * channel[i];                                                                         \
        terms[i] = square;                                                                                                      \
    }                                                                                                                           \
    sum_terms();                                                                                                                \
    precise float mean_square = terms[0] / float(head_dim) + eps;                                                               \
    const float inverse_rms = inverse_rms_of(mean_square);                                                                      \
    EACH(i, head_dim / 2) {                                                                                                     \
        precise float a = channel[i] * inverse_rms * weight[i];                                                                 \
        precise float b = channel[i + head_dim / 2] * inverse_rms * weight[i + head_dim / 2];                                   \
        const vec2 turn = rope[(at) * (head_dim / 2) + i];                                                                      \
        precise float u = a * turn.x - b * turn.y, w = b * turn.x + a * turn.y;                                                 \
        channel[i] = u;                                                                                                         \
        channel[i + head_dim / 2] = w;                                                                                          \
    }                                                                                                                           \
    barrier()
