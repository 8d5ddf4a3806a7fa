#include "model/weights/tensor.h"
#include "base/ensure.h"

namespace tq {
namespace {

class MadeRows final : public RowSource {
  public:
    MadeRows(uint64_t row_bytes, MakeRow make_row) : row_bytes_(row_bytes), make_row_(std::move(make_row)) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        ENSURE(to.size() == count * row_bytes_, "{} bytes for {} rows of {}", to.size(), count, row_bytes_);
        for (uint32_t i = 0; i < count; i++) make_row_(to.subspan(i * row_bytes_, row_bytes_), first + i);
    }

  private:
    const uint64_t row_bytes_;
    const MakeRow make_row_;
};

} // namespace

Tensor made_tensor(std::string name, GgmlType type, uint32_t rows, uint32_t cols, MakeRow make_row) {
    Tensor out{.name = std::move(name), .type = type, .rows = rows, .cols = cols, .data = {}};
    out.source = std::make_shared<MadeRows>(out.row_bytes(), std::move(make_row));
    return out;
}

std::span<const std::byte> Tensor::read(uint32_t first, uint32_t count, std::vector<std::byte>& scratch) const {
    ENSURE(first <= rows && count <= rows - first, "{}: rows {} + {} of {}", name, first, count, rows);
    if (!source) return data.subspan(first * row_bytes(), count * row_bytes());
    if (const std::span mapped = source->mapped_rows(first, count); !mapped.empty()) return mapped;
    scratch.resize(count * row_bytes());
    source->make_rows(scratch, first, count);
    return scratch;
}

std::vector<float> Tensor::row_factors(uint32_t first, uint32_t count) const {
    std::vector<float> out;
    for (uint32_t r = first; r < first + count && !factors.empty(); r++) out.push_back(factor(r));
    return out;
}

void Tensor::apply_factor(uint32_t r, std::span<float> y) const {
    if (factors.empty()) return;
    const float by = factor(r);
    for (float& v : y) v *= by;
}

void Tensor::decode(uint32_t r, std::span<float> y, std::vector<std::byte>& scratch) const {
    decode_row(type, y, read(r, 1, scratch));
    apply_factor(r, y);
}

std::vector<float> to_floats(const Tensor& tensor) {
    std::vector<float> values(size_t(tensor.rows) * tensor.cols);
    std::vector<std::byte> scratch;
    for (uint32_t r = 0; r < tensor.rows; r++)
        tensor.decode(r, std::span(values).subspan(size_t(r) * tensor.cols, tensor.cols), scratch);
    return values;
}

} // namespace tq
