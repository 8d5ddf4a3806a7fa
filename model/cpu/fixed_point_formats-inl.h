// Blocks of 256 weights of each format, for the instruction set in whose namespace this is included; its vectors are Ints, 64
// bytes, and Floats, 16 numbers. levels(block, v): the levels of columns 64 v .. 64 v + 63 as unsigned bytes. scales(block): a
// lane for each run of 16 columns. Levels are less than 2^level_bits. A weight is scale * (level - 2^offset_bits), or scale *
// level + minimum if the format has minimums. Block layouts: model/files/formats/blocks.cpp and blocks_k.cpp. Lanes stand for
// runs in the order of runs(): 0, 4, 8, 12, 1, ... This is what transpose() leaves when it turns four vectors of 64 consecutive
// levels into four steps, each with four columns of every run, as dot products of bytes take them. Scales are made in that order.
// Levels are unsigned because dot products of bytes multiply unsigned by signed numbers; the offset that makes them signed,
// 2^offset_bits times the sum of the activations' digits, is subtracted once for each run (factors of fixed_point.h).

struct Scales {
    Floats scale, minimum; // minimum: if has_minimum
};

// Makes zeros of the scales after the first `cols` columns.
HWY_INLINE void keep_columns(Scales& scales, size_t cols) {
    scales.scale = first_runs(scales.scale, cols / 16);
    scales.minimum = first_runs(scales.minimum, cols / 16);
}

HWY_INLINE __m256 negative(__m256 v) { return _mm256_sub_ps(_mm256_setzero_ps(), v); }

template <size_t block_bytes, int bits> struct BlocksOf32 {
    static constexpr size_t bytes_of_256 = 8 * block_bytes;
    static constexpr int level_bits = bits;
};

template <size_t block_bytes, int bits> struct ScaledBlocks : BlocksOf32<block_bytes, bits> {
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = bits - 1;
    static HWY_INLINE Scales scales(const uint8_t* block) { return {pairs_of_runs(eight_fp16<block_bytes>(block)), no_floats()}; }
};

template <size_t block_bytes, int bits> struct ScaledBlocksWithMinimum : BlocksOf32<block_bytes, bits> {
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {pairs_of_runs(eight_fp16<block_bytes>(block)), pairs_of_runs(eight_fp16<block_bytes>(block + 2))};
    }
};

struct Q8_0 : ScaledBlocks<34, 8> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        return exclusive_or(two_of_32(block + 68 * v + 2, block + 68 * v + 36), bytes(0x80));
    }
};

// Blocks of 32 weights with 16 bytes of nibbles, the low ones first: those of the first block are at `at`.
template <class Format, size_t at, size_t stride> struct Nibbles {
    static constexpr size_t nibbles_at = at, nibbles_stride = stride;
    static HWY_INLINE Ints of_nibbles(Ints nibbles) { return nibbles; } // unless Format has its own
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const uint8_t* const p = block + at + 2 * v * stride;
        return Format::of_nibbles(nibbles_of_16(p, p + stride));
    }
};

struct Q4_0 : ScaledBlocks<18, 4>, Nibbles<Q4_0, 2, 18> {};

struct Q4_1 : ScaledBlocksWithMinimum<20, 4>, Nibbles<Q4_1, 4, 20> {};

// Unpacks two blocks at p and p + stride that have 32 fifth bits and 16 bytes of nibbles.
template <size_t stride> HWY_INLINE Ints five_bits(const uint8_t* p) {
    uint32_t fifth[2];
    std::memcpy(&fifth[0], p, 4);
    std::memcpy(&fifth[1], p + stride, 4);
    return add_where(nibbles_of_16(p + 4, p + stride + 4), fifth[0], fifth[1], 16);
}

struct Q5_0 : ScaledBlocks<22, 5> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return five_bits<22>(block + 44 * v + 2); }
};

struct Q5_1 : ScaledBlocksWithMinimum<24, 5> {
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return five_bits<24>(block + 48 * v + 4); }
};

HWY_INLINE Ints iq4_levels_of(Ints nibbles) {
    return in_table(nibbles, _mm_setr_epi32(int(IQ4_LEVELS_0), int(IQ4_LEVELS_1), int(IQ4_LEVELS_2), int(IQ4_LEVELS_3)), 128);
}

struct IQ4_NL : ScaledBlocks<18, 8>, Nibbles<IQ4_NL, 2, 18> {
    static HWY_INLINE Ints of_nibbles(Ints nibbles) { return iq4_levels_of(nibbles); }
};

HWY_INLINE Ints mxfp4_levels_of(Ints nibbles) {
    return in_table(nibbles, _mm_setr_epi32(int(MXFP4_LEVELS_0), int(MXFP4_LEVELS_1), int(MXFP4_LEVELS_2), int(MXFP4_LEVELS_3)),
                    128);
}

struct MXFP4 : BlocksOf32<17, 8>, Nibbles<MXFP4, 1, 17> {
    static HWY_INLINE Ints of_nibbles(Ints nibbles) { return mxfp4_levels_of(nibbles); }
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 7;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {pairs_of_runs(mxfp4_scales(eight_bytes<17>(block))), no_floats()};
    }
};

struct NVFP4 {
    static constexpr size_t bytes_of_256 = 144;
    static constexpr int level_bits = 8;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 7;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const auto of_64 = [&](size_t i) { return word_at(block + 36 * i); }; // four scales
        const __m128i d = in_run_order(four_words(of_64, 0));
        return {joined(nvfp4_scales(d), nvfp4_scales(_mm_srli_si128(d, 8))), no_floats()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        return mxfp4_levels_of(nibbles_of_eights(block + 36 * v + 4));
    }
};

// Eight scales and eight minimums of six bits, as one vector of 16 bytes: words 0 and 2 are those of the first four sub-blocks, 1
// and 3 those of the others, whose low nibbles and high pairs come from different words. Low nibbles are shifted by lane, pairs
// all alike.
struct SixBitScales {
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const __m128i packed = load_16(block); // d and dmin, then the words a, b, c
        const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(3, 2, 3, 1)), _mm_setr_epi32(0, 0, 0, 4));
        const __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(2, 2, 1, 1)), 2);
        const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)),
                                         _mm_and_si128(high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030)));
        const __m128 d = _mm_cvtph_ps(packed);
        const __m256 scale = _mm256_mul_ps(to_floats(six), _mm256_broadcastss_ps(d));
        const __m256 minus = _mm256_mul_ps(to_floats(_mm_srli_si128(six, 8)), _mm256_broadcastss_ps(_mm_movehdup_ps(d)));
        return {pairs_of_runs(scale), pairs_of_runs(negative(minus))};
    }
};

struct Q4_K : SixBitScales {
    static constexpr size_t bytes_of_256 = 144;
    static constexpr int level_bits = 4;
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return nibbles_of_32(block + 16 + 32 * v); }
};

struct Q5_K : SixBitScales {
    static constexpr size_t bytes_of_256 = 176;
    static constexpr int level_bits = 5;
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const int left = 4 - 2 * int(v); // moves bit 2 v or 2 v + 1 of each byte to bit 4
        return with_bits(nibbles_of_32(block + 48 + 32 * v), shift_left(twice_32(block + 16), left, left - 1), 16);
    }
};

struct Q6_K {
    static constexpr size_t bytes_of_256 = 210;
    static constexpr int level_bits = 6;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 5;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {signed_times(in_run_order(load_16(block + 192)), half_at(block + 208)), no_floats()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints q = load_64(block + 64 * (v / 2)), nibbles = low_bits(v % 2 == 0 ? q : shift_right(q, 4, 4), 4);
        const int left = v % 2 == 0 ? 4 : 0;
        return with_bits(nibbles, shift_left(twice_32(block + 128 + 32 * (v / 2)), left, left - 2), 48);
    }
};

// Unpacks 64 bit pairs of half a block of Q2_K or Q3_K, four runs in the same 32 bytes: the first two or the last two.
HWY_INLINE Ints pairs_of_32(const uint8_t* p, size_t v) {
    const int right = v % 2 == 0 ? 0 : 4;
    return low_bits(shift_right(twice_32(p), right, right + 2), 2);
}

struct Q2_K {
    static constexpr size_t bytes_of_256 = 84;
    static constexpr int level_bits = 2;
    static constexpr bool has_minimum = true;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const __m128i both = in_run_order(load_16(block)), fifteen = _mm_set1_epi8(15);
        return {unsigned_times(_mm_and_si128(both, fifteen), half_at(block + 80)),
                unsigned_times(_mm_and_si128(_mm_srli_epi16(both, 4), fifteen), -half_at(block + 82))};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return pairs_of_32(block + 16 + 32 * (v / 2), v); }
};

struct Q3_K {
    static constexpr size_t bytes_of_256 = 110;
    static constexpr int level_bits = 3;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 2;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const __m128i packed = _mm_srli_si128(load_16(block + 94), 2); // 12 bytes, without reading beyond the block
        const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(packed, _MM_SHUFFLE(1, 0, 1, 0)), _mm_setr_epi32(0, 0, 4, 4));
        const __m128i words = _mm_shuffle_epi32(packed, _MM_SHUFFLE(2, 2, 2, 2));
        const __m128i high = _mm_or_si128(_mm_sllv_epi32(words, _mm_setr_epi32(4, 2, 0, 32)), // a shift by 32 gives 0
                                          _mm_srlv_epi32(words, _mm_setr_epi32(32, 32, 32, 2)));
        const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), _mm_and_si128(high, _mm_set1_epi8(48)));
        return {signed_times(in_run_order(_mm_sub_epi8(six, _mm_set1_epi8(32))), half_at(block + 108)), no_floats()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const int left = 2 - 2 * int(v); // moves bit 2 v or 2 v + 1 of each byte to bit 2
        return with_bits(pairs_of_32(block + 32 + 32 * (v / 2), v), shift_left(twice_32(block), left, left - 1), 4);
    }
};

struct IQ4_XS : Nibbles<IQ4_XS, 8, 16> {
    static HWY_INLINE Ints of_nibbles(Ints nibbles) { return iq4_levels_of(nibbles); }
    static constexpr size_t bytes_of_256 = 136;
    static constexpr int level_bits = 8;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 7;
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
        return {pairs_of_runs(_mm256_mul_ps(scale, _mm256_set1_ps(half_at(block)))), no_floats()};
    }
};

#include "model/cpu/fixed_point_grids-inl.h"

// A format of model/files/formats/blocks_iq.h.
// Levels come from a table by index, eight at a time, and not by columns: such a format gives them in the order of products
// (steps_of()).
template <class Blocks> struct GridBlocks {
    static constexpr size_t bytes_of_256 = Blocks::bytes;
    static constexpr int level_bits = Blocks::offset == 128 ? 8 : 5;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = level_bits - 1;
    static const std::byte* from(const uint8_t* block) { return reinterpret_cast<const std::byte*>(block); }
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {scales_of(Blocks{}, block, Blocks::scale(Blocks::d(from(block)), 1)), no_floats()};
    }
    static HWY_INLINE void steps_of(Ints (&to)[steps], const uint8_t* block) { steps_of_grid<Blocks>(to, block); }
};

template <class Format>
concept HasNibbles = requires { Format::nibbles_at; };

// A format that gives its levels in steps.
template <class Format>
concept HasSteps = requires(Ints (&to)[steps], const uint8_t* block) { Format::steps_of(to, block); };

struct TQ2_0 {
    static constexpr size_t bytes_of_256 = 66;
    static constexpr int level_bits = 2;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 0;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        return {unsigned_times(_mm_set1_epi8(1), half_at(block + 64)), no_floats()};
    }
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) { return pairs_of_32(block + 32 * (v / 2), v); }
};

// A lane's run is in the block of 64 weights whose number is the lane's modulo 4.
struct Q2_0 {
    static constexpr size_t bytes_of_256 = 72;
    static constexpr int level_bits = 2;
    static constexpr bool has_minimum = false;
    static constexpr int offset_bits = 0;
    static HWY_INLINE Scales scales(const uint8_t* block) {
        const auto of_64 = [&](size_t i) { return word_at(block + 18 * i); };
        const __m128i d = _mm_and_si128(four_words(of_64, 0), _mm_set1_epi32(0xffff));
        const __m256 twice = _mm256_cvtph_ps(_mm_packus_epi32(d, d));
        return {joined(twice, twice), no_floats()};
    }
    // The pairs of a byte move to four bytes of a word: by 0, 6, 12 and 18 bits.
    static HWY_INLINE Ints levels(const uint8_t* block, size_t v) {
        const Ints one = words_of_bytes(load_16(block + 18 * v + 2)), two = with_bits(one, shift_left(one, 12, 12), 255);
        return low_bits(with_bits(two, shift_left(two, 6, 6), 255), 2);
    }
};

// Each instruction set defines its vectors, and then includes this.
namespace {

// Adds the sums over the first `cols` columns of group i, for `count` tokens from `first` on, to total[tokens]; blocks[dots_rows]
// are those of the rows.
template <class Format> void add_blocks(Floats (*total)[dots_rows], const uint8_t* const (&blocks)[dots_rows],
                                        const FixedPoint& x, size_t i, size_t first, size_t count, size_t cols);
// sums[dots_rows] = the sums of the lanes of each.
void store_total(float* sums, const Floats (&v)[dots_rows]);

} // namespace

template <class Format>
void dots(float* sums, const uint8_t* const* rows, const uint8_t* end, const FixedPoint& x, size_t first, size_t count) {
    Floats total[max_fixed_point_tokens][dots_rows];
    for (size_t t = 0; t < count; t++)
        for (Floats& of_row : total[t]) of_row = no_floats();
    const size_t whole = x.cols / group, row_bytes = whole * Format::bytes_of_256;
    for (size_t i = 0; i < whole; i++) {
        const uint8_t* blocks[dots_rows];
        HWY_UNROLL(4)
        for (size_t r = 0; r < dots_rows; r++) {
            blocks[r] = rows[r] + i * Format::bytes_of_256;
            prefetch<Format::bytes_of_256>(blocks[r], prefetched_rows * row_bytes);
        }
        add_blocks<Format>(total, blocks, x, i, first, count, group);
    }
    if (const size_t cols = x.cols % group; cols != 0) {
        const RowEnds<Format> ends(rows, row_bytes, cols, end);
        add_blocks<Format>(total, ends.blocks, x, whole, first, count, cols);
    }
    for (size_t t = 0; t < count; t++) store_total(sums + t * dots_rows, total[t]);
}

// Returns nullptr if a format has no integer kernel: its products use vectors of fp32.
Dots* dots_for(GgmlType type) {
    switch (type) {
    case GgmlType::Q8_0: return dots<Q8_0>;
    case GgmlType::Q4_0: return dots<Q4_0>;
    case GgmlType::Q4_1: return dots<Q4_1>;
    case GgmlType::Q5_0: return dots<Q5_0>;
    case GgmlType::Q5_1: return dots<Q5_1>;
    case GgmlType::Q2_K: return dots<Q2_K>;
    case GgmlType::Q3_K: return dots<Q3_K>;
    case GgmlType::Q4_K: return dots<Q4_K>;
    case GgmlType::Q5_K: return dots<Q5_K>;
    case GgmlType::Q6_K: return dots<Q6_K>;
    case GgmlType::IQ1_S: return dots<GridBlocks<Iq1S>>;
    case GgmlType::IQ1_M: return dots<GridBlocks<Iq1M>>;
    case GgmlType::IQ2_XXS: return dots<GridBlocks<Iq2Xxs>>;
    case GgmlType::IQ2_XS: return dots<GridBlocks<Iq2Xs>>;
    case GgmlType::IQ2_S: return dots<GridBlocks<Iq2S>>;
    case GgmlType::IQ3_XXS: return dots<GridBlocks<Iq3Xxs>>;
    case GgmlType::IQ3_S: return dots<GridBlocks<Iq3S>>;
    case GgmlType::TQ2_0: return dots<TQ2_0>;
    case GgmlType::IQ4_NL: return dots<IQ4_NL>;
    case GgmlType::IQ4_XS: return dots<IQ4_XS>;
    case GgmlType::MXFP4: return dots<MXFP4>;
    case GgmlType::NVFP4: return dots<NVFP4>;
    case GgmlType::Q2_0: return dots<Q2_0>;
    default: return nullptr;
    }
}
