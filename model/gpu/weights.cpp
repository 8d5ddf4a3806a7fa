#include "model/gpu/weights.h"
#include "base/ensure.h"
#include "model/gpu/device_layout.h"
#include "runtime/uploader.h"
#include "shaders.gen.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

namespace tq::gpu {
namespace {

bool pairs(const LayerWeights& w) { return w.ffn_gate.type == w.ffn_up.type; }

class WeightUploader {
  public:
    WeightUploader(Device& device, ThreadPool& pool, uint32_t interleave, uint64_t total_bytes, const LoadProgress& on_progress)
        : device_(device), pool_(pool), uploader_(device), interleave_(interleave), total_bytes_(total_bytes),
          on_progress_(on_progress) {}

    Matrix matrix(const Tensor& tensor) { return matrix({&tensor, 1}); }
    std::vector<Matrix> gate_up(const LayerWeights& weights);
    std::vector<float> floats(const Tensor& tensor);
    std::vector<float> floats(const std::optional<Tensor>& tensor);
    Buffer vector(const Tensor& tensor);
    std::optional<Buffer> vector(const std::optional<Tensor>& tensor);
    void finish() { uploader_.finish(); }

  private:
    // Returns the matrix of the interleaved rows of tensors of one type and shape.
    Matrix matrix(std::span<const Tensor> tensors);
    // Returns false where a scale cannot be raised (device_layout.h).
    bool fill(std::span<const Tensor> tensors, const Matrix& matrix, const RowLayout& layout);
    bool rows(std::span<const Tensor> tensors, const MatrixSlice& slice, const RowLayout& layout);
    void count(uint64_t bytes);

    Device& device_;
    ThreadPool& pool_;
    Uploader uploader_;
    const uint32_t interleave_;
    uint64_t done_bytes_ = 0, total_bytes_;
    const LoadProgress& on_progress_;
};

void WeightUploader::count(uint64_t bytes) {
    done_bytes_ += bytes;
    if (on_progress_ && !on_progress_(done_bytes_, total_bytes_)) throw LoadStopped();
}

Matrix WeightUploader::matrix(std::span<const Tensor> tensors) {
    const Capabilities& caps = device_.capabilities();
    const Tensor& tensor = tensors[0];
    const auto step = uint32_t(tensors.size()), all_rows = tensor.rows * step;
    const uint64_t row = device_row_bytes(tensor.type, tensor.cols),
                   limit = std::min(caps.storage_range_bytes, caps.allocation_bytes);
    const uint32_t unit = std::lcm(interleave_, step);
    const uint32_t most = uint32_t(std::min<uint64_t>(limit / row, max_slice_rows)) / unit * unit;
    Matrix matrix{tensor.type, all_rows, tensor.cols, interleave_, {}};
    for (uint32_t first = 0; first < all_rows; first += most) {
        const uint32_t count = std::min(most, all_rows - first);
        matrix.slices.push_back(
            {device_.allocate(tensor.name, device_matrix_bytes(tensor.type, count, tensor.cols, interleave_)), first, count});
    }
    RowLayout layout{tensor.type, tensor.cols, interleave_, true};
    const uint64_t before = done_bytes_;
    if (!fill(tensors, matrix, layout)) {
        layout.raised = false;
        done_bytes_ = before;
        uploader_.finish();
        fill(tensors, matrix, layout);
    }
    matrix.scale_unit = layout.scale_unit();
    return matrix;
}

bool WeightUploader::fill(std::span<const Tensor> tensors, const Matrix& matrix, const RowLayout& layout) {
    return std::ranges::all_of(matrix.slices, [&](const MatrixSlice& slice) { return rows(tensors, slice, layout); });
}

// Repacks a slice piece by piece directly into the uploader's memory.
bool WeightUploader::rows(std::span<const Tensor> tensors, const MatrixSlice& slice, const RowLayout& layout) {
    const Tensor& tensor = tensors[0];
    const uint64_t row = device_row_bytes(tensor.type, tensor.cols);
    const auto step = uint32_t(tensors.size()), unit = std::lcm(interleave_, step);
    const uint64_t fitting = uploader_.max_piece_bytes() / row / unit;
    const uint32_t most = uint32_t(std::max<uint64_t>(1, fitting)) * unit;
    std::atomic<bool> all = true;
    for (uint32_t r = 0; r < slice.rows && all; r += most) {
        const uint32_t here = std::min(most, slice.rows - r), first = slice.first_row + r;
        const uint64_t bytes = device_matrix_bytes(tensor.type, here, tensor.cols, interleave_);
        const std::span to = uploader_.begin(View(slice.buffer, r * row, bytes));
        if (here % interleave_ != 0) std::memset(to.data() + bytes - interleave_ * row, 0, interleave_ * row);
        for (uint32_t k = 0; k < step; k++)
            read_rows(pool_, tensors[k], first / step, here / step, [&](uint32_t at, std::span<const std::byte> rows) {
                if (!repack_rows(layout, to, rows, (at - first / step) * step + k, step)) all = false;
            });
        uploader_.end();
        count(here * tensor.row_bytes());
    }
    return all;
}

std::vector<Matrix> WeightUploader::gate_up(const LayerWeights& w) {
    std::vector<Matrix> out;
    if (pairs(w)) {
        const Tensor both[] = {w.ffn_gate, w.ffn_up};
        out.push_back(matrix(both));
    } else {
        out.push_back(matrix(w.ffn_gate));
        out.push_back(matrix(w.ffn_up));
    }
    return out;
}

std::vector<float> WeightUploader::floats(const Tensor& tensor) {
    read_rows(pool_, tensor, 0, 1, [](uint32_t, std::span<const std::byte>) {}); // checks that it is finite
    count(tensor.bytes());
    return to_floats(tensor);
}

Buffer WeightUploader::vector(const Tensor& tensor) {
    const std::vector<float> values = floats(tensor);
    Buffer buffer = device_.allocate(tensor.name, values.size() * 4);
    std::memcpy(uploader_.begin(buffer).data(), values.data(), values.size() * 4);
    uploader_.end();
    return buffer;
}

std::vector<float> WeightUploader::floats(const std::optional<Tensor>& tensor) {
    return tensor ? floats(*tensor) : std::vector<float>();
}

std::optional<Buffer> WeightUploader::vector(const std::optional<Tensor>& tensor) {
    return tensor ? std::optional(vector(*tensor)) : std::nullopt;
}

uint64_t matrix_bytes(const Tensor& t, uint32_t interleave) { return device_matrix_bytes(t.type, t.rows, t.cols, interleave); }

} // namespace

size_t family_member(GgmlType type) {
    std::string name = block_format(type)->name;
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const auto found = std::ranges::find(shader::weight_formats, name);
    ENSURE(found != std::end(shader::weight_formats), "shaders/shaders.cmake has no {}", name);
    return size_t(found - std::begin(shader::weight_formats));
}

uint64_t device_bytes(const Weights& weights, uint32_t interleave) {
    uint64_t bytes = matrix_bytes(weights.token_embd, interleave) + weights.output_norm.cols * 4 +
                     (weights.tied ? 0 : matrix_bytes(weights.output, interleave));
    for (const LayerWeights& w : weights.layers) {
        for (const Tensor* t : {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_down})
            bytes += matrix_bytes(*t, interleave);
        bytes += pairs(w) ? device_matrix_bytes(w.ffn_gate.type, 2 * w.ffn_gate.rows, w.ffn_gate.cols, interleave)
                          : matrix_bytes(w.ffn_gate, interleave) + matrix_bytes(w.ffn_up, interleave);
        if (w.ffn_gate_inp) bytes += matrix_bytes(*w.ffn_gate_inp, interleave);
        for (const Tensor* t : {&w.attn_norm, &w.ffn_norm}) bytes += uint64_t(t->cols) * 4;
        for (const std::optional<Tensor>* t : {&w.attn_q_bias, &w.attn_k_bias, &w.attn_v_bias})
            if (*t) bytes += uint64_t((*t)->cols) * 4;
    }
    return bytes;
}

DeviceWeights upload_weights(Device& device, ThreadPool& pool, const Weights& weights, uint32_t interleave,
                             const LoadProgress& on_progress) {
    WeightUploader up(device, pool, interleave, weights.bytes(), on_progress);
    DeviceWeights result{up.matrix(weights.token_embd), {}, up.vector(weights.output_norm), {}};
    for (const LayerWeights& w : weights.layers)
        result.layers.push_back({up.matrix(w.attn_q), up.matrix(w.attn_k), up.matrix(w.attn_v), up.matrix(w.attn_output),
                                 up.gate_up(w), up.matrix(w.ffn_down), up.vector(w.attn_norm), up.vector(w.ffn_norm),
                                 up.floats(w.attn_q_norm), up.floats(w.attn_k_norm),
                                 w.attn_k_bias ? to_floats(*w.attn_k_bias) : std::vector<float>(), up.vector(w.attn_q_bias),
                                 up.vector(w.attn_k_bias), up.vector(w.attn_v_bias),
                                 w.ffn_gate_inp ? std::optional(up.matrix(*w.ffn_gate_inp)) : std::nullopt});
    if (!weights.tied) result.own_output.push_back(up.matrix(weights.output));
    up.finish();
    return result;
}

} // namespace tq::gpu
