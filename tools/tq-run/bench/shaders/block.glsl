// The vectors of one workgroup are contiguous, 32 for each invocation, and neighbouring invocations read neighbouring vectors.
const uint block_vectors = 128 * 32;
#define EACH_VECTOR(i, vectors)                                                                                                  \
    for (uint i = gl_WorkGroupID.x * block_vectors + gl_LocalInvocationID.x,                                                     \
              end = min((gl_WorkGroupID.x + 1) * block_vectors, vectors);                                                        \
         i < end; i += 128)
