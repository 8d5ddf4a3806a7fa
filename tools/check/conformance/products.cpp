// Limits and tunings for rows of matrix products. A limit depends on what the kernel rounds: nothing but fp32 sums, sums one by
// one (error growing as the square root of the columns), inputs of fp16 or of 14 bits (digits). An error is relative to the norm
// that the products' terms have on average (expected_norm), if rows are few: the sum itself may cancel to nearly nothing, and
// its relative error then says nothing.
// Tile variants cover every size of shared memory that a device may have, also sizes that this one would not choose.
#include "tools/check/conformance/products.h"
#include <algorithm>
#include <cmath>

namespace tq::conformance {
namespace {

// matmul_tiled adds them one by one, each time rounding a sum that grows as the square root of their number.
constexpr double rounding_of_a_step = 3e-8;
// matmul_coopmat rounds both factors to fp16, by at most 2^-11 of them if it rounds to nearest; a device may truncate them
// instead, which is at most twice as much and half of it on average, with the same sign for all products.
// matmul_dot and matvec_dot round inputs to 1/16383 of the largest of 32, which is about twice their standard deviation: products
// are off by 4e-5, or up to three times as much if few are compared.
constexpr double digits_limit = 1.5e-4;
constexpr uint32_t min_tile_bytes = 10240; // the least shared memory that matmul_coopmat has a tile for, if tables are small

} // namespace

double expected_norm(const Tensor& w, std::span<const float> x) {
    double squares = 0;
    std::vector<float> row(w.cols);
    std::vector<std::byte> scratch;
    for (uint32_t r = 0; r < w.rows && w.rows < 64; r++) {
        w.decode(r, row, scratch);
        for (size_t i = 0; i < x.size(); i++) squares += double(row[i % w.cols]) * row[i % w.cols] * x[i] * x[i];
    }
    return std::sqrt(squares);
}

double limit_of(const gpu::Tuning& tuning, GgmlType type, gpu::MatmulKernel kernel, uint32_t cols) {
    if (kernel == gpu::MatmulKernel::coopmat) return half_limit;
    if (kernel == gpu::MatmulKernel::dot) return digits_limit;
    if (kernel == gpu::MatmulKernel::matvec && gpu::multiplies_digits(tuning, type)) return digits_limit;
    return std::max(product_limit, kernel == gpu::MatmulKernel::tiled ? rounding_of_a_step * std::sqrt(cols) : 0);
}

static std::string name_of_matrices(uint32_t bytes) { return fmt::format("matrices, {} KiB", bytes >> 10); }

// Adds three tunings, each with the least shared memory that gives its tile: 64 columns; decoded ahead; and eight matrices of
// sums for each subgroup, several each way. The smallest tile has one or a few.
static void add_matrices([[maybe_unused]] std::vector<NamedTuning>& out, [[maybe_unused]] const Capabilities& device,
                         [[maybe_unused]] gpu::Tuning tuning) {
#if TQ_COOPERATIVE_MATRIX
    constexpr uint32_t max_table_bytes = 4096, few_formats = 16400; // more than a tile takes that runs with all formats
    const auto add_least = [&](const char* name, gpu::Tuning t, uint32_t from, auto is_requested) {
        for (t.shared_bytes = from; t.shared_bytes + max_table_bytes <= device.shared_memory_bytes; t.shared_bytes += 64)
            if (is_requested(gpu::coopmat_tile(t))) return out.push_back({name, t});
    };
    gpu::Tuning wide = tuning, of_eight = tuning;
    wide.matmul_blocks = 2;
    wide.matmul_ahead = wide.matmul_ahead == 0 ? 1 : 0;
    add_least("matrices, 64 columns at a time", wide, min_tile_bytes, [](const auto& tile) { return tile.blocks == 2; });
    tuning.matmul_ahead = 2;
    add_least("matrices, decoded ahead", tuning, few_formats, [](const auto& tile) { return tile.ahead == 2; });
    of_eight.matmul_ahead = 1;
    of_eight.max_workgroup = 64 * 64 / 8 / (tuning.matrix.m * tuning.matrix.n) * tuning.matrix_subgroup;
    add_least("matrices, eight sums each", of_eight, few_formats, [](const auto& tile) { return tile.rows == 64; });
#endif
}

std::vector<NamedTuning> tile_variants(const Capabilities& device) {
    Capabilities gpu = device;
    gpu.type = DeviceType::discrete;
    gpu::Tuning tuning = gpu::choose_tuning(gpu);
    const bool coopmat = tuning.matmul_coopmat;
    std::vector<NamedTuning> out;
    for (const uint32_t bytes : {min_tile_bytes, 16384u, 20480u}) {
        tuning.shared_bytes = bytes;
        tuning.matmul_blocks = 1;
        const bool built = bytes == min_tile_bytes || device.type != DeviceType::cpu;
        if (coopmat && built && bytes <= device.shared_memory_bytes) out.push_back({name_of_matrices(bytes), tuning});
    }
    if (coopmat) add_matrices(out, device, tuning);
    tuning.matmul_coopmat = tuning.matmul_dot = false;
    for (const uint32_t bytes : {16384u, 20480u, 32768u}) {
        tuning.shared_bytes = bytes;
        if (bytes <= device.shared_memory_bytes) out.push_back({fmt::format("tile of {} KiB", bytes >> 10), tuning});
        tuning.matmul_dot = tuning.int8_dot;
        if (tuning.int8_dot && bytes <= device.shared_memory_bytes && bytes != 20480)
            out.push_back({fmt::format("digits, {} KiB", bytes >> 10), tuning});
        tuning.matmul_dot = false;
    }
    tuning.matmul_dot = tuning.int8_dot;
    tuning.max_workgroup = 128;
    if (tuning.int8_dot) out.push_back({"digits, small workgroups", tuning});
    return out;
}

NamedTuning with_table(NamedTuning variant, GgmlType type) {
    const bool is_least = variant.tuning.shared_bytes == min_tile_bytes, is_wide = variant.tuning.matmul_blocks == 2;
    if (!variant.tuning.matmul_coopmat || !(is_least || is_wide)) return variant;
    variant.tuning.shared_bytes += gpu::table_bytes(type) - gpu::level_table_bytes;
    if (is_least) variant.name = name_of_matrices(variant.tuning.shared_bytes);
    return variant;
}

} // namespace tq::conformance
