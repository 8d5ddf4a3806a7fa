#include "model/weights/tensor.h"
#include "base/ensure.h"

namespace tq {

std::span<const std::byte> Tensor::read(uint32_t first, uint32_t count, std::vector<std::byte>& scratch) const {
    ENSURE(first <= rows && count <= rows - first, "{}: rows {} + {} of {}", name, first, count, rows);
    if (!source) return data.subspan(first * row_bytes(), count * row_bytes());
    if (const std::span mapped = source->mapped_rows(first, count); !mapped.empty()) return mapped;
    scratch.resize(count * row_bytes());
    source->make_rows(scratch, first, count);
    return scratch;
}

std::vector<float> to_floats(const Tensor& tensor) {
    std::vector<float> values(size_t(tensor.rows) * tensor.cols);
    std::vector<std::byte> scratch;
    for (uint32_t r = 0; r < tensor.rows; r++)
        decode_row(tensor.type, std::span(values).subspan(size_t(r) * tensor.cols, tensor.cols), tensor.read(r, 1, scratch));
    return values;
}

} // namespace tq
