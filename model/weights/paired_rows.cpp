#include "model/weights/paired_rows.h"
#include "base/ensure.h"
#include "model/weights/stacked_rows.h"
#include <cstring>

namespace tq {
namespace {

class PairedRows final : public RowSource {
  public:
    PairedRows(Tensor from, uint32_t head_dim) : from_(std::move(from)), head_dim_(head_dim) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        const size_t bytes = from_.row_bytes();
        const uint32_t half = head_dim_ / 2;
        std::vector<std::byte> scratch;
        for (uint32_t r = first; r < first + count; ++r) {
            const uint32_t i = r % head_dim_, source = r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
            std::memcpy(to.data() + (r - first) * bytes, from_.read(source, 1, scratch).data(), bytes);
        }
    }

  private:
    const Tensor from_;
    const uint32_t head_dim_;
};

} // namespace

Tensor rope_split(const Tensor& t, uint32_t head_dim) {
    ENSURE(head_dim % 2 == 0 && t.rows % head_dim == 0, "{}: {} rows for heads of {}", t.name, t.rows, head_dim);
    return {.name = t.name,
            .type = t.type,
            .rows = t.rows,
            .cols = t.cols,
            .data = {},
            .source = std::make_shared<PairedRows>(t, head_dim),
            .factors = t.factors};
}

Tensor rope_neighbours(const Tensor& t, uint32_t head_dim) {
    ENSURE(head_dim % 2 == 0 && t.rows % head_dim == 0, "{}: {} rows for heads of {}", t.name, t.rows, head_dim);
    std::vector<uint32_t> rows;
    for (uint32_t r = 0; r < t.rows; ++r) {
        const uint32_t i = r % head_dim;
        rows.push_back(r - i + i / 2 + (i % 2) * (head_dim / 2));
    }
    return picked(t.name, t, std::move(rows));
}

} // namespace tq
