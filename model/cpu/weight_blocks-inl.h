// The rows of each weight format as vectors of fp32, straight from the file's blocks, for one target. The values are those of
// decode_row, bit for bit: products of scales and levels are exact, and a fused multiply-subtract rounds where it rounds.
#if defined(TQ_CPU_WEIGHT_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_WEIGHT_BLOCKS_INL_H
#undef TQ_CPU_WEIGHT_BLOCKS_INL_H
#else
#define TQ_CPU_WEIGHT_BLOCKS_INL_H
#endif

#include "model/cpu/vector-inl.h"
#include "model/formats/blocks.h"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// Each function hands a row to use(at0, w0, at1, w1, odd): vectors w0 and w1 of the elements from at0 and at1 on, in turns of
// `odd`, so that what they are added to is not one long chain.

// scales[count] = the fp16 numbers at p, p + stride, ...
HWY_INLINE void gather_halves(float* HWY_RESTRICT scales, const uint8_t* HWY_RESTRICT p, size_t stride, size_t count) {
    HWY_ALIGN uint16_t halves[16] = {};
    for (size_t i = 0; i < count; i++) std::memcpy(&halves[i], p + i * stride, 2);
    for (size_t i = 0; i < 16; i += lanes) hn::StoreU(load_halves(reinterpret_cast<const uint8_t*>(halves + i)), F(), scales + i);
}

template <class Use> HWY_INLINE void each_f32(const uint8_t* row, size_t cols, Use& use) {
    for (size_t at = 0; at < cols; at += 2 * lanes) {
        const float* p = reinterpret_cast<const float*>(row) + at;
        use(at, hn::LoadU(F(), p), at + lanes, hn::LoadU(F(), p + lanes), at / lanes & 2);
    }
}

template <class Use> HWY_INLINE void each_f16(const uint8_t* row, size_t cols, Use& use) {
    for (size_t at = 0; at < cols; at += 32)
        for (size_t k = at; k < at + 32; k += 2 * lanes)
            use(k, load_halves(row + 2 * k), k + lanes, load_halves(row + 2 * (k + lanes)), (k - at) / lanes & 2);
}

template <class Use> HWY_INLINE void each_bf16(const uint8_t* row, size_t cols, Use& use) {
    for (size_t at = 0; at < cols; at += 32)
        for (size_t k = at; k < at + 32; k += 2 * lanes)
            use(k, load_bf16(row + 2 * k), k + lanes, load_bf16(row + 2 * (k + lanes)), (k - at) / lanes & 2);
}

template <class Use> HWY_INLINE void each_q8_0(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    for (size_t at = 0, block = 0; at < cols; at += 32, block++, row += 34) {
        if (block % 16 == 0) gather_halves(scales, row, 34, std::min<size_t>(16, (cols - at) / 32));
        const V d = hn::Set(F(), scales[block % 16]);
        const auto* q = reinterpret_cast<const int8_t*>(row + 2);
        for (size_t k = 0; k < 32; k += 2 * lanes)
            use(at + k, hn::Mul(d, load_floats(q + k)), at + k + lanes, hn::Mul(d, load_floats(q + k + lanes)), k / lanes & 2);
    }
}

template <class Use> HWY_INLINE void each_q4_0(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    for (size_t at = 0, block = 0; at < cols; at += 32, block++, row += 18) {
        if (block % 16 == 0) gather_halves(scales, row, 18, std::min<size_t>(16, (cols - at) / 32));
        const V d = hn::Set(F(), scales[block % 16]), d8 = hn::Set(F(), 8 * scales[block % 16]);
        for (size_t k = 0; k < 16; k += lanes) {
            const auto q = load_bytes(row + 2 + k);
            use(at + k, hn::MulSub(d, to_floats(hn::And(q, hn::Set(U(), 15))), d8), at + 16 + k,
                hn::MulSub(d, to_floats(hn::ShiftRight<4>(q)), d8), k / lanes & 1);
        }
    }
}

// The eight 6-bit scales, times d, then the eight minimums, times dmin, of a block of Q4_K or Q5_K.
HWY_INLINE void load_scales(float* HWY_RESTRICT out, const uint8_t* HWY_RESTRICT block) {
    uint32_t a, b, c, packed[4];
    std::memcpy(&a, block + 4, 4);
    std::memcpy(&b, block + 8, 4);
    std::memcpy(&c, block + 12, 4);
    packed[0] = a & 0x3f3f3f3f;
    packed[1] = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
    packed[2] = b & 0x3f3f3f3f;
    packed[3] = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
    HWY_ALIGN float d[16];
    gather_halves(d, block, 2, 2);
    const hn::CappedTag<float, 8> f;
    const hn::RebindToSigned<decltype(f)> i;
    const hn::Rebind<uint8_t, decltype(f)> bytes;
    const auto* scales = reinterpret_cast<const uint8_t*>(packed);
    for (size_t k = 0; k < 16; k += hn::MaxLanes(f)) {
        const auto value = hn::ConvertTo(f, hn::PromoteTo(i, hn::LoadU(bytes, scales + k)));
        hn::StoreU(hn::Mul(hn::Set(f, d[k / 8]), value), f, out + k);
    }
}

template <class Use> HWY_INLINE void each_q4_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    for (size_t at = 0; at < cols; at += 256, row += 144) {
        load_scales(scales, row);
        for (size_t j = 0; j < 8; j += 2) {
            const V d0 = hn::Set(F(), scales[j]), d1 = hn::Set(F(), scales[j + 1]);
            const V m0 = hn::Set(F(), scales[8 + j]), m1 = hn::Set(F(), scales[9 + j]);
            for (size_t k = 0; k < 32; k += lanes) {
                const auto q = load_bytes(row + 16 + 16 * j + k);
                use(at + 32 * j + k, hn::MulSub(d0, to_floats(hn::And(q, hn::Set(U(), 15))), m0), at + 32 * j + 32 + k,
                    hn::MulSub(d1, to_floats(hn::ShiftRight<4>(q)), m1), k / lanes & 1);
            }
        }
    }
}

// 16 where `bit` is set in `high`, added to q below 16.
HWY_INLINE V with_fifth_bit(hn::Vec<U> q, hn::Vec<U> high, uint32_t bit) {
    return to_floats(hn::Or(q, hn::IfThenElseZero(hn::TestBit(high, hn::Set(U(), bit)), hn::Set(U(), 16))));
}

template <class Use> HWY_INLINE void each_q5_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    for (size_t at = 0; at < cols; at += 256, row += 176) {
        load_scales(scales, row);
        for (size_t j = 0; j < 8; j += 2) {
            const V d0 = hn::Set(F(), scales[j]), d1 = hn::Set(F(), scales[j + 1]);
            const V m0 = hn::Set(F(), scales[8 + j]), m1 = hn::Set(F(), scales[9 + j]);
            for (size_t k = 0; k < 32; k += lanes) {
                const auto q = load_bytes(row + 48 + 16 * j + k), high = load_bytes(row + 16 + k);
                const V low = with_fifth_bit(hn::And(q, hn::Set(U(), 15)), high, 1u << j);
                use(at + 32 * j + k, hn::MulSub(d0, low, m0), at + 32 * j + 32 + k,
                    hn::MulSub(d1, with_fifth_bit(hn::ShiftRight<4>(q), high, 2u << j), m1), k / lanes & 1);
            }
        }
    }
}

template <class Use> HWY_INLINE void each_q6_k(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16];
    const auto level = [](auto low, auto high, V s, V s32) HWY_ATTR { return hn::MulSub(s, to_floats(hn::Or(low, high)), s32); };
    for (size_t at = 0; at < cols; at += 256, row += 210) {
        gather_halves(scales, row + 208, 0, 1);
        const V d = hn::Set(F(), scales[0]);
        for (size_t k = 0; k < 16; k += lanes)
            hn::StoreU(hn::Mul(d, load_floats(reinterpret_cast<const int8_t*>(row + 192 + k))), F(), scales + k);
        for (size_t n = 0; n < 2; n++)
            for (size_t k = 0; k < 32; k += lanes) {
                const auto q0 = load_bytes(row + 64 * n + k), q1 = load_bytes(row + 64 * n + 32 + k);
                const auto h = load_bytes(row + 128 + 32 * n + k), low = hn::Set(U(), 15), pair = hn::Set(U(), 48);
                const float* s = scales + 8 * n + k / 16;
                const size_t to = at + 128 * n + k;
                const V s0 = hn::Set(F(), s[0]), s1 = hn::Set(F(), s[2]), s2 = hn::Set(F(), s[4]), s3 = hn::Set(F(), s[6]);
                const V by32 = hn::Set(F(), 32);
                use(to, level(hn::And(q0, low), hn::And(hn::ShiftLeft<4>(h), pair), s0, hn::Mul(s0, by32)), to + 32,
                    level(hn::And(q1, low), hn::And(hn::ShiftLeft<2>(h), pair), s1, hn::Mul(s1, by32)), 0);
                use(to + 64, level(hn::ShiftRight<4>(q0), hn::And(h, pair), s2, hn::Mul(s2, by32)), to + 96,
                    level(hn::ShiftRight<4>(q1), hn::And(hn::ShiftRight<2>(h), pair), s3, hn::Mul(s3, by32)), 1);
            }
    }
}

// Hands a row to `use`. False where there is no fast way for the format, or cols is not a multiple of 32; and where numbers are
// read one by one, which have to be aligned then.
template <class Use> HWY_INLINE bool each_vector(GgmlType type, const uint8_t* row, size_t cols, Use& use) {
    if (cols % 32 != 0 || (HWY_TARGET == HWY_SCALAR && reinterpret_cast<uintptr_t>(row) % alignof(float) != 0)) return false;
    switch (type) {
    case GgmlType::F32: each_f32(row, cols, use); return true;
    case GgmlType::F16: each_f16(row, cols, use); return true;
    case GgmlType::BF16: each_bf16(row, cols, use); return true;
    case GgmlType::Q8_0: each_q8_0(row, cols, use); return true;
    case GgmlType::Q4_0: each_q4_0(row, cols, use); return true;
    case GgmlType::Q4_K: each_q4_k(row, cols, use); return true;
    case GgmlType::Q5_K: each_q5_k(row, cols, use); return true;
    case GgmlType::Q6_K: each_q6_k(row, cols, use); return true;
    default: return false;
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
