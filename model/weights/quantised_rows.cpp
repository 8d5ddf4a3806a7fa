#include "model/weights/quantised_rows.h"
#include "base/ensure.h"
#include "model/files/formats/blocks_iq.h"
#include "model/files/formats/quantise.h"

namespace tq {
namespace {

class QuantisedRows final : public RowSource {
  public:
    QuantisedRows(Tensor from, GgmlType type) : from_(std::move(from)), type_(type) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        const size_t bytes = row_bytes(type_, from_.cols);
        ENSURE(to.size() == count * bytes, "{}: {} bytes for {} rows of {}", from_.name, to.size(), count, bytes);
        std::vector<float> values(from_.cols);
        std::vector<std::byte> scratch;
        for (uint32_t r = 0; r < count; ++r) {
            from_.decode(first + r, values, scratch);
            quantise_row(type_, to.subspan(r * bytes, bytes), values);
        }
    }

  private:
    const Tensor from_;
    const GgmlType type_;
};

class Tq2Rows final : public RowSource {
  public:
    explicit Tq2Rows(Tensor from) : from_(std::move(from)) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        const size_t to_block = block_format(GgmlType::TQ2_0)->bytes, from_block = block_format(GgmlType::TQ1_0)->bytes;
        std::vector<std::byte> scratch;
        const std::span from = from_.read(first, count, scratch);
        for (size_t i = 0; i * to_block < to.size(); i++) tq1_0_to_tq2_0(&to[i * to_block], &from[i * from_block]);
    }

  private:
    const Tensor from_;
};

} // namespace

bool can_quantise(const Tensor& t) { return t.type == GgmlType::F32 || t.type == GgmlType::F16 || t.type == GgmlType::BF16; }

Tensor quantised(const Tensor& t, GgmlType type) {
    ENSURE(can_quantise(t) && t.cols % 32 == 0, "{}: {} columns of {}", t.name, t.cols, type_name(t.type));
    return {.name = t.name,
            .type = type,
            .rows = t.rows,
            .cols = t.cols,
            .data = {},
            .source = std::make_shared<QuantisedRows>(t, type)};
}

Tensor in_tq2_0(const Tensor& t) {
    ENSURE(t.type == GgmlType::TQ1_0, "{}: {}", t.name, type_name(t.type));
    return {.name = t.name,
            .type = GgmlType::TQ2_0,
            .rows = t.rows,
            .cols = t.cols,
            .data = {},
            .source = std::make_shared<Tq2Rows>(t)};
}

} // namespace tq
