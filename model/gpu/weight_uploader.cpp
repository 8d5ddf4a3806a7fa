// Uploads a model's matrices in pieces of a staging buffer: while the device copies one piece, the pool's threads read and repack
// the next directly into the other (runtime/uploader.h).
// A matrix larger than a binding is cut into slices of whole groups of rows. gate and up, if they are alike, become one matrix
// with their rows in turn (step 2), so that one kernel reads both of a row. All sizes are multiples of lcm(interleave, step)
// rows, since a group must not be cut.
#include "model/gpu/weight_uploader.h"
#include "model/gpu/device_layout.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

namespace tq::gpu {

void WeightUploader::count(uint64_t bytes) {
    done_bytes_ += bytes;
    if (on_progress_ && !on_progress_(done_bytes_, total_bytes_)) throw LoadStopped();
}

Matrix WeightUploader::shape_of(std::span<const Tensor> tensors) const {
    const Capabilities& caps = device_.capabilities();
    const Tensor& tensor = tensors[0];
    const auto step = uint32_t(tensors.size()), all_rows = tensor.rows * step;
    const uint64_t row = device_row_bytes(tensor.type, tensor.cols),
                   limit = std::min(caps.storage_range_bytes, caps.allocation_bytes) - device_grid(tensor.type).size();
    const uint32_t unit = std::lcm(interleave_, step);
    const uint32_t max = uint32_t(std::min<uint64_t>(limit / row, max_slice_rows)) / unit * unit;
    Matrix matrix{.type = tensor.type, .rows = all_rows, .cols = tensor.cols, .interleave = interleave_, .slices = {}};
    for (uint32_t first = 0; first < all_rows; first += max) {
        const uint32_t count = std::min(max, all_rows - first);
        matrix.slices.push_back(
            {Buffer::of_size(device_matrix_bytes(tensor.type, count, tensor.cols, interleave_)), first, count});
    }
    return matrix;
}

Matrix WeightUploader::matrix(std::span<const Tensor> tensors) {
    Matrix matrix = shape_of(tensors);
    for (MatrixSlice& slice : matrix.slices) slice.buffer = device_.allocate(tensors[0].name, slice.buffer.bytes());
    fill(tensors, matrix);
    return matrix;
}

// First with raised scales. If one cannot be raised, all is written again without, and progress is counted from before.
void WeightUploader::fill(std::span<const Tensor> tensors, Matrix& matrix) {
    RowLayout layout{matrix.type, matrix.cols, interleave_, true};
    matrix.scale_unit = layout.scale_unit();
    const uint64_t before = done_bytes_;
    if (fill_again(tensors, matrix)) return;
    layout.raised = false;
    matrix.scale_unit = layout.scale_unit();
    done_bytes_ = before;
    uploader_.finish();
    fill_again(tensors, matrix);
}

bool WeightUploader::fill_again(std::span<const Tensor> tensors, const Matrix& matrix) {
    const RowLayout layout{matrix.type, matrix.cols, interleave_, matrix.scale_unit != 1};
    return std::ranges::all_of(matrix.slices, [&](const MatrixSlice& slice) { return rows(tensors, slice, layout); });
}

// Repacks a slice piece by piece directly into the uploader's memory.
bool WeightUploader::rows(std::span<const Tensor> tensors, const MatrixSlice& slice, const RowLayout& layout) {
    const Tensor& tensor = tensors[0];
    const uint64_t row = device_row_bytes(tensor.type, tensor.cols);
    const auto step = uint32_t(tensors.size()), unit = std::lcm(interleave_, step);
    const uint64_t fitting = uploader_.max_piece_bytes() / row / unit;
    const uint32_t max = uint32_t(std::max<uint64_t>(1, fitting)) * unit;
    const std::span<const std::byte> grid = device_grid(tensor.type);
    if (!grid.empty()) {
        std::ranges::copy(grid, uploader_.begin(View(slice.buffer, 0, grid.size())).begin());
        uploader_.end();
    }
    std::atomic<bool> all = true;
    for (uint32_t r = 0; r < slice.rows && all; r += max) {
        const uint32_t here = std::min(max, slice.rows - r), first = slice.first_row + r;
        const uint64_t bytes = device_rows_bytes(tensor.type, here, tensor.cols, interleave_);
        const std::span to = uploader_.begin(View(slice.buffer, grid.size() + r * row, bytes));
        if (here % interleave_ != 0) std::memset(to.data() + bytes - interleave_ * row, 0, interleave_ * row);
        try {
            for (uint32_t k = 0; k < step; k++)
                read_rows(pool_, tensors[k], first / step, here / step, [&](uint32_t at, std::span<const std::byte> rows) {
                    const auto factors = tensors[k].row_factors(at, uint32_t(rows.size() / tensor.row_bytes()));
                    if (!repack_rows(layout, to, rows, (at - first / step) * step + k, step, factors)) all = false;
                });
        } catch (...) { // the next layers of a stream may still be read
            uploader_.cancel();
            throw;
        }
        uploader_.end();
        count(here * tensor.row_bytes());
    }
    return all;
}

std::vector<Matrix> WeightUploader::gate_up(const Tensor& gate, const Tensor& up) {
    std::vector<Matrix> out;
    if (are_pairs(gate, up)) {
        const Tensor both[] = {gate, up};
        out.push_back(matrix(both));
    } else {
        out.push_back(matrix(gate));
        out.push_back(matrix(up));
    }
    return out;
}

std::vector<float> WeightUploader::floats(const Tensor& tensor) {
    read_rows(pool_, tensor, 0, 1, [](uint32_t, std::span<const std::byte>) {}); // checks that it is finite
    count(tensor.bytes());
    return to_floats(tensor);
}

Buffer WeightUploader::vector(const std::string& name, std::span<const float> values) {
    Buffer buffer = device_.allocate(name, values.size() * 4);
    uploader_.write(buffer, std::as_bytes(values));
    return buffer;
}

std::vector<float> WeightUploader::floats(const std::optional<Tensor>& tensor) {
    return tensor ? floats(*tensor) : std::vector<float>();
}

std::optional<Buffer> WeightUploader::vector(const std::optional<Tensor>& tensor) {
    return tensor ? std::optional(vector(*tensor)) : std::nullopt;
}

} // namespace tq::gpu
