#include "model/weights/paired_rows.h"
#include "base/ensure.h"
#include "model/weights/stacked_rows.h"

namespace tq {
namespace {

// Returns t with the rows of each head in another order: row i of a head is its row source(i) of now.
template <class Source> Tensor reordered(const Tensor& t, uint32_t head_dim, Source source) {
    ENSURE(head_dim % 2 == 0 && t.rows % head_dim == 0, "{}: {} rows for heads of {}", t.name, t.rows, head_dim);
    std::vector<uint32_t> rows;
    for (uint32_t r = 0; r < t.rows; ++r) rows.push_back(r - r % head_dim + source(r % head_dim));
    return picked(t.name, t, std::move(rows));
}

} // namespace

Tensor rope_split(const Tensor& t, uint32_t head_dim) {
    const uint32_t half = head_dim / 2;
    return reordered(t, head_dim, [half](uint32_t i) { return i < half ? 2 * i : 2 * (i - half) + 1; });
}

Tensor rope_neighbours(const Tensor& t, uint32_t head_dim) {
    return reordered(t, head_dim, [head_dim](uint32_t i) { return i / 2 + (i % 2) * (head_dim / 2); });
}

} // namespace tq
