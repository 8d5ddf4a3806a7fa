// Vectors of fp32 for one target: included once for each instruction set that hwy/foreach_target.h compiles for.
// The guard is toggled rather than set, which is how Highway has a file read again for the next instruction set.
#if defined(TQ_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_VECTOR_INL_H
#undef TQ_CPU_VECTOR_INL_H
#else
#define TQ_CPU_VECTOR_INL_H
#endif

#include "base/half.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>; // at most half a block of 32: every format's runs are whole vectors
using I = hn::RebindToSigned<F>;
using U = hn::RebindToUnsigned<F>;
using V = hn::Vec<F>;
inline constexpr size_t lanes = hn::MaxLanes(F());
inline constexpr bool many_registers = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64; // 32 registers instead of 16

// Loads [lanes] bytes as integers.
HWY_INLINE hn::Vec<U> load_bytes(const uint8_t* p) { return hn::PromoteTo(U(), hn::LoadU(hn::Rebind<uint8_t, F>(), p)); }
HWY_INLINE V load_floats(const int8_t* p) {
    return hn::ConvertTo(F(), hn::PromoteTo(I(), hn::LoadU(hn::Rebind<int8_t, F>(), p)));
}
HWY_INLINE V load_floats(const uint8_t* p) {
    return hn::ConvertTo(F(), hn::PromoteTo(I(), hn::LoadU(hn::Rebind<uint8_t, F>(), p)));
}
HWY_INLINE V to_floats(hn::Vec<U> v) { return hn::ConvertTo(F(), hn::BitCast(I(), v)); } // below 2^31

// Loads [lanes] fp16 values at p, which need not be aligned.
HWY_INLINE V load_fp16(const uint8_t* p) {
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
    const hn::Rebind<hwy::float16_t, F> fp16;
    return hn::PromoteTo(F(), hn::LoadU(fp16, reinterpret_cast<const hwy::float16_t*>(p)));
#else // Highway's own emulation makes infinities finite: this is half_to_float of base/half.h
    const auto bits = hn::PromoteTo(U(), hn::LoadU(hn::Rebind<uint16_t, F>(), reinterpret_cast<const uint16_t*>(p)));
    const auto magnitude = hn::And(bits, hn::Set(U(), 0x7fff)), sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto is_special = hn::Gt(hn::BitCast(I(), magnitude), hn::Set(I(), 0x7bff));
    const auto offset = hn::IfThenElse(hn::RebindMask(U(), is_special), hn::Set(U(), 224u << 23), hn::Set(U(), 112u << 23));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), offset);
    const auto subnormal = hn::BitCast(U(), hn::Mul(to_floats(magnitude), hn::Set(F(), 0x1p-24f)));
    const auto is_subnormal = hn::Lt(hn::BitCast(I(), magnitude), hn::Set(I(), 0x400));
    return hn::BitCast(F(), hn::Or(sign, hn::IfThenElse(hn::RebindMask(U(), is_subnormal), subnormal, normal)));
#endif
}

// Stores the fp16 bits of [lanes] values, as float_to_half of base/half.h.
HWY_INLINE void store_fp16(uint16_t* p, V v) {
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
    const hn::Rebind<hwy::float16_t, F> fp16;
    const V nan = hn::BitCast(F(), hn::Or(hn::And(hn::BitCast(U(), v), hn::Set(U(), 0x80000000)), hn::Set(U(), 0x7fc00000)));
    hn::StoreU(hn::DemoteTo(fp16, hn::IfThenElse(hn::IsNaN(v), nan, v)), fp16, reinterpret_cast<hwy::float16_t*>(p));
#else
    HWY_ALIGN float values[lanes];
    hn::Store(v, F(), values);
    for (size_t i = 0; i < lanes; i++) p[i] = float_to_half(values[i]);
#endif
}

HWY_INLINE V load_bf16(const uint8_t* p) {
    const auto bits = hn::PromoteTo(U(), hn::LoadU(hn::Rebind<uint16_t, F>(), reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(F(), hn::ShiftLeft<16>(bits));
}

// Operations on vectors of bytes.
template <class Bytes> HWY_INLINE Bytes low_bits(Bytes v, uint8_t bits) {
    return hn::And(v, hn::Set(hn::DFromV<Bytes>(), uint8_t((1u << bits) - 1)));
}
template <int by, class Bytes> HWY_INLINE Bytes shift_right(Bytes v) { // bits of the byte above are shifted in
    const hn::DFromV<Bytes> d;
    return hn::BitCast(d, hn::ShiftRight<by>(hn::BitCast(hn::Repartition<uint16_t, decltype(d)>(), v)));
}
template <int by, class Bytes> HWY_INLINE Bytes shift_left(Bytes v) { // bits of the byte below are shifted in
    const hn::DFromV<Bytes> d;
    return hn::BitCast(d, hn::ShiftLeft<by>(hn::BitCast(hn::Repartition<uint16_t, decltype(d)>(), v)));
}

HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(F(), v)); }

// Returns a . b over n elements, in four accumulators.
HWY_INLINE float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
    const F f;
    V s0 = hn::Zero(f), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
        s0 = hn::MulAdd(hn::LoadU(f, a + i), hn::LoadU(f, b + i), s0);
        s1 = hn::MulAdd(hn::LoadU(f, a + i + lanes), hn::LoadU(f, b + i + lanes), s1);
        s2 = hn::MulAdd(hn::LoadU(f, a + i + 2 * lanes), hn::LoadU(f, b + i + 2 * lanes), s2);
        s3 = hn::MulAdd(hn::LoadU(f, a + i + 3 * lanes), hn::LoadU(f, b + i + 3 * lanes), s3);
    }
    for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(hn::LoadU(f, a + i), hn::LoadU(f, b + i), s0);
    float total = sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
