// The inner loop of every matrix product: a tile of sums in registers, for one target.
#if defined(TQ_CPU_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_TILE_INL_H
#undef TQ_CPU_TILE_INL_H
#else
#define TQ_CPU_TILE_INL_H
#endif

#include "model/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// The sums of a tile: rows of `a` by up to max_vectors vectors of `b`. All but a few registers hold them, and each load is used
// several times.
inline constexpr size_t tile_rows = many_registers ? 8 : 4, max_vectors = 3, tile_width = max_vectors * lanes;

// A matrix whose element (row, k) is at data[row * row_stride + k * step].
struct Strided {
    const float* data;
    size_t row_stride, step;
};

// c[row][i] += sum over k < depth of a(row, k) * b[k][i], row < tile_rows, i < vectors * lanes; c and b have rows of that width.
template <size_t vectors>
HWY_INLINE void multiply_tile(float* HWY_RESTRICT c, Strided a, const float* HWY_RESTRICT b, size_t depth) {
    const F f;
    constexpr size_t width = vectors * lanes;
    V sums[tile_rows][vectors];
    HWY_UNROLL(8)
    for (size_t r = 0; r < tile_rows; r++) {
        HWY_UNROLL(3)
        for (size_t v = 0; v < vectors; v++) sums[r][v] = hn::LoadU(f, c + r * width + v * lanes);
    }
    for (size_t k = 0; k < depth; k++, b += width) {
        V x[vectors];
        HWY_UNROLL(3)
        for (size_t v = 0; v < vectors; v++) x[v] = hn::LoadU(f, b + v * lanes);
        HWY_UNROLL(8)
        for (size_t r = 0; r < tile_rows; r++) {
            const V w = hn::Set(f, a.data[r * a.row_stride + k * a.step]);
            HWY_UNROLL(3)
            for (size_t v = 0; v < vectors; v++) sums[r][v] = hn::MulAdd(w, x[v], sums[r][v]);
        }
    }
    HWY_UNROLL(8)
    for (size_t r = 0; r < tile_rows; r++) {
        HWY_UNROLL(3)
        for (size_t v = 0; v < vectors; v++) hn::StoreU(sums[r][v], f, c + r * width + v * lanes);
    }
}

// Computes the same for `rows` rows, a multiple of tile_rows, and 1 .. max_vectors vectors.
HWY_INLINE void multiply_tiles(float* HWY_RESTRICT c, Strided a, const float* HWY_RESTRICT b, size_t depth, size_t rows,
                               size_t vectors) {
    for (size_t r = 0; r < rows; r += tile_rows, c += tile_rows * vectors * lanes, a.data += tile_rows * a.row_stride) {
        if (vectors == 3)
            multiply_tile<3>(c, a, b, depth);
        else if (vectors == 2)
            multiply_tile<2>(c, a, b, depth);
        else
            multiply_tile<1>(c, a, b, depth);
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
