#include "model/weights/tiled_heads.h"
#include "model/weights/stacked_rows.h"
#include <cstring>
#include <numeric>

namespace tq {
namespace {

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

// Returns t with runs of `run` elements of each row in another order; from_runs[i]: which run of t the i-th is.
Tensor moved(const Tensor& t, uint32_t run, std::vector<uint32_t> from_runs) {
    const uint64_t bytes = t.row_bytes() / t.cols * run;
    return made_tensor(t.name, t.type, t.rows, t.cols,
                       [t, bytes, from_runs = std::move(from_runs)](std::span<std::byte> to, uint32_t r) {
                           std::vector<std::byte> scratch;
                           const std::span<const std::byte> row = t.read(r, 1, scratch);
                           for (size_t i = 0; i < from_runs.size(); ++i)
                               std::memcpy(&to[i * bytes], &row[from_runs[i] * bytes], bytes);
                       });
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
