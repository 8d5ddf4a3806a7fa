// One head vector of `head_dim` channels in shared memory and the fixed-order operations on it that the codec's bytes depend on
// (model/kv/turboquant.md): every addition and multiplication is `precise`, every order is written out.
#include "rms.glsl"

shared float channel[head_dim];
shared float terms[head_dim];

bool sign_of(uint signs[8], uint i) { return ((signs[i >> 5] >> (i & 31)) & 1) != 0; }

// terms[0] = the sum of terms[], by terms[i] += terms[i + s] for s = head_dim / 2 ... 1. Ends with a barrier.
void sum_terms() {
    for (uint s = head_dim / 2; s > 0; s >>= 1) {
        barrier();
        for (uint i = gl_LocalInvocationID.x; i < s; i += gl_WorkGroupSize.x) {
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
        for (uint pair = gl_LocalInvocationID.x; pair < head_dim / 2; pair += gl_WorkGroupSize.x) {
            const uint i = (pair & ~(stride - 1)) * 2 + (pair & (stride - 1));
            const float u = channel[i], w = channel[i + stride];
            precise float sum = u + w, difference = u - w;
            channel[i] = sum;
            channel[i + stride] = difference;
        }
    }
    barrier();
}

// channel = RoPE(w * channel / rms(channel)) at rotary position `at`, pairs (i, i + head_dim / 2). Starts and ends with a barrier.
#define NORM_AND_ROPE(weight, eps, at)                                                                                          \
    barrier();                                                                                                                  \
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) {                                              \
        precise float square = channel[i] * channel[i];                                                                         \
        terms[i] = square;                                                                                                      \
    }                                                                                                                           \
    sum_terms();                                                                                                                \
    precise float mean_square = terms[0] / float(head_dim) + eps;                                                               \
    const float inverse_rms = inverse_rms_of(mean_square);                                                                         \
    for (uint i = gl_LocalInvocationID.x; i < head_dim / 2; i += gl_WorkGroupSize.x) {                                          \
        precise float a = channel[i] * inverse_rms * weight[i];                                                                 \
        precise float b = channel[i + head_dim / 2] * inverse_rms * weight[i + head_dim / 2];                                   \
        const vec2 turn = rope[(at) * (head_dim / 2) + i];                                                                      \
        precise float u = a * turn.x - b * turn.y, w = b * turn.x + a * turn.y;                                                 \
        channel[i] = u;                                                                                                         \
        channel[i + head_dim / 2] = w;                                                                                          \
    }                                                                                                                           \
    barrier()
