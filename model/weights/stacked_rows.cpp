// Tensors that are made of others when they are read: stacks of experts, rows that are picked in another order, and conversion to
// fp32. Each keeps what it reads from. So a model in another layout needs no copy in memory; a device that uploads rows in pieces
// gets each piece made for it.
// A stack's rows may be mapped directly (mapped_rows()) if a request lies within one part that is itself in a file.
#include "model/weights/stacked_rows.h"
#include "base/ensure.h"
#include <algorithm>
#include <cstring>

namespace tq {
namespace {

class StackedRows final : public RowSource {
  public:
    explicit StackedRows(std::vector<Tensor> parts) : parts_(std::move(parts)) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        const uint32_t rows = parts_[0].rows, end = first + count;
        const size_t bytes = parts_[0].row_bytes();
        std::vector<std::byte> scratch;
        for (uint32_t r = first, next; r < end; r = next) {
            const Tensor& part = parts_[r / rows];
            next = std::min(end, (r / rows + 1) * rows);
            std::memcpy(to.data() + (r - first) * bytes, part.read(r % rows, next - r, scratch).data(), (next - r) * bytes);
        }
    }

    std::span<const std::byte> mapped_rows(uint32_t first, uint32_t count) const override {
        const Tensor& part = parts_[first / parts_[0].rows];
        const uint32_t r = first % part.rows;
        return part.source || count > part.rows - r ? std::span<const std::byte>() : part.slice(r, count).data;
    }

  private:
    const std::vector<Tensor> parts_; // of as many rows each
};

} // namespace

Tensor stacked(std::string name, std::vector<Tensor> parts) {
    const Tensor& first = parts.at(0);
    for (const Tensor& p : parts)
        ENSURE(p.type == first.type && p.cols == first.cols && p.rows == first.rows, "{} and {}", p.name, first.name);
    const auto rows = uint32_t(parts.size() * first.rows);
    std::vector<float> factors;
    if (std::ranges::any_of(parts, [](const Tensor& p) { return !p.factors.empty(); }))
        for (const Tensor& p : parts) factors.push_back(p.factor(0));
    Tensor out{.name = std::move(name),
               .type = first.type,
               .rows = rows,
               .cols = first.cols,
               .data = {},
               .source = nullptr,
               .factors = std::move(factors)};
    out.source = std::make_shared<StackedRows>(std::move(parts));
    return out;
}

Tensor picked(std::string name, const Tensor& from, std::vector<uint32_t> rows) {
    ENSURE(std::ranges::all_of(rows, [&](uint32_t r) { return r < from.rows; }), "{}: {} rows", from.name, from.rows);
    ENSURE(from.factors.size() <= 1, "{}: {} factors", from.name, from.factors.size());
    const auto count = uint32_t(rows.size());
    auto copy_row = [from, rows = std::move(rows)](std::span<std::byte> to, uint32_t row) {
        std::vector<std::byte> scratch;
        std::ranges::copy(from.read(rows[row], 1, scratch), to.begin());
    };
    Tensor out = made_tensor(std::move(name), from.type, count, from.cols, std::move(copy_row));
    out.factors = from.factors;
    return out;
}

Tensor in_f32(const Tensor& t) {
    if (t.type == GgmlType::F32) return t;
    return made_tensor(t.name, GgmlType::F32, t.rows, t.cols, [t](std::span<std::byte> to, uint32_t row) {
        std::vector<float> values(t.cols);
        std::vector<std::byte> scratch;
        t.decode(row, values, scratch);
        std::ranges::copy(std::as_bytes(std::span(values)), to.begin());
    });
}

} // namespace tq
