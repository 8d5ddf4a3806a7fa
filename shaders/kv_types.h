// The number of a KV cache type, one text for GLSL and C++: its properties can be read off it, also in constant expressions.
// bits 0-3 family, 4-7 bits of a code, 8 in blocks, 12 stored rotated, 13 bits unequal by quarters, each with a scale of its own
// (15 was by halves), 14 a code's level depends on the codes before it (a trellis)
#define KV_F32 0u
#define KV_F16 1u
#define KV_BF16 2u
#define KV_TURBOQUANT 3u // one scale per vector, levels by codebook
#define KV_BLOCKS 4u     // ggml's q8_0 and q4_0: one scale per 32 channels

#define KV_BLOCKS_TYPE(bits) (KV_BLOCKS | (bits) << 4 | 1u << 8)
#define KV_TURBOQUANT_TYPE(bits) (KV_TURBOQUANT | (bits) << 4 | 1u << 12)
#define KV_TRELLIS_TYPE(bits) (KV_TURBOQUANT_TYPE(bits) | 1u << 14)
#define KV_UNEQUAL_BIT (1u << 13)
#define KV_UNEQUAL_TYPE(bits) (KV_TURBOQUANT_TYPE(bits) | KV_UNEQUAL_BIT)
#define KV_FAMILY(type) ((type) & 15u)
#define KV_BITS(type) ((type) >> 4 & 15u)
#define KV_TRELLIS(type) ((type) >> 14 & 1u)
#define KV_UNEQUAL(type) ((type) >> 13 & 1u)
#define KV_IS_CODED(type) (KV_FAMILY(type) >= KV_TURBOQUANT) // codes and scales, not plain values

// If bits are unequal: of four neighbouring channels the first has b + 2 bits, the second b - 2, the third b + 1 and the fourth b
// - 1. The codes of all quarters are numbered together; those of a quarter begin at KV_QUARTER_AT.
#define KV_QUARTERS 4u
#define KV_QUARTER_BITS(bits, quarter)                                                                                           \
    ((quarter) == 0u ? (bits) + 2u : (quarter) == 1u ? (bits) - 2u : (quarter) == 2u ? (bits) + 1u : (bits) - 1u)
#define KV_QUARTER_AT(bits, quarter)                                                                                             \
    ((quarter) == 0u ? 0u : (quarter) == 2u ? 4u << (bits) : (quarter) == 3u ? 6u << (bits) : (6u << (bits)) + (1u << (bits)) / 2u)
#define KV_QUARTER_CODES(bits) ((6u << (bits)) + (1u << (bits)) / 2u + (1u << (bits)) / 4u)

// Codes of b bits are stored in one or two planes, one after the other: the low LOW_BITS(b) bits of every code, then the rest. If
// bits are unequal, two places have one number of 2 b bits, the even one's code below the odd one's: its low 2 LOW_BITS(b) bits
// are in the first plane.
#define KV_LOW_BITS(bits) ((bits) == 3u ? 2u : ((bits) & 4u) != 0u ? 4u : (bits)) // glslang folds no || of constants

// The number of 32-bit words of a vector's codes or values, and of its fp16 scales.
#define KV_WORDS(type, head_dim)                                                                                                 \
    (KV_FAMILY(type) == KV_F32 ? (head_dim) : KV_IS_CODED(type) ? (head_dim) / 32u * KV_BITS(type) : (head_dim) / 2u)
#define KV_SCALES(type, head_dim)                                                                                                \
    (KV_FAMILY(type) == KV_TURBOQUANT ? 1u + 3u * KV_UNEQUAL(type) : KV_FAMILY(type) == KV_BLOCKS ? (head_dim) / 32u : 0u)

// KV_HALF_LEVELS: 1 for TurboQuant types whose levels fp16 holds exactly. For these types: KV_PAIR_BITS is the number of bits
// that determine the levels of two neighbouring codes, 0 if they are too many for a table. KV_LEVEL_TABLE_SIZE is the number of
// entries of a table of pairs (if bits are unequal, one for each kind of pair) or of single levels (level_pairs.glsl).
#define KV_HALF_LEVELS(type) (KV_FAMILY(type) != KV_TURBOQUANT ? 0u : KV_BITS(type) > 6u ? 0u : 1u)
#define KV_PAIR_BITS(type) (KV_BITS(type) + KV_TRELLIS(type) > 4u ? 0u : 2u * KV_BITS(type) + 2u * KV_TRELLIS(type))
#define KV_LEVEL_TABLE_SIZE(type)                                                                                                \
    (KV_HALF_LEVELS(type) == 0u      ? 0u                                                                                        \
     : KV_PAIR_BITS(type) != 0u      ? (1u + KV_UNEQUAL(type)) << KV_PAIR_BITS(type)                                              \
     : KV_UNEQUAL(type) != 0u        ? KV_QUARTER_CODES(KV_BITS(type))                                                           \
     : KV_BITS(type) == 6u           ? 64u                                                                                       \
                                     : 32u)

// The first tokens of each page that are kept in fp16 beside their codes. Attention reads those of a sequence's first page.
#define FIRST_TOKENS 2u

// Keys that an invocation of attention_decode scores at a time: with more of them the kernel has more instructions to fetch.
#define DECODE_STEPS 2u

// Scale rules of TurboQuant types, and rotations.
#define SCALE_NORM 0u
#define SCALE_LEAST_SQUARES 1u
#define SCALE_UNBIASED 2u
#define ROTATION_WHT 0u
#define ROTATION_HAAR 1u
#define ROTATION_NONE 2u
#define ROTATION_WHT_QUARTERS 3u // the first, second, third and fourth of four places apart

// The full-precision window: tokens that are kept as fp16 beside their codes. kv_append stores codes or plain values in the
// cache (NONE), or fp16 in the block of the pass's own tokens or in a layer's ring. attention reads all tokens of the cache
// (NONE), all but the window's (EXCLUDED), or the window alone (ONLY). The fp16 numbers are the vector divided by
// WINDOW_INVERSE_UNIT.
#define WINDOW_NONE 0u
#define WINDOW_BLOCK 1u
#define WINDOW_RING 2u
#define WINDOW_EXCLUDED 1u
#define WINDOW_ONLY 2u
#define WINDOW_INVERSE_UNIT 16.0f
