// Parts of the weight formats as vectors of fp32 for one target: fp16 scales, and levels of four or more bits.
#if defined(TQ_CPU_WEIGHT_LEVELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_WEIGHT_LEVELS_INL_H
#undef TQ_CPU_WEIGHT_LEVELS_INL_H
#else
#define TQ_CPU_WEIGHT_LEVELS_INL_H
#endif

#include "model/cpu/vector-inl.h"
#include "model/files/formats/block_reader.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR // HWY_SCALAR has no vectors of 16 bytes

// Returns p, hiding from the compiler the values that were just stored there. A number that is broadcast to all lanes is then a
// memory operand, at no cost; broadcast from a register, which a compiler would prefer, it takes two shuffles.
template <class T> HWY_INLINE const T* in_memory(const T* p) {
#ifdef __GNUC__
    asm volatile("" : "+r"(p) : : "memory");
#endif
    return p;
}

// scales[count] = the fp16 numbers at p, p + stride, ...; up to 16, the size of the array. Four are combined in a register: a
// vector load from recently stored numbers waits for the stores.
HWY_INLINE void gather_fp16(float* HWY_RESTRICT scales, const uint8_t* HWY_RESTRICT p, size_t stride, size_t count) {
    uint64_t fp16[4] = {};
    const auto half = [&](size_t i) {
        uint16_t value;
        std::memcpy(&value, p + i * stride, 2);
        return uint64_t(value) << 16 * (i % 4);
    };
    if (count == 16)
        for (size_t i = 0; i < 16; i += 4) fp16[i / 4] = half(i) | half(i + 1) | half(i + 2) | half(i + 3);
    else
        for (size_t i = 0; i < count; i++) fp16[i / 4] |= half(i);
    for (size_t i = 0; i < 16; i += lanes) hn::StoreU(load_fp16(reinterpret_cast<const uint8_t*>(fp16) + 2 * i), F(), scales + i);
}

// out[lanes] = the fp16 numbers from p on: those around the one or two that are needed, since a vector takes as long as a
// number. All of its bytes must belong to the block.
HWY_INLINE void load_fp16_near(float* HWY_RESTRICT out, const uint8_t* HWY_RESTRICT p) { hn::StoreU(load_fp16(p), F(), out); }

// Levels of four bits, two in a byte, whose values are scale * level - minimum, or scale * (level - 8). A vector of 16 lanes
// holds all of them, and its lookups use only four bits of an index; other targets compute each.
#if HWY_TARGET <= HWY_AVX3

class Nibbles {
  public:
    HWY_INLINE explicit Nibbles(V values) : values_(values) {}
    HWY_INLINE Nibbles(float scale, float minimum)
        : values_(hn::MulSub(hn::Set(F(), scale), hn::ConvertTo(F(), hn::Iota(I(), 0)), hn::Set(F(), minimum))) {}
    static HWY_INLINE Nibbles less_eight(float scale) {
        return Nibbles(hn::Mul(hn::Set(F(), scale), hn::ConvertTo(F(), hn::Iota(I(), -8))));
    }
    HWY_INLINE V low(hn::Vec<U> bytes) const { return V{_mm512_permutexvar_ps(bytes.raw, values_.raw)}; }
    HWY_INLINE V high(hn::Vec<U> bytes) const { return low(hn::ShiftRight<4>(bytes)); }

  private:
    V values_;
};

#else

class Nibbles {
  public:
    HWY_INLINE Nibbles(float scale, float minimum) : scale_(hn::Set(F(), scale)), minimum_(hn::Set(F(), minimum)) {}
    static HWY_INLINE Nibbles less_eight(float scale) { return {scale, 8 * scale}; }
    HWY_INLINE V low(hn::Vec<U> bytes) const { return value(hn::And(bytes, hn::Set(U(), 15))); }
    HWY_INLINE V high(hn::Vec<U> bytes) const { return value(hn::ShiftRight<4>(bytes)); }

  private:
    HWY_INLINE V value(hn::Vec<U> level) const { return hn::MulSub(scale_, to_floats(level), minimum_); }

    V scale_, minimum_;
};

#endif

// Levels as bytes, in vectors of up to 32, before conversion to fp32.
using L = hn::CappedTag<uint8_t, 32>;
inline constexpr size_t level_lanes = hn::MaxLanes(L());

// Returns v with `weight` added if `bit` is set in `from`.
HWY_INLINE hn::Vec<L> with_bit(hn::Vec<L> v, hn::Vec<L> from, uint32_t bit, uint8_t weight) {
    return hn::Or(v, hn::IfThenElseZero(hn::TestBit(from, hn::Set(L(), uint8_t(bit))), hn::Set(L(), weight)));
}

// Calls use() for count levels of the elements from `at` on: level * scales[i] for run i, each of `run` elements.
template <size_t run, class Use> HWY_INLINE void use_levels(Use& use, size_t at, const int8_t* HWY_RESTRICT levels, size_t count,
                                                            const float* HWY_RESTRICT scales) {
    const auto value = [&](size_t k) HWY_ATTR { return hn::Mul(hn::Set(F(), scales[k / run]), load_floats(levels + k)); };
    for (size_t k = 0; k < count; k += 2 * lanes) use(at + k, value(k), at + k + lanes, value(k + lanes));
}

// Calls use() for level * scales[i] - minimums[i].
template <size_t run, class Use> HWY_INLINE void use_levels(Use& use, size_t at, const uint8_t* HWY_RESTRICT levels, size_t count,
                                                            const float* HWY_RESTRICT scales,
                                                            const float* HWY_RESTRICT minimums) {
    const auto value = [&](size_t k) HWY_ATTR {
        return hn::MulSub(hn::Set(F(), scales[k / run]), load_floats(levels + k), hn::Set(F(), minimums[k / run]));
    };
    for (size_t k = 0; k < count; k += 2 * lanes) use(at + k, value(k), at + k + lanes, value(k + lanes));
}

// Calls use() for 32 elements from `at` on: bytes of two levels, the low ones of elements 0 .. 15 and the high ones of 16 ..
// 31, looked up in a table, times `scale`.
template <class Use> HWY_INLINE void use_table(Use& use, size_t at, const uint8_t* HWY_RESTRICT bytes,
                                               const std::array<float, 16>& table, float scale) {
#if HWY_TARGET <= HWY_AVX3
    const Nibbles values(hn::Mul(hn::Set(F(), scale), hn::LoadU(F(), table.data())));
    const auto q = load_bytes(bytes);
    use(at, values.low(q), at + 16, values.high(q));
#else
    HWY_ALIGN int8_t levels[32];
    const hn::FixedTag<int8_t, 16> d;
    const auto q = hn::LoadU(hn::FixedTag<uint8_t, 16>(), bytes);
    HWY_ALIGN int8_t small[16];
    for (size_t i = 0; i < 16; i++) small[i] = int8_t(table[i]);
    const auto values = hn::Load(d, small);
    hn::Store(hn::TableLookupBytes(values, hn::BitCast(d, low_bits(q, 4))), d, levels);
    hn::Store(hn::TableLookupBytes(values, hn::BitCast(d, hn::ShiftRight<4>(q))), d, levels + 16);
    use_levels<32>(use, at, levels, 32, &scale);
#endif
}

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
