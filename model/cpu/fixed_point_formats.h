// Blocks of 256 weights of each format, in AVX-512. levels(block, v): the levels of columns 64 v .. 64 v + 63 as unsigned
// bytes. scales(block): a lane for each run of 16 columns, in run_order(). A weight is scale * (level - 128), or
// scale * level + minimum where the format has minimums. Block layouts: model/formats/blocks.cpp and blocks_k.cpp.
#pragma once
#include "model/cpu/fixed_point.h"
#include "model/cpu/intrinsics.h"
#include "model/formats/block_reader.h"
#include <hwy/base.h>

HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")
namespace tq::cpu::vnni {

using Ints = __m512i; // 64 bytes or 16 numbers
using Floats = __m512;

HWY_INLINE Ints bytes(int value) { return _mm512_set1_epi8(char(value)); }
HWY_INLINE __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
HWY_INLINE __m256i load_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
// Puts a byte for each run of 16 columns into the order of lanes.
HWY_INLINE __m128i in_run_order(__m128i v) {
    return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}
HWY_INLINE Ints load_64(const uint8_t* p) { return _mm512_loadu_si512(p); }

// Returns a vector with one number in its lower half and another in its upper half.
HWY_INLINE Ints halves(int lower, int upper) { return _mm512_inserti64x4(_mm512_set1_epi32(lower), _mm256_set1_epi32(upper), 1); }

// Returns v with the bits of `mask` in h added.
HWY_INLINE Ints with_bits(Ints v, Ints h, int mask) { return _mm512_ternarylogic_epi32(v, h, bytes(mask), 0xf8); }

// Unpacks 32 bytes of nibbles: the low ones, then the high ones.
HWY_INLINE Ints nibbles_of_32(const uint8_t* p) {
    return _mm512_and_si512(_mm512_srlv_epi32(_mm512_broadcast_i64x4(load_32(p)), halves(0, 4)), bytes(15));
}

// Unpacks 16 bytes of nibbles, the low ones, then the high ones, and 16 others in the same way.
HWY_INLINE Ints nibbles_of_16(const uint8_t* p, const uint8_t* q) {
    const Ints both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(p)), 0xff00, load_16(q));
    const Ints shifts = _mm512_broadcast_i64x4(_mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm512_and_si512(_mm512_srlv_epi32(both, shifts), bytes(15));
}

// Looks up levels in a table of 16 signed bytes, and adds `offset`.
HWY_INLINE Ints in_table(Ints nibbles, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, int offset) {
    const __m128i table = _mm_setr_epi32(int(w0), int(w1), int(w2), int(w3));
    return _mm512_shuffle_epi8(_mm512_add_epi8(_mm512_broadcast_i32x4(table), bytes(offset)), nibbles);
}

// Runs of 16 columns, 16 of them in a block of 256, are in lanes in the order in which transpose() leaves them: lane l has
// run 4 (l % 4) + l / 4.
HWY_INLINE Ints run_order() { return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); }

// Turns vectors of consecutive bytes into steps of four columns: step s has columns 4 s .. 4 s + 3 of every run.
HWY_INLINE void transpose(Ints (&steps)[4], const Ints (&v)[4]) {
    const Ints low01 = _mm512_unpacklo_epi32(v[0], v[1]), high01 = _mm512_unpackhi_epi32(v[0], v[1]);
    const Ints low23 = _mm512_unpacklo_epi32(v[2], v[3]), high23 = _mm512_unpackhi_epi32(v[2], v[3]);
    steps[0] = _mm512_unpacklo_epi64(low01, low23);
    steps[1] = _mm512_unpackhi_epi64(low01, low23);
    steps[2] = _mm512_unpacklo_epi64(high01, high23);
    steps[3] = _mm512_unpackhi_epi64(high01, high23);
}

// Loads the fp16 number at p into all lanes.
HWY_INLINE Floats half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, 2);
    return _mm512_cvtph_ps(_mm256_set1_epi16(short(half)));
}

// Loads the fp16 number at p into eight lanes, and the next into the others.
HWY_INLINE Floats two_halves_at(const uint8_t* p) {
    int both;
    std::memcpy(&both, p, 4);
    return _mm512_permutexvar_ps(halves(0, 1), _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(both))));
}

// Loads the fp16 numbers at p, p + stride, ... through integer registers, since a gather takes longer.
template <size_t stride> HWY_INLINE __m256 eight_halves(const uint8_t* p) {
    uint64_t packed[2] = {};
    for (size_t i = 0; i < 8; i++) {
        uint16_t half;
        std::memcpy(&half, p + i * stride, 2);
        packed[i / 4] |= uint64_t(half) << 16 * (i % 4);
    }
    return _mm256_cvtph_ps(_mm_set_epi64x(int64_t(packed[1]), int64_t(packed[0])));
}

// Gives each of eight numbers, of runs of 32 columns, to the two runs of 16; the others of `first` are from its upper half.
HWY_INLINE Floats pairs_of_runs(Floats v, int first = 0) {
    return _mm512_permutexvar_ps(_mm512_add_epi32(_mm512_srli_epi32(run_order(), 1), _mm512_set1_epi32(first)), v);
}

struct Scales {
    Floats scale, minimum; // the latter where has_minimum
};

template <size_t block_bytes> struct BlocksOf32 {
    static constexpr size_t bytes_of_256 = 8 * block_bytes;
    static constexpr bool has_minimum = false;
};

template <size_t block_bytes> struct ScaledBlocks : BlocksOf32<block_bytes> {
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {pairs_of_runs(_mm512_castps256_ps512(eight_halves<block_bytes>(block))), _mm512_setzero_ps()};
    }
};

template <size_t block_bytes> struct ScaledBlocksWithMinimum : BlocksOf32<block_bytes> {
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {pairs_of_runs(_mm512_castps256_ps512(eight_halves<block_bytes>(block))),
                pairs_of_runs(_mm512_castps256_ps512(eight_halves<block_bytes>(block + 2)))};
    }
};

struct Q8_0 : ScaledBlocks<34> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const uint8_t* p = block + 68 * v;
        const Ints both = _mm512_inserti64x4(_mm512_castsi256_si512(load_32(p + 2)), load_32(p + 36), 1);
        return _mm512_xor_si512(both, bytes(0x80));
    }
};

struct Q4_0 : ScaledBlocks<18> {
    static HWY_INLINE Ints packed(const uint8_t* block, size_t v) {
        return nibbles_of_16(block + 36 * v + 2, block + 36 * v + 20);
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return _mm512_add_epi8(packed(block, v), bytes(120)); }
};

struct Q4_1 : ScaledBlocksWithMinimum<20> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        return nibbles_of_16(block + 40 * v + 4, block + 40 * v + 24);
    }
};

// Unpacks two blocks at p and p + stride that have 32 fifth bits and 16 bytes of nibbles.
template <size_t stride> HWY_INLINE Ints five_bits(const uint8_t* p) {
    uint32_t fifth[2];
    std::memcpy(&fifth[0], p, 4);
    std::memcpy(&fifth[1], p + stride, 4);
    const Ints q = nibbles_of_16(p + 4, p + stride + 4);
    return _mm512_mask_add_epi8(q, fifth[0] | uint64_t(fifth[1]) << 32, q, bytes(16));
}

struct Q5_0 : ScaledBlocks<22> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        return _mm512_add_epi8(five_bits<22>(block + 44 * v + 2), bytes(112));
    }
};

struct Q5_1 : ScaledBlocksWithMinimum<24> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return five_bits<24>(block + 48 * v + 4); }
};

struct IQ4_NL : ScaledBlocks<18> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        return in_table(Q4_0::packed(block, v), IQ4_LEVELS_0, IQ4_LEVELS_1, IQ4_LEVELS_2, IQ4_LEVELS_3, 128);
    }
};

struct MXFP4 : BlocksOf32<17> {
    static HWY_INLINE Scales scales(const uint8_t* block) {
        alignas(32) float d[8];
        for (size_t i = 0; i < 8; i++) d[i] = mxfp4_scale(block[17 * i]);
        return {pairs_of_runs(_mm512_castps256_ps512(_mm256_load_ps(d))), _mm512_setzero_ps()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints q = nibbles_of_16(block + 34 * v + 1, block + 34 * v + 18);
        return in_table(q, MXFP4_LEVELS_0, MXFP4_LEVELS_1, MXFP4_LEVELS_2, MXFP4_LEVELS_3, 128);
    }
};

// Eight scales and eight minimums of six bits.
struct SixBitScales {
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const __m128i packed = load_16(block); // d and dmin, then the words a, b, c
        const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(3, 2, 3, 1)), _mm_setr_epi32(0, 0, 0, 4));
        const __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(2, 2, 1, 1)), 2);
        const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)),
                                         _mm_and_si128(high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030)));
        const Floats both = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(six)), two_halves_at(block));
        return {pairs_of_runs(both), pairs_of_runs(_mm512_sub_ps(_mm512_setzero_ps(), both), 8)};
    }
};

struct Q4_K : SixBitScales {
    static constexpr size_t bytes_of_256 = 144;
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return nibbles_of_32(block + 16 + 32 * v); }
};

struct Q5_K : SixBitScales {
    static constexpr size_t bytes_of_256 = 176;
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints fifth = _mm512_broadcast_i64x4(load_32(block + 16));
        const int left = 4 - 2 * int(v); // moves bit 2 v or 2 v + 1 of each byte to bit 4
        return with_bits(nibbles_of_32(block + 48 + 32 * v), _mm512_rolv_epi32(fifth, halves(left & 31, (left - 1) & 31)), 16);
    }
};

struct Q6_K {
    static constexpr size_t bytes_of_256 = 210;
    static constexpr bool has_minimum = false;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const Floats eight_bits = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(in_run_order(load_16(block + 192))));
        return {_mm512_mul_ps(eight_bits, half_at(block + 208)), _mm512_setzero_ps()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints q = load_64(block + 64 * (v / 2)), pairs = _mm512_broadcast_i64x4(load_32(block + 128 + 32 * (v / 2)));
        const Ints nibbles = _mm512_and_si512(v % 2 == 0 ? q : _mm512_srli_epi32(q, 4), bytes(15));
        const Ints high = v % 2 == 0 ? _mm512_sllv_epi32(pairs, halves(4, 2)) : _mm512_srlv_epi32(pairs, halves(0, 2));
        return _mm512_add_epi8(with_bits(nibbles, high, 48), bytes(96));
    }
};

// Unpacks 64 bit pairs of half a block of Q2_K or Q3_K, four runs in the same 32 bytes: the first two or the last two.
HWY_INLINE Ints pairs_of_32(const uint8_t* p, size_t v) {
    const Ints shifts = v % 2 == 0 ? halves(0, 2) : halves(4, 6);
    return _mm512_and_si512(_mm512_srlv_epi32(_mm512_broadcast_i64x4(load_32(p)), shifts), bytes(3));
}

struct Q2_K {
    static constexpr size_t bytes_of_256 = 84;
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const Ints both = _mm512_cvtepu8_epi32(in_run_order(load_16(block)));
        const Floats scale = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15)));
        const Floats minus_minimum = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
        return {_mm512_mul_ps(scale, half_at(block + 80)),
                _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), minus_minimum), half_at(block + 82))};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return pairs_of_32(block + 16 + 32 * (v / 2), v); }
};

struct Q3_K {
    static constexpr size_t bytes_of_256 = 110;
    static constexpr bool has_minimum = false;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const __m128i packed = _mm_srli_si128(load_16(block + 94), 2); // 12 bytes, without reading beyond the block
        const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(1, 0, 1, 0)), _mm_setr_epi32(0, 0, 4, 4));
        const __m128i high = _mm_rolv_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(2, 2, 2, 2)), _mm_setr_epi32(4, 2, 0, 30));
        const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), _mm_and_si128(high, _mm_set1_epi8(48)));
        const Ints scale = _mm512_sub_epi32(_mm512_cvtepu8_epi32(in_run_order(six)), _mm512_set1_epi32(32));
        return {_mm512_mul_ps(_mm512_cvtepi32_ps(scale), half_at(block + 108)), _mm512_setzero_ps()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints third = _mm512_broadcast_i64x4(load_32(block));
        const int left = 2 - 2 * int(v); // moves bit 2 v or 2 v + 1 of each byte to bit 2
        const Ints q = pairs_of_32(block + 32 + 32 * (v / 2), v);
        return _mm512_add_epi8(with_bits(q, _mm512_rolv_epi32(third, halves(left & 31, (left - 1) & 31)), 4), bytes(124));
    }
};

struct IQ4_XS {
    static constexpr size_t bytes_of_256 = 136;
    static constexpr bool has_minimum = false;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        uint16_t high_bits;
        int32_t low_bits;
        std::memcpy(&high_bits, block + 2, 2);
        std::memcpy(&low_bits, block + 4, 4);
        const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(low_bits), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(high_bits << 4), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        const __m256i six =
            _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), _mm256_and_si256(high, _mm256_set1_epi32(48)));
        const __m256 scale = _mm256_cvtepi32_ps(_mm256_sub_epi32(six, _mm256_set1_epi32(32)));
        return {_mm512_mul_ps(pairs_of_runs(_mm512_castps256_ps512(scale)), half_at(block)), _mm512_setzero_ps()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints q = nibbles_of_16(block + 8 + 32 * v, block + 24 + 32 * v);
        return in_table(q, IQ4_LEVELS_0, IQ4_LEVELS_1, IQ4_LEVELS_2, IQ4_LEVELS_3, 128);
    }
};

} // namespace tq::cpu::vnni
HWY_POP_ATTRIBUTES
