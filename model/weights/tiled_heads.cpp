#include "model/weights/tiled_heads.h"
#include "model/weights/stacked_rows.h"
#include <cstring>
#include <numeric>

namespace tq {
namespace {

// Runs of elements of each row in another order.
class MovedColumns final : public RowSource {
  public:
    // from_runs[i]: which run of `run` elements the i-th of a row is.
    MovedColumns(Tensor from, uint32_t run, std::vector<uint32_t> from_runs)
        : from_(std::move(from)), run_bytes_(from_.row_bytes() / from_.cols * run), from_runs_(std::move(from_runs)) {}

    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        std::vector<std::byte> scratch;
        std::byte* at = to.data();
        for (uint32_t r = first; r < first + count; ++r) {
            const std::span<const std::byte> row = from_.read(r, 1, scratch);
            for (const uint32_t run : from_runs_) {
                std::memcpy(at, &row[run * run_bytes_], run_bytes_);
                at += run_bytes_;
            }
        }
    }

  private:
    const Tensor from_;
    const uint64_t run_bytes_;
    const std::vector<uint32_t> from_runs_;
};

// Returns the source of each run: `before` runs stay, then value_heads heads of `each` runs are reordered.
std::vector<uint32_t> tiled(const Recurrent& r, uint32_t before, uint32_t each) {
    std::vector<uint32_t> from(before);
    std::iota(from.begin(), from.end(), 0u);
    const uint32_t of_key = r.value_heads / r.key_heads;
    for (uint32_t head = 0; head < r.value_heads; ++head) {
        const uint32_t grouped = head % r.key_heads * of_key + head / r.key_heads;
        for (uint32_t i = 0; i < each; ++i) from.push_back(before + grouped * each + i);
    }
    return from;
}

Tensor moved(const Tensor& t, uint32_t run, std::vector<uint32_t> from_runs) {
    return {.name = t.name,
            .type = t.type,
            .rows = t.rows,
            .cols = t.cols,
            .data = {},
            .source = std::make_shared<MovedColumns>(t, run, std::move(from_runs))};
}

} // namespace

Tensor in_tiled_order(const Tensor& t, const Recurrent& r) {
    if (r.value_heads == r.key_heads || r.tiled_heads) return t;
    const auto is = [&](std::string_view end) { return t.name.ends_with(end); };
    if (is("attn_qkv.weight") && t.rows == r.channels()) return picked(t.name, t, tiled(r, 2 * r.key_size(), r.head_dim));
    if (is("attn_gate.weight")) return picked(t.name, t, tiled(r, 0, r.head_dim));
    if (is("ssm_beta.weight") || is("ssm_alpha.weight")) return picked(t.name, t, tiled(r, 0, 1));
    if (is("ssm_out.weight")) return moved(t, r.head_dim, tiled(r, 0, 1));
    if (is(".ssm_a") || is("ssm_dt.bias") || is("ssm_dt")) return moved(in_f32(t), 1, tiled(r, 0, 1));
    if (is("ssm_conv1d.weight")) return moved(in_f32(t), r.conv_kernel, tiled(r, 2 * r.key_size(), r.head_dim));
    return t;
}

} // namespace tq
