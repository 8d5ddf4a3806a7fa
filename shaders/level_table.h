// The number of levels of a type (kv_types.h) that kernels of attention look up in shared memory, one text for GLSL and C++: two
// operations a value instead of nine. 0: they are computed.
#define TABLE_LEVELS(type)                                                                                                       \
    (KV_FAMILY(type) != KV_TURBOQUANT ? 0u                                                                                       \
     : KV_BITS(type) > 4u             ? 0u                                                                                       \
     : KV_UNEQUAL(type) != 0u         ? KV_QUARTER_CODES(KV_BITS(type))                                                          \
     : KV_TRELLIS(type) != 0u         ? 32u                                                                                      \
                                      : 16u)
