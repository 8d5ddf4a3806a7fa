// The weight formats whose levels are entries of grids, and ternary ones (layouts: model/files/formats/blocks_iq.h), for one
// target.
#if defined(TQ_CPU_WEIGHT_BLOCKS_IQ_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_WEIGHT_BLOCKS_IQ_INL_H
#undef TQ_CPU_WEIGHT_BLOCKS_IQ_INL_H
#else
#define TQ_CPU_WEIGHT_BLOCKS_IQ_INL_H
#endif

#include "model/cpu/weight_blocks_k-inl.h"
#include "model/files/formats/blocks_iq.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class Format, class Use> HWY_INLINE void each_iq(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float scales[16], minimums[16];
    HWY_ALIGN uint64_t levels[32];
    for (size_t at = 0; at < cols; at += 256, row += Format::bytes) {
        const auto* block = reinterpret_cast<const std::byte*>(row);
        const float d = Format::d(block);
        const Multipliers multipliers = Format::multipliers(block);
        for (size_t k = 0; k < 16; k++) {
            scales[k] = Format::scale(d, (k < 8 ? multipliers.first : multipliers.last) >> 8 * (k % 8) & 255);
            minimums[k] = Format::offset * scales[k];
        }
        for (size_t g = 0; g < 32; g++) levels[g] = tq::levels_of<Format>(block, g);
        use_levels<16>(use, at, reinterpret_cast<const uint8_t*>(levels), 256, in_memory(scales), in_memory(minimums));
    }
}

template <class Use> HWY_INLINE void each_tq2_0(const uint8_t* row, size_t cols, Use& use) {
    HWY_ALIGN float d[lanes];
    HWY_ALIGN uint8_t levels[128];
    for (size_t at = 0; at < cols; at += 256, row += 66) {
        load_fp16_near(d, row + 66 - 2 * lanes);
        for (size_t n = 0; n < 2; n++) {
            load_pairs(levels, row + 32 * n);
            use_levels<128>(use, at + 128 * n, levels, 128, d + lanes - 1, d + lanes - 1);
        }
    }
}

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
