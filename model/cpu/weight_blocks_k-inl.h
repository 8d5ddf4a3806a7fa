// The weight formats with blocks of 256 elements (layouts: model/files/formats/blocks_k.cpp), for one target: scales as fp32,
// levels as bytes or nibbles, then values.
#if defined(TQ_CPU_WEIGHT_BLOCKS_K_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_WEIGHT_BLOCKS_K_INL_H
#undef TQ_CPU_WEIGHT_BLOCKS_K_INL_H
#else
#define TQ_CPU_WEIGHT_BLOCKS_K_INL_H
#endif

#include "model/cpu/weight_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// out[16] = 16 bytes as numbers, the first eight times d[0] and the others times d[1].
HWY_INLINE void scale_bytes(float* HWY_RESTRICT out, const uint8_t* HWY_RESTRICT bytes, const float* HWY_RESTRICT d) {
    const hn::CappedTag<float, 8> f;
    const hn::RebindToSigned<decltype(f)> i;
    const hn::Rebind<uint8_t, decltype(f)> from;
    for (size_t k = 0; k < 16; k += hn::MaxLanes(f)) {
        const auto value = hn::ConvertTo(f, hn::PromoteTo(i, hn::LoadU(from, bytes + k)));
        hn::StoreU(hn::Mul(hn::Set(f, d[k / 8]), value), f, out + k);
    }
}

// Loads the eight 6-bit scales, times d, then the eight minimums, times dmin, of a block of Q4_K or Q5_K. In words of eight
// bytes: a load that overlaps smaller recent stores waits for them.
HWY_INLINE void load_scales(float* HWY_RESTRICT out, const uint8_t* HWY_RESTRICT block) {
    uint32_t a, b, c;
    std::memcpy(&a, block + 4, 4);
    std::memcpy(&b, block + 8, 4);
    std::memcpy(&c, block + 12, 4);
    const uint64_t high_scales = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
    const uint64_t high_minimums = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
    const uint64_t packed[2] = {(a & 0x3f3f3f3f) | high_scales << 32, (b & 0x3f3f3f3f) | high_minimums << 32};
    HWY_ALIGN float d[lanes];
    load_fp16_near(d, block);
    scale_bytes(out, reinterpret_cast<const uint8_t*>(packed), d);
}

// scales[16] = d times 16 signed bytes; d is the last fp16 number before `end`. minimums = `offset` times scales.
HWY_INLINE void load_signed_scales(float* HWY_RESTRICT scales, float* HWY_RESTRICT minimums, const int8_t* HWY_RESTRICT bytes,
                                   const uint8_t* HWY_RESTRICT end, float offset) {
    HWY_ALIGN float d[lanes];
    load_fp16_near(d, end - 2 * lanes);
    for (size_t k = 0; k < 16; k += lanes) {
        const V scale = hn::Mul(hn::Set(F(), d[lanes - 1]), load_floats(bytes + k));
        hn::Store(scale, F(), scales + k);
        hn::Store(hn::Mul(scale, hn::Set(F(), offset)), F(), minimums + k);
    }
}

template <class Use> HWY_INLINE void each_q4_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    for (size_t at = 0; at < cols; at += 256, row += 144) {
        load_scales(scales, row);
        const float* s = in_memory(scales);
        for (size_t j = 0; j < 8; j += 2) {
            const Nibbles even(s[j], s[8 + j]), odd(s[j + 1], s[9 + j]);
            for (size_t k = 0; k < 32; k += lanes) {
                const auto q = load_bytes(row + 16 + 16 * j + k);
                use(at + 32 * j + k, even.low(q), at + 32 * j + 32 + k, odd.high(q));
            }
        }
    }
}

template <class Use> HWY_INLINE void each_q5_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    HWY_ALIGN uint8_t levels[64];
    for (size_t at = 0; at < cols; at += 256, row += 176) {
        load_scales(scales, row);
        for (size_t j = 0; j < 8; j += 2) {
            for (size_t k = 0; k < 32; k += level_lanes) {
                const auto q = hn::LoadU(L(), row + 48 + 16 * j + k), high = hn::LoadU(L(), row + 16 + k);
                hn::Store(with_bit(low_bits(q, 4), high, 1u << j, 16), L(), levels + k);
                hn::Store(with_bit(hn::ShiftRight<4>(q), high, 2u << j, 16), L(), levels + 32 + k);
            }
            use_levels<32>(use, at + 32 * j, levels, 64, in_memory(scales) + j, in_memory(scales) + 8 + j);
        }
    }
}

// Levels of half a block, 128 bytes, are made first and converted afterwards, as the four runs of 32 share their bytes. A level
// less 32 is level * scale - 32 * scale; the latter product is made once for a run (minimums).
template <class Use> HWY_INLINE void each_q6_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16], minimums[16];
    HWY_ALIGN uint8_t levels[128];
    for (size_t at = 0; at < cols; at += 256, row += 210) {
        load_signed_scales(scales, minimums, reinterpret_cast<const int8_t*>(row + 192), row + 210, 32);
        for (size_t n = 0; n < 2; n++) {
            for (size_t k = 0; k < 32; k += level_lanes) {
                const auto q0 = hn::LoadU(L(), row + 64 * n + k), q1 = hn::LoadU(L(), row + 64 * n + 32 + k);
                const auto high = hn::LoadU(L(), row + 128 + 32 * n + k), pair = hn::Set(L(), 48);
                hn::Store(hn::OrAnd(low_bits(q0, 4), shift_left<4>(high), pair), L(), levels + k);
                hn::Store(hn::OrAnd(low_bits(q1, 4), shift_left<2>(high), pair), L(), levels + 32 + k);
                hn::Store(hn::OrAnd(hn::ShiftRight<4>(q0), high, pair), L(), levels + 64 + k);
                hn::Store(hn::OrAnd(hn::ShiftRight<4>(q1), shift_right<2>(high), pair), L(), levels + 96 + k);
            }
            use_levels<16>(use, at + 128 * n, levels, 128, in_memory(scales) + 8 * n, in_memory(minimums) + 8 * n);
        }
    }
}

// levels[128] = the bit pairs of half a block of Q2_K or Q3_K. Four runs share the same 32 bytes.
HWY_INLINE void load_pairs(uint8_t* HWY_RESTRICT levels, const uint8_t* HWY_RESTRICT from) {
    for (size_t k = 0; k < 32; k += level_lanes) {
        const auto q = hn::LoadU(L(), from + k);
        hn::Store(low_bits(q, 2), L(), levels + k);
        hn::Store(low_bits(shift_right<2>(q), 2), L(), levels + 32 + k);
        hn::Store(low_bits(shift_right<4>(q), 2), L(), levels + 64 + k);
        hn::Store(low_bits(shift_right<6>(q), 2), L(), levels + 96 + k);
    }
}

// d and dmin are the last two numbers of a block. They are loaded with the bytes before them, so that none behind it is read.
template <class Use> HWY_INLINE void each_q2_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float d[lanes], scales[16], minimums[16];
    HWY_ALIGN uint8_t levels[128];
    for (size_t at = 0; at < cols; at += 256, row += 84) {
        load_fp16_near(d, row + 84 - 2 * lanes);
        for (size_t k = 0; k < 16; k += lanes) {
            const auto both = load_bytes(row + k);
            hn::Store(hn::Mul(hn::Set(F(), d[lanes - 2]), to_floats(hn::And(both, hn::Set(U(), 15)))), F(), scales + k);
            hn::Store(hn::Mul(hn::Set(F(), d[lanes - 1]), to_floats(hn::ShiftRight<4>(both))), F(), minimums + k);
        }
        for (size_t n = 0; n < 2; n++) {
            load_pairs(levels, row + 16 + 32 * n);
            use_levels<16>(use, at + 128 * n, levels, 128, in_memory(scales) + 8 * n, in_memory(minimums) + 8 * n);
        }
    }
}

// Loads the sixteen 6-bit scales of a block of Q3_K, less 32.
HWY_INLINE void load_scales_q3_k(int8_t* HWY_RESTRICT scales, const uint8_t* HWY_RESTRICT packed) {
    uint32_t low[2], high;
    std::memcpy(low, packed, 8);
    std::memcpy(&high, packed + 8, 4);
    for (uint32_t i = 0; i < 4; i++) { // four bytes at a time
        const uint32_t six = (low[i % 2] >> 4 * (i / 2) & 0x0f0f0f0f) | (high >> 2 * i & 0x03030303) << 4;
        const uint32_t sign = ~six & 0x20202020; // of the values that become negative: its bits 5, 6 and 7
        const uint32_t bytes = (six & 0x1f1f1f1f) | sign | sign << 1 | sign << 2;
        std::memcpy(scales + 4 * i, &bytes, 4);
    }
}

// A level has two bits among the pairs, and one in the mask of the first 32 bytes, which means 4. The value is the level less 4.
template <class Use> HWY_INLINE void each_q3_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16], minimums[16];
    HWY_ALIGN uint8_t levels[128];
    HWY_ALIGN int8_t packed[16];
    for (size_t at = 0; at < cols; at += 256, row += 110) {
        load_scales_q3_k(packed, row + 96);
        load_signed_scales(scales, minimums, packed, row + 110, 4);
        for (size_t n = 0; n < 2; n++) {
            load_pairs(levels, row + 32 + 32 * n);
            for (size_t k = 0; k < 128; k += level_lanes)
                hn::Store(with_bit(hn::Load(L(), levels + k), hn::LoadU(L(), row + k % 32), 1u << (4 * n + k / 32), 4), L(),
                          levels + k);
            use_levels<16>(use, at + 128 * n, levels, 128, in_memory(scales) + 8 * n, in_memory(minimums) + 8 * n);
        }
    }
}

template <class Use> HWY_INLINE void each_iq4_xs(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float d[lanes];
    for (size_t at = 0; at < cols; at += 256, row += 136) {
        uint16_t high;
        uint32_t low;
        std::memcpy(&high, row + 2, 2);
        std::memcpy(&low, row + 4, 4);
        load_fp16_near(d, row); // d, and bytes that are not a number
        for (size_t j = 0; j < 8; j++) {
            const float scale = d[0] * float(int((low >> 4 * j & 15) | (high >> 2 * j & 3) << 4) - 32);
            use_table(use, at + 32 * j, row + 8 + 16 * j, iq4_levels, scale);
        }
    }
}

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
