// Sums over the lanes of vectors in one order, for one target: lanes whose numbers differ by lane_strides[0] are added first, and
// so on. A block of queries, whose lanes are queries, adds the same numbers in the same order, so its scores have equal bits.
#if defined(TQ_CPU_LANE_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_LANE_SUMS_INL_H
#undef TQ_CPU_LANE_SUMS_INL_H
#else
#define TQ_CPU_LANE_SUMS_INL_H
#endif

#include "model/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

inline constexpr size_t lane_bits = lanes == 16 ? 4 : lanes == 8 ? 3 : lanes == 4 ? 2 : 0; // lanes == 2^lane_bits
inline constexpr size_t lane_strides[] = {2, 1, lanes / 2, 4};                             // the first lane_bits of them
inline constexpr size_t few_lanes = lanes < 4 ? lanes : 4, lane_blocks = lanes / few_lanes;
static_assert(lanes == size_t(1) << lane_bits);

// Returns the lane that is added n-th, if sums wait for one another as the digits of a binary counter: each pair of sums of equal
// length is added as soon as there are both.
constexpr size_t lane_in_order(size_t n) {
    size_t lane = 0;
    for (size_t bit = 0; bit < lane_bits; bit++) lane += (n >> bit & 1) * lane_strides[bit];
    return lane;
}

// Returns in lane i of each block of four lanes the sum of that block of v[i].
HWY_INLINE V sums_of_blocks(const V (&v)[few_lanes]) {
    if constexpr (lanes < 4) {
        return v[0];
    } else {
#if HWY_TARGET != HWY_SCALAR
        using P = hn::Repartition<int64_t, F>;
        const auto pairs = [](V a, V b) {
            return hn::BitCast(P(), hn::Add(hn::InterleaveLower(F(), a, b), hn::InterleaveUpper(F(), a, b)));
        };
        const auto low = pairs(v[0], v[1]), high = pairs(v[2], v[3]);
        return hn::Add(hn::BitCast(F(), hn::InterleaveLower(P(), low, high)),
                       hn::BitCast(F(), hn::InterleaveUpper(P(), low, high)));
#endif
    }
}

// Returns in block i the sum of the blocks of v[i].
HWY_INLINE V sum_blocks(const V (&v)[lane_blocks]) {
#if HWY_TARGET <= HWY_AVX3
    const auto halves = [](V a, V b) { return hn::Add(hn::ConcatLowerLower(F(), b, a), hn::ConcatUpperUpper(F(), b, a)); };
    const V low = halves(v[0], v[1]), high = halves(v[2], v[3]);
    return hn::Add(V{_mm512_shuffle_f32x4(low.raw, high.raw, 0x88)}, V{_mm512_shuffle_f32x4(low.raw, high.raw, 0xdd)});
#elif HWY_TARGET == HWY_AVX2
    return hn::Add(hn::ConcatLowerLower(F(), v[1], v[0]), hn::ConcatUpperUpper(F(), v[1], v[0]));
#else
    return v[0];
#endif
}

HWY_INLINE float sum_in_order(V v) {
    V blocks[few_lanes], whole[lane_blocks];
    for (V& block : blocks) block = v;
    for (V& of : whole) of = sums_of_blocks(blocks);
    return hn::GetLane(sum_blocks(whole));
}

// Returns the sum of v[0] .. v[lanes - 1], which it overwrites.
HWY_INLINE V sum_in_order(V* v) {
    for (size_t bit = 0, added = 0; bit < lane_bits; added |= lane_strides[bit++])
        for (size_t i = 0; i < lanes; i++)
            if ((i & (added | lane_strides[bit])) == 0) v[i] = hn::Add(v[i], v[i | lane_strides[bit]]);
    return v[0];
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
