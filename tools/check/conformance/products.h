// Limits of rows of products, and the tiles of their kernels.
#pragma once
#include "tools/check/conformance/rig.h"

namespace tq::conformance {

// The limit of sums of some thousand fp32 products in another order than the reference's.
inline constexpr double product_limit = 2e-6;
inline constexpr double gated_limit = 2e-5;   // as that of swiglu, of such sums
inline constexpr double half_limit = 0x1p-10; // of fp16 numbers that may be truncated

// Returns the limit of products by `kernel` with a matrix of `type` that has `cols` columns.
double limit_of(const gpu::Tuning& tuning, GgmlType type, gpu::MatmulKernel kernel, uint32_t cols);

// The norm of w x if its terms were independent: needed if few sums are compared and their terms cancel.
double expected_norm(const Tensor& w, std::span<const float> x);

// matmul_tiled, matmul_dot and matmul_coopmat with each tile that fits this device's shared memory, whatever the device would
// choose. On a CPU driver only the smallest tile of cooperative matrices: the others take minutes to build.
std::vector<NamedTuning> tile_variants(const Capabilities& device);
// Returns the variant with room for the format's table (gpu::table_bytes()), if it has the least shared memory.
NamedTuning with_table(NamedTuning variant, GgmlType type);

} // namespace tq::conformance
