// Repacks tensors for the shaders and uploads them.
#pragma once
#include "model/gpu/device_layout.h"
#include "model/gpu/weights.h"
#include "runtime/uploader.h"

namespace tq::gpu {

// Whether the matrices of gate and up are one on the device (LayerMatrices::ffn_gate_up).
inline bool are_pairs(const Tensor& gate, const Tensor& up) { return gate.type == up.type; }

class WeightUploader {
  public:
    // total_bytes: for on_progress. All arguments must outlive it. Its functions throw what upload_weights() does.
    WeightUploader(Device& device, ThreadPool& pool, uint32_t interleave, uint64_t total_bytes, const LoadProgress& on_progress)
        : device_(device), pool_(pool), uploader_(device), interleave_(interleave), total_bytes_(total_bytes),
          on_progress_(on_progress) {}

    Matrix matrix(const Tensor& tensor) { return matrix({&tensor, 1}); }
    std::vector<Matrix> gate_up(const Tensor& gate, const Tensor& up);
    std::vector<float> floats(const Tensor& tensor);
    std::vector<float> floats(const std::optional<Tensor>& tensor);
    Buffer vector(const Tensor& tensor) { return vector(tensor.name, floats(tensor)); }
    Buffer vector(const std::string& name, std::span<const float> values);
    std::optional<Buffer> vector(const std::optional<Tensor>& tensor);
    void finish() { uploader_.finish(); }

    // Returns the matrix of the interleaved rows of tensors of one type and shape; its slices have the sizes of buffers only.
    Matrix shape_of(std::span<const Tensor> tensors) const;
    // Writes these rows into the buffers of their matrix, with raised scales (device_layout.h) if that is possible.
    void fill(std::span<const Tensor> tensors, Matrix& matrix);
    // The same again, with scales raised or not as the matrix has them. Returns false if one cannot be raised.
    bool fill_again(std::span<const Tensor> tensors, const Matrix& matrix);

  private:
    Matrix matrix(std::span<const Tensor> tensors);
    bool rows(std::span<const Tensor> tensors, const MatrixSlice& slice, const RowLayout& layout);
    void count(uint64_t bytes);

    Device& device_;
    ThreadPool& pool_;
    Uploader uploader_;
    const uint32_t interleave_;
    uint64_t done_bytes_ = 0, total_bytes_;
    const LoadProgress& on_progress_;
};

} // namespace tq::gpu
