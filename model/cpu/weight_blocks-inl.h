// Decodes the rows of each weight format to vectors of fp32, directly from the file's blocks, for one target. The values are
// those of decode_row, bit for bit: products of scales and levels are exact, and a fused multiply-subtract rounds only once.
#if defined(TQ_CPU_WEIGHT_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_WEIGHT_BLOCKS_INL_H
#undef TQ_CPU_WEIGHT_BLOCKS_INL_H
#else
#define TQ_CPU_WEIGHT_BLOCKS_INL_H
#endif

#include "model/cpu/weight_blocks_iq-inl.h"
#include "model/cpu/weight_blocks_k-inl.h"
#include "model/cpu/weight_levels-inl.h"
#include "model/files/formats/blocks.h"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Each function passes a row to use(at0, w0, at1, w1): vectors w0 and w1 of the elements from at0 and at1 on. A function that
// does nothing else passes to a copy of `use`, so that its sums stay in registers; a reference may be in memory.

// The pattern of all formats: a decoder walks a row and hands each pair of vectors to `use`, which multiplies or stores. So a
// decoder is written once and inlined into each kernel. Two vectors at a time, from two places, because a byte's low and high
// nibbles belong to columns that lie apart.
template <class Use> HWY_INLINE void each_f32(const uint8_t* row, size_t cols, Use& use) {
    Use copy = use;
    for (size_t at = 0; at < cols; at += 2 * lanes) {
        const float* p = reinterpret_cast<const float*>(row) + at;
        copy(at, hn::LoadU(F(), p), at + lanes, hn::LoadU(F(), p + lanes));
    }
    use = copy;
}

template <class Use> HWY_INLINE void each_f16(const uint8_t* row, size_t cols, Use& use) {
    Use copy = use;
    for (size_t at = 0; at < cols; at += 32)
        for (size_t k = at; k < at + 32; k += 2 * lanes)
            copy(k, load_fp16(row + 2 * k), k + lanes, load_fp16(row + 2 * (k + lanes)));
    use = copy;
}

template <class Use> HWY_INLINE void each_bf16(const uint8_t* row, size_t cols, Use& use) {
    Use copy = use;
    for (size_t at = 0; at < cols; at += 32)
        for (size_t k = at; k < at + 32; k += 2 * lanes)
            copy(k, load_bf16(row + 2 * k), k + lanes, load_bf16(row + 2 * (k + lanes)));
    use = copy;
}

// Calls block(at, bytes, d) for each block of 32 elements, or of `elements`, which begins with fp16 numbers: d[0] is the first,
// and d[16] the second if `numbers` is 2.
template <size_t block_bytes, size_t numbers, size_t elements = 32, class Block>
HWY_INLINE void each_block(const uint8_t* row, size_t cols, const Block& block) {
    HWY_ALIGN float d[numbers * 16];
    for (size_t at = 0, i = 0; at < cols; at += elements, i = (i + 1) % 16, row += block_bytes) {
        for (size_t n = 0; i == 0 && n < numbers; n++)
            gather_fp16(d + 16 * n, row + 2 * n, block_bytes, std::min<size_t>(16, (cols - at) / elements));
        block(at, row, d + i);
    }
}

template <class Use> HWY_INLINE void each_q8_0(const uint8_t* row, size_t cols, Use& use) {
    each_block<34, 1>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        use_levels<32>(use, at, reinterpret_cast<const int8_t*>(block + 2), 32, d);
    });
}

// Passes the nibbles of a block: low ones are elements 0 .. 15, high ones 16 .. 31.
template <class Use> HWY_INLINE void use_nibbles(Use& use, size_t at, const uint8_t* from, const Nibbles& nibbles) {
    for (size_t k = 0; k < 16; k += lanes) {
        const auto q = load_bytes(from + k);
        use(at + k, nibbles.low(q), at + 16 + k, nibbles.high(q));
    }
}

template <class Use> HWY_INLINE void each_q4_0(const uint8_t* row, size_t cols, Use& use) {
    each_block<18, 1>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        use_nibbles(use, at, block + 2, Nibbles::less_eight(d[0]));
    });
}

template <class Use> HWY_INLINE void each_q4_1(const uint8_t* row, size_t cols, Use& use) {
    each_block<20, 2>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        use_nibbles(use, at, block + 4, Nibbles(d[0], -d[16]));
    });
}

// levels[32] = 16 bytes of nibbles with the 32 fifth bits before them.
// The fifth bits are loaded as a mask of 16 lanes each, so that no shift by lane is needed.
HWY_INLINE void load_five_bits(uint8_t* HWY_RESTRICT levels, const uint8_t* HWY_RESTRICT from) {
    const hn::FixedTag<uint8_t, 16> d;
    const auto q = hn::LoadU(d, from + 4), fifth = hn::Set(d, 16);
    hn::Store(hn::Or(low_bits(q, 4), hn::IfThenElseZero(hn::LoadMaskBits(d, from), fifth)), d, levels);
    hn::Store(hn::Or(hn::ShiftRight<4>(q), hn::IfThenElseZero(hn::LoadMaskBits(d, from + 2), fifth)), d, levels + 16);
}

template <class Use> HWY_INLINE void each_q5_0(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN uint8_t levels[32];
    each_block<22, 1>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        const float minimum = 16 * d[0];
        load_five_bits(levels, block + 2);
        use_levels<32>(use, at, levels, 32, d, &minimum);
    });
}

template <class Use> HWY_INLINE void each_q5_1(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN uint8_t levels[32];
    each_block<24, 2>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        const float minimum = -d[16];
        load_five_bits(levels, block + 4);
        use_levels<32>(use, at, levels, 32, d, &minimum);
    });
}

// levels[64] = the pairs of bits of 16 bytes, in order. Interleaving bytes, and then pairs of bytes, brings a byte's four pairs
// together.
HWY_INLINE void load_pairs_in_order(uint8_t* HWY_RESTRICT levels, const uint8_t* HWY_RESTRICT from) {
    const hn::FixedTag<uint8_t, 16> d;
    const hn::FixedTag<uint16_t, 8> twos;
    const auto q = hn::LoadU(d, from), p0 = low_bits(q, 2), p1 = low_bits(hn::ShiftRight<2>(q), 2),
               p2 = low_bits(hn::ShiftRight<4>(q), 2), p3 = hn::ShiftRight<6>(q);
    const auto low01 = hn::BitCast(twos, hn::InterleaveLower(d, p0, p1)),
               low23 = hn::BitCast(twos, hn::InterleaveLower(d, p2, p3)),
               high01 = hn::BitCast(twos, hn::InterleaveUpper(d, p0, p1)),
               high23 = hn::BitCast(twos, hn::InterleaveUpper(d, p2, p3));
    hn::Store(hn::BitCast(d, hn::InterleaveLower(twos, low01, low23)), d, levels);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(twos, low01, low23)), d, levels + 16);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(twos, high01, high23)), d, levels + 32);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(twos, high01, high23)), d, levels + 48);
}

template <class Use> HWY_INLINE void each_q2_0(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN uint8_t levels[64];
    each_block<18, 1, 64>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        load_pairs_in_order(levels, block + 2);
        use_levels<64>(use, at, levels, 64, d, d);
    });
}

template <class Use> HWY_INLINE void each_iq4_nl(const uint8_t* row, size_t cols, Use& use) {
    each_block<18, 1>(row, cols, [&](size_t at, const uint8_t* block, const float* d) HWY_ATTR {
        use_table(use, at, block + 2, iq4_levels, d[0]);
    });
}

template <class Use> HWY_INLINE void each_mxfp4(const uint8_t* row, size_t cols, Use& use) {
    for (size_t at = 0; at < cols; at += 32, row += 17) use_table(use, at, row + 1, mxfp4_levels, mxfp4_scale(row[0]));
}

// Halves of 8 columns have a scale each and lie in low and high nibbles of 8 bytes; the interleave by 64 bits puts the 32 levels
// in the order of columns.
template <class Use> HWY_INLINE void each_nvfp4(const uint8_t* row, size_t cols, Use& use) {
    const hn::FixedTag<int8_t, 16> d;
    const hn::FixedTag<uint64_t, 2> halves;
    HWY_ALIGN int8_t small[16], levels[32];
    for (size_t i = 0; i < 16; i++) small[i] = int8_t(mxfp4_levels[i]);
    const auto values = hn::Load(d, small);
    for (size_t at = 0; at < cols; at += 32, row += at % 64 == 0 ? 36 : 0) {
        const size_t half = at % 64 / 32;
        const auto q = hn::LoadU(hn::FixedTag<uint8_t, 16>(), row + 4 + 16 * half);
        const auto low = hn::BitCast(halves, hn::TableLookupBytes(values, hn::BitCast(d, low_bits(q, 4)))),
                   high = hn::BitCast(halves, hn::TableLookupBytes(values, hn::BitCast(d, hn::ShiftRight<4>(q))));
        hn::Store(hn::BitCast(d, hn::InterleaveLower(halves, low, high)), d, levels);
        hn::Store(hn::BitCast(d, hn::InterleaveUpper(halves, low, high)), d, levels + 16);
        const float scales[2] = {nvfp4_scale(row[2 * half]), nvfp4_scale(row[2 * half + 1])};
        use_levels<16>(use, at, levels, 32, scales);
    }
}

// Passes a row to `use`. Returns false if there is no fast way: cols is not a multiple of 32, or no matrix has the format.
template <class Use> HWY_INLINE bool each_vector(GgmlType type, const uint8_t* row, size_t cols, Use& use) {
    if (cols % 32 != 0) return false;
    switch (type) {
    case GgmlType::F32: each_f32(row, cols, use); break;
    case GgmlType::F16: each_f16(row, cols, use); break;
    case GgmlType::BF16: each_bf16(row, cols, use); break;
    case GgmlType::Q8_0: each_q8_0(row, cols, use); break;
    case GgmlType::Q4_0: each_q4_0(row, cols, use); break;
    case GgmlType::Q4_1: each_q4_1(row, cols, use); break;
    case GgmlType::Q5_0: each_q5_0(row, cols, use); break;
    case GgmlType::Q5_1: each_q5_1(row, cols, use); break;
    case GgmlType::Q2_K: each_q2_k(row, cols, use); break;
    case GgmlType::Q3_K: each_q3_k(row, cols, use); break;
    case GgmlType::Q4_K: each_q4_k(row, cols, use); break;
    case GgmlType::Q5_K: each_q5_k(row, cols, use); break;
    case GgmlType::Q6_K: each_q6_k(row, cols, use); break;
    case GgmlType::IQ1_S: each_iq<Iq1S>(row, cols, use); break;
    case GgmlType::IQ1_M: each_iq<Iq1M>(row, cols, use); break;
    case GgmlType::IQ2_XXS: each_iq<Iq2Xxs>(row, cols, use); break;
    case GgmlType::IQ2_XS: each_iq<Iq2Xs>(row, cols, use); break;
    case GgmlType::IQ2_S: each_iq<Iq2S>(row, cols, use); break;
    case GgmlType::IQ3_XXS: each_iq<Iq3Xxs>(row, cols, use); break;
    case GgmlType::IQ3_S: each_iq<Iq3S>(row, cols, use); break;
    case GgmlType::IQ4_NL: each_iq4_nl(row, cols, use); break;
    case GgmlType::IQ4_XS: each_iq4_xs(row, cols, use); break;
    case GgmlType::TQ2_0: each_tq2_0(row, cols, use); break;
    case GgmlType::MXFP4: each_mxfp4(row, cols, use); break;
    case GgmlType::NVFP4: each_nvfp4(row, cols, use); break;
    case GgmlType::Q2_0: each_q2_0(row, cols, use); break;
    case GgmlType::TQ1_0:              // becomes TQ2_0
    case GgmlType::Q1_0: return false; // becomes Q2_0
    }
    return true;
}

#else

template <class Use> HWY_INLINE bool each_vector(GgmlType, const uint8_t*, size_t, Use&) { return false; }

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
