// Rows of the kernels that read weight matrices: embed, matvec and matmul, in every weight format. Shapes end within tiles,
// blocks and slices: single rows, primes, columns that are no multiple of a tile. x past the last token is NaN, and y may hold
// anything there. Products are compared with accumulation and without, gated, and with folded norms. Tokens of very different
// sizes, and with NaN or infinities, must not touch each other (far_apart), since some kernels scale inputs by their largest
// element. A few rows have the sizes of real models, beyond what one binding holds.
#include "base/half.h"
#include "model/gpu/device_layout.h"
#include "model/reference/kernels.h"
#include "tools/check/conformance/products.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::conformance {
namespace {

constexpr double decode_limit = 1e-6; // of a product of two or three factors

struct MatrixShape {
    uint32_t rows, cols, tokens;
    uint32_t max_rows = 0; // per slice; 0: as 128 MiB allow
    uint32_t recorded = 0; // tokens that the pass is recorded for; 0: no more
    int exponent = 0;      // of the weights' scales

    std::string text() const {
        return fmt::format("{} x {}, {} token{}{}{}{}", rows, cols, tokens, tokens == 1 ? "" : "s",
                           recorded == 0 ? "" : fmt::format(" of {}", recorded),
                           max_rows == 0 ? "" : fmt::format(", slices of {} rows", max_rows),
                           exponent == 0 ? "" : fmt::format(", scales of 2^{}", exponent));
    }
};

// The bytes of the matrix on the device, and as much again for the buffers beside it.
uint64_t memory(GgmlType type, const MatrixShape& shape) { return 2 * gpu::device_row_bytes(type, shape.cols) * shape.rows; }

Outcome embed(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const RandomTensor w(rig.random, type, shape.rows, shape.cols);
    std::vector<uint32_t> ids(shape.tokens);
    for (uint32_t& id : ids) id = rig.random.below(shape.rows);
    ids.back() = shape.rows - 1; // in the last slice
    std::vector<float> want(ids.size() * shape.cols);
    ref::embed(rig.pool, want, w.tensor, ids);
    const Buffer h = rig.output(want.size()), on_device = rig.upload(std::as_bytes(std::span(ids))),
                 context = rig.context(0, shape.tokens);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave);
    rig.run(tuning, context, shape.tokens + 3, 128, [&](gpu::Pass& pass) { gpu::embed(pass, h, matrix, on_device); });
    return rig.check(h, want, decode_limit);
}

// Kernels of blocks take whole tiles of tokens, so x and y have room for all of the last tile.
// Rows of x and y in a pass that is recorded for a shape's tokens.
uint32_t padded_tokens(const gpu::Tuning& tuning, const MatrixShape& shape) {
    const uint32_t max = std::max(shape.tokens, shape.recorded);
    return max == 1 ? 1 : (max + tuning.matmul_tokens - 1) / tuning.matmul_tokens * tuning.matmul_tokens;
}

// A single token takes matvec, as in a forward pass.
gpu::MatmulKernel kernel_for(const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const uint32_t padded = padded_tokens(tuning, shape);
    return padded == 1 ? gpu::MatmulKernel::matvec : gpu::matmul_kernel(tuning, type, padded);
}

double limit_for(const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    return limit_of(tuning, type, kernel_for(tuning, type, shape), shape.cols);
}

Buffer rounded_inputs(Rig& rig, const gpu::Tuning& tuning, uint32_t tokens, const MatrixShape& shape) {
    return rig.output(gpu::rounded_bytes(tuning, tokens, shape.cols) / 4);
}

// y = W x and y += W x. Rows past the last token may hold anything.
Outcome matmul(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const RandomTensor w(rig.random, type, shape.rows, shape.cols, shape.exponent);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave);
    const uint32_t padded = padded_tokens(tuning, shape);
    const double limit = limit_for(tuning, type, shape);
    std::vector<float> x = rig.random.normals(size_t(shape.tokens) * shape.cols), want(size_t(shape.tokens) * shape.rows),
                       sum = rig.random.normals(want.size());
    ref::matmul(rig.pool, want, w.tensor, x);
    const double norm = expected_norm(w.tensor, x);
    x.resize(size_t(padded) * shape.cols, NAN);
    std::vector<float> sum_before = sum;
    sum_before.resize(size_t(padded) * shape.rows, NAN);
    for (size_t i = 0; i < sum.size(); i++) sum[i] += want[i]; // as the reference accumulates
    const Buffer x_buffer = rig.upload(x), y = rig.output(size_t(padded) * shape.rows), y_sum = rig.output(sum_before),
                 context = rig.context(0, shape.tokens), rounded = rounded_inputs(rig, tuning, padded, shape);
    rig.run(tuning, context, padded, 128, [&](gpu::Pass& pass) {
        gpu::Inputs inputs{x_buffer, rounded};
        gpu::matmul(pass, y, matrix, inputs);
        gpu::matmul(pass, y_sum, matrix, inputs, true);
    });
    return worse(rig.check(y, want, limit, norm), rig.check(y_sum, sum, limit, norm));
}

// y = W x of a matrix with few rows, and of more tokens than a vector's kernel has at a time.
Outcome matmul_narrow(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const RandomTensor w(rig.random, type, shape.rows, shape.cols);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave);
    const uint32_t padded = padded_tokens(tuning, shape);
    std::vector<float> x = rig.random.normals(size_t(shape.tokens) * shape.cols), want(size_t(shape.tokens) * shape.rows);
    ref::matmul(rig.pool, want, w.tensor, x);
    const double norm = expected_norm(w.tensor, x);
    x.resize(size_t(padded) * shape.cols, NAN);
    const Buffer x_buffer = rig.upload(x), y = rig.output(size_t(padded) * shape.rows), context = rig.context(0, shape.tokens),
                 rounded = rounded_inputs(rig, tuning, padded, shape);
    rig.run(tuning, context, padded, 128, [&](gpu::Pass& pass) {
        gpu::Inputs inputs{x_buffer, rounded};
        gpu::matmul_narrow(pass, y, matrix, inputs);
    });
    return rig.check(y, want, limit_for(tuning, type, shape), norm);
}

// y[i] = silu((W x)[2 i]) * (W x)[2 i + 1], for one token.
// The error of a product of two sums is measured against the expected size of the product, and not against the result: if silu
// is near 0, the result is small and its error is not.
Outcome matvec_gated(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const RandomTensor w(rig.random, type, shape.rows, shape.cols);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave);
    const std::vector<float> x = rig.random.normals(shape.cols);
    std::vector<float> product(shape.rows), gate, up;
    ref::matmul(rig.pool, product, w.tensor, x);
    for (size_t i = 0; i < product.size(); i++) (i % 2 == 0 ? gate : up).push_back(product[i]);
    ref::swiglu(rig.pool, gate, up);
    const Buffer x_buffer = rig.upload(x), y = rig.output(gate.size()), context = rig.context(0, 1);
    rig.run(tuning, context, 1, 128, [&](gpu::Pass& pass) { gpu::matvec_gated(pass, y, matrix, x_buffer); });
    const double sums = expected_norm(w.tensor, x); // of rows / 2 for each factor
    return rig.check(y, gate, std::max(gated_limit, 4 * limit_for(tuning, type, shape)),
                     sums * sums / shape.rows * std::sqrt(shape.rows / 2.0));
}

// h += W x, then z = W2 norm(h), z += W2 norm(h), and the gated z, by kernels that fuse the norm, against kernels that do not.
Outcome matvec_normed(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    constexpr float eps = 1e-6f;
    const RandomTensor w(rig.random, type, shape.rows, shape.cols), w2(rig.random, type, 50, shape.rows);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave),
                      matrix2 = rig.matrix(w2.tensor, 0, tuning.weight_interleave);
    const std::vector<float> x = rig.random.normals(shape.cols), h = rig.random.normals(shape.rows),
                             norm = rig.random.normals(shape.rows), bias = rig.random.normals(50);
    std::vector<float> product(shape.rows), want_h = h, normed(shape.rows), want(50), gate, up;
    ref::matmul(rig.pool, product, w.tensor, x);
    for (size_t i = 0; i < h.size(); i++) want_h[i] += product[i];
    ref::rms_norm(rig.pool, normed, want_h, norm, eps);
    ref::matmul(rig.pool, want, w2.tensor, normed);
    for (size_t i = 0; i < want.size(); i++) (i % 2 == 0 ? gate : up).push_back(want[i]);
    ref::swiglu(rig.pool, gate, up);

    const uint32_t h_floats = (shape.rows + 63) / 64 * 64;
    std::vector<float> h_before = h;
    h_before.resize(h_floats + gpu::normed_floats(shape.rows), NAN); // sums that are not written may not be read
    const Buffer x_buffer = rig.upload(x), norm_buffer = rig.upload(norm), h_buffer = rig.upload(h_before),
                 y = rig.output(want.size()), y_added = rig.output(bias), y_gated = rig.output(gate.size()),
                 context = rig.context(0, 1);
    rig.run(tuning, context, 1, 128, [&](gpu::Pass& pass) {
        const gpu::Normed behind = gpu::matvec_residual(pass, h_buffer, h_floats, matrix, x_buffer, norm_buffer);
        gpu::matvec_normed(pass, y, matrix2, behind, eps);
        gpu::matvec_normed(pass, y_added, matrix2, behind, eps, MATVEC_ADD);
        gpu::matvec_normed(pass, y_gated, matrix2, behind, eps, MATVEC_GATED);
    });
    const double terms = expected_norm(w2.tensor, normed), limit = limit_for(tuning, type, shape);
    const Outcome products =
        worse(rig.check(y, want, 2 * limit, terms), rig.check(y_gated, gate, std::max(gated_limit, 4 * limit)));
    for (size_t i = 0; i < want.size(); i++) want[i] += bias[i];
    return worse(products, rig.check(y_added, want, 2 * limit, terms));
}

// Tokens 2^40 times as large and as small as others, and one with an infinity and one with a NaN: each keeps its own scale.
Outcome far_apart(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const RandomTensor w(rig.random, type, shape.rows, shape.cols);
    const gpu::Matrix matrix = rig.matrix(w.tensor, shape.max_rows, tuning.weight_interleave);
    std::vector<float> x = rig.random.normals(size_t(padded_tokens(tuning, shape)) * shape.cols),
                       want(x.size() / shape.cols * shape.rows);
    for (size_t i = 0; i < x.size(); i++) x[i] = std::ldexp(x[i], 40 * (int(i / shape.cols % 3) - 1));
    x[2 * shape.cols - 1] = INFINITY;
    x[4 * shape.cols + 7] = NAN;
    ref::matmul(rig.pool, want, w.tensor, x);
    const Buffer x_buffer = rig.upload(x), y = rig.output(want.size()), context = rig.context(0, shape.tokens),
                 rounded = rounded_inputs(rig, tuning, padded_tokens(tuning, shape), shape);
    rig.run(tuning, context, padded_tokens(tuning, shape), 128, [&](gpu::Pass& pass) {
        gpu::Inputs inputs{x_buffer, rounded};
        gpu::matmul(pass, y, matrix, inputs);
    });
    const std::vector<uint32_t> words = rig.read(y);
    const double limit = limit_for(tuning, type, shape);
    Outcome outcome{true, 0, limit, {}};
    for (uint32_t t = 0; t < shape.tokens; t++) {
        const auto of = [&](auto& all) { return std::span(all).subspan(size_t(t) * shape.rows, shape.rows); };
        std::vector<float> got(shape.rows);
        std::ranges::transform(of(words), got.begin(), [](uint32_t bits) { return std::bit_cast<float>(bits); });
        const bool finite = std::ranges::any_of(got, [](float v) { return std::isfinite(v); });
        if (t == 1 || t == 4)
            outcome = worse(outcome, {!finite, finite ? INFINITY : 0, limit, finite ? "an infinity or NaN was lost" : ""});
        else
            outcome = worse(outcome, compare(got, of(want), limit,
                                             expected_norm(w.tensor, std::span(x).subspan(size_t(t) * shape.cols, shape.cols))));
    }
    return outcome;
}

using Body = Outcome (*)(Rig&, const gpu::Tuning&, GgmlType, const MatrixShape&);

void add_matrix(Rows& rows, const char* kernel, Body body, const NamedTuning& variant, GgmlType type, const MatrixShape& shape,
                bool full = false) {
    rows.push_back({.kernel = kernel,
                    .variant = fmt::format("{}, {}", type_name(type), variant.name),
                    .shape = shape.text(),
                    .run = [=, tuning = variant.tuning](Rig& rig) { return body(rig, tuning, type, shape); },
                    .device_bytes = memory(type, shape),
                    .full_only = full});
}

// The name in the table is that of the kernel which a pass would choose for this tuning, format and number of tokens, so that a
// wrong row names the kernel to look at.
const char* kernel_of(const gpu::Tuning& tuning, GgmlType type, const MatrixShape& shape) {
    const bool digits = gpu::multiplies_digits(tuning, type);
    if (shape.tokens == 1) return digits ? "matvec_dot" : "matvec";
    switch (kernel_for(tuning, type, shape)) {
    case gpu::MatmulKernel::tiled: return "matmul_tiled";
    case gpu::MatmulKernel::dot: return "matmul_dot";
    case gpu::MatmulKernel::coopmat: return "matmul_coopmat";
    case gpu::MatmulKernel::matvec: return digits ? "matvec_dot, several vectors" : "matvec, several vectors";
    default: return "matmul";
    }
}

bool has_scales(GgmlType type) { return block_format(type)->scales.scale >= 0; }
// The fewest columns of a row, of which groups of 256 may be incomplete; 256 if they are the format's blocks.
uint32_t least_columns(GgmlType type) { return std::max(block_format(type)->elements, 32u); }

void add_products(Rows& rows, const NamedTuning& variant, GgmlType type) {
    const auto row = [&](const MatrixShape& shape) {
        add_matrix(rows, kernel_of(variant.tuning, type, shape), matmul, variant, type, shape);
    };
    // Other sizes of tiles for some formats only: drivers take long to build these.
    const bool some = type == GgmlType::F32 || type == GgmlType::Q8_0 || type == GgmlType::Q4_K,
               digits = gpu::multiplies_digits(variant.tuning, type);
    if (variant.name == "small tiles" && !some) return;
    if (variant.name == vectors_in_digits && !digits) return;
    for (const MatrixShape& shape : {MatrixShape{1, 256, 1}, {257, 768, 1, 100}, {1031, 2816, 1}}) row(shape);
    const uint32_t least = least_columns(type);
    if (least < 256)
        for (const uint32_t times : {1u, 3u, 9u}) row({13, times * least, 1});
    else
        row({13, 4096, 1});
    for (const MatrixShape& shape : {MatrixShape{2, 256, 1}, {258, 768, 1, 100}})
        add_matrix(rows, digits ? "matvec_dot, gated" : "matvec, gated", matvec_gated, variant, type, shape);
    if (variant.tuning.fold_norms)
        for (const MatrixShape& shape : {MatrixShape{256, 512, 1}, {768, 256, 1, 300}})
            add_matrix(rows, digits ? "matvec_dot, normed" : "matvec, normed", matvec_normed, variant, type, shape);
    if (variant.name != "own" && variant.name != vectors_in_digits && !some) return;
    if (has_scales(type)) // scales of -10 are denormal fp16 numbers, and some of 14 are not raised: model/gpu/device_layout.h
        for (const int exponent : {-10, 14}) row({67, 512, 1, 0, 0, exponent});
    for (const MatrixShape& shape : {MatrixShape{7, 256, 2}, {67, 512, 8, 30}, {129, 2816, 9}, {64, 1024, 17}}) row(shape);
    if (least < 256) row({13, 3 * least, 3});
    if (type == GgmlType::F32 && variant.tuning.matvec_lanes > 1)
        for (const MatrixShape& shape : {MatrixShape{128, 256, 9}, {67, 512, 41, 30, 70}})
            add_matrix(rows, "matvec, groups of vectors", matmul_narrow, variant, type, shape);
}

// Tails of tiles, and more workgroups than tokens. Formats of one kind decode alike: some are run with every tile, all of them
// with the smallest.
void add_tiles(Rows& rows, const NamedTuning& variant, GgmlType type) {
    const bool coopmat = variant.tuning.matmul_coopmat;
    const bool some = type == GgmlType::F32 || type == GgmlType::Q8_0 || type == GgmlType::Q4_K;
    if ((coopmat && type == GgmlType::F32) || (!some && variant.tuning.shared_bytes > 16384)) return;
    if (variant.tuning.matmul_dot && gpu::matmul_kernel(variant.tuning, type, 64) != gpu::MatmulKernel::dot) return;
    const auto row = [&](const MatrixShape& shape, Body body = matmul) {
        add_matrix(rows, kernel_of(variant.tuning, type, shape), body, variant, type, shape);
    };
    row({67, 512, 41, 30, 150});
    row({131, 1792, 9});
    if (const uint32_t least = least_columns(type); least < 256) row({13, 3 * least, 9});
    if (!some) return;
    row({300, 256, 66});
    row({1, 256, 1 + variant.tuning.matmul_tokens});
    row({33, 512, 16, 0, 30}, far_apart);
}

// The sizes of real models. Two of them do not fit the 128 MiB that every device can bind: their last slice begins beyond.
void add_real_sizes(Rows& rows, const NamedTuning& variant) {
    const auto row = [&](GgmlType type, const MatrixShape& shape, bool full = false) {
        add_matrix(rows, kernel_of(variant.tuning, type, shape), matmul, variant, type, shape, full);
    };
    add_matrix(rows, "embed", embed, variant, GgmlType::Q8_0, {151936, 1024, 3}); // Qwen3-0.6B: 162 MiB
    row(GgmlType::Q8_0, {151936, 1024, 1});                                       // its head
    row(GgmlType::F32, {6000, 6144, 1});                                          // 141 MiB, cut by the limit and not by rows
    row(GgmlType::Q4_K, {17408, 5120, 1});                                        // Qwen3-14B
    row(GgmlType::Q6_K, {5120, 17408, 1});                                        // the same model, down
    row(GgmlType::Q4_K, {512, 17408, 11, 300});                                   // slices of it
    row(GgmlType::Q8_0, {3001, 5120, 8, 1000});
    row(GgmlType::Q8_0, {151936, 1024, 9}, true);
    row(GgmlType::Q4_K, {17408, 5120, 64}, true);
    row(GgmlType::Q6_K, {5120, 17408, 64}, true);
    row(GgmlType::Q6_K, {151936, 5120, 1}, true); // 608 MiB
}

} // namespace

void add_weights(Rows& rows, const Capabilities& device) {
    const std::vector<NamedTuning> all = variants(device);
    for (const NamedTuning& variant : all)
        for (const GgmlType type : weight_formats)
            for (const MatrixShape& shape : {MatrixShape{1, 256, 1, 1}, {37, 512, 5, 10}, {300, 256, 5}, {5, 2816, 3}})
                add_matrix(rows, "embed", embed, variant, type, shape);
    for (const NamedTuning& variant : all)
        for (const GgmlType type : weight_formats) add_products(rows, variant, type);
    const std::vector<NamedTuning> tiled = tile_variants(device);
    for (const NamedTuning& variant : tiled)
        for (const GgmlType type : weight_formats) add_tiles(rows, with_table(variant, type), type);
    const auto none = [&](const char* kernel, bool gpu::Tuning::*has, const char* why) {
        if (std::ranges::none_of(tiled, [&](const NamedTuning& variant) { return variant.tuning.*has; }))
            rows.push_back({.kernel = kernel, .variant = "every format", .shape = "every tile", .lacks = why});
    };
    none("matmul_dot", &gpu::Tuning::matmul_dot, "the device has no dot products of int8 numbers");
    none("matmul_coopmat", &gpu::Tuning::matmul_coopmat,
         TQ_COOPERATIVE_MATRIX ? "the device does not multiply matrices of fp16 in a subgroup"
                               : "the shader compiler of this build knows no cooperative matrices");
    add_real_sizes(rows, all[0]);
}

} // namespace tq::conformance
