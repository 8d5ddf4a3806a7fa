// One head vector of `head_dim` channels, and as many terms of a sum, distributed over the invocations of a workgroup, with the
// operations that exchange numbers between invocations, each in a fixed order. `channel` and `terms` are in shared memory. In a
// subgroup variant (SUBGROUP) the workgroup is one full subgroup of at most head_dim / 2, and every invocation has its own
// channels in registers.
//
// EACH_CHANNEL(i): an invocation's own channels, as OWN(channel, i); EACH_BELOW(i, n): its own channels below n, as
// OWN_AT(channel, i, n); EACH_FROM(i, n): its own from n on. In a subgroup variant n is a multiple of the subgroup. WORD_OF(i): i
// / 32, in a subgroup variant such that drivers see a constant. EACH(i, n): any n things, shared out among the invocations.
// channel_barrier(): needed between a write of a channel or term and its read by another invocation.
#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += workgroup)

#ifdef SUBGROUP
const uint width = workgroup;
float channel[head_dim / width];
float terms[head_dim / width];
#define EACH_OWN(i, from, n)                                                                                                      \
    [[unroll]] for (uint nr_##i = (from) / width, i = (from) + gl_SubgroupInvocationID; nr_##i < (n) / width; nr_##i++, i += width)
#define EACH_CHANNEL(i) EACH_OWN(i, 0, head_dim)
#define EACH_BELOW(i, n) EACH_OWN(i, 0, n)
#define EACH_FROM(i, n) EACH_OWN(i, n, head_dim)
#define OWN(array, i) array[nr_##i]
#define WORD_OF(i) ((nr_##i * width + (width > 32 ? gl_SubgroupInvocationID & ~31u : 0)) / 32)
#define OWN_AT(array, i, distance) array[nr_##i + (distance) / width]
void channel_barrier() {}

// terms[0] of every invocation = the sum of all terms, by terms i += terms i + s for s = head_dim / 2 ... 1. If `last` is 4: the
// sum of the terms i with the same i % 4 as the invocation's number.
void sum_terms(uint last) {
    [[unroll]] for (uint s = head_dim / 2 / width; s > 0; s >>= 1)
        [[unroll]] for (uint i = 0; i < s; i++) {
            precise float sum = terms[i] + terms[i + s];
            terms[i] = sum;
        }
    for (uint s = width / 2; s >= last; s >>= 1) {
        precise float sum = terms[0] + subgroupShuffleXor(terms[0], s);
        terms[0] = sum;
    }
}

// channel = H channel, the unnormalised Hadamard matrix as butterflies of stride `first`, 2 * first, ..., head_dim / 2; first is
// 1, or 4 if channels of another i % 4 are separate.
void hadamard(uint first) {
    for (uint stride = first; stride < width; stride <<= 1) {
        const bool upper = (gl_SubgroupInvocationID & stride) != 0;
        [[unroll]] for (uint i = 0; i < head_dim / width; i++) {
            const float other = subgroupShuffleXor(channel[i], stride);
            precise float sum = channel[i] + other, difference = other - channel[i];
            channel[i] = upper ? difference : sum;
        }
    }
    [[unroll]] for (uint stride = 1; stride < head_dim / width; stride <<= 1)
        [[unroll]] for (uint pair = 0; pair < head_dim / width / 2; pair++) {
            const uint i = (pair & ~(stride - 1)) * 2 + (pair & (stride - 1));
            const float u = channel[i], w = channel[i + stride];
            precise float sum = u + w, difference = u - w;
            channel[i] = sum;
            channel[i + stride] = difference;
        }
}

#else
shared float channel[head_dim];
shared float terms[head_dim];
#define EACH_CHANNEL(i) EACH(i, head_dim)
#define EACH_BELOW(i, n) EACH(i, n)
#define EACH_FROM(i, n) for (uint i = (n) + gl_LocalInvocationID.x; i < head_dim; i += workgroup)
#define OWN(array, i) array[i]
#define WORD_OF(i) (i / 32)
#define OWN_AT(array, i, distance) array[i + (distance)]
void channel_barrier() { barrier(); }

// terms[0] = the sum of terms[], by terms[i] += terms[i + s] for s = head_dim / 2 ... 1. If `last` is 4: terms[q] = the sum of
// the terms with i % 4 = q. Ends with a barrier.
void sum_terms(uint last) {
    for (uint s = head_dim / 2; s >= last; s >>= 1) {
        barrier();
        EACH(i, s) {
            precise float sum = terms[i] + terms[i + s];
            terms[i] = sum;
        }
    }
    barrier();
}

// channel = H channel, the unnormalised Hadamard matrix as butterflies of stride `first`, 2 * first, ..., head_dim / 2; first is
// 1, or 4 if channels of another i % 4 are separate. Ends with a barrier.
void hadamard(uint first) {
    for (uint stride = first; stride < head_dim; stride <<= 1) {
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
#endif
