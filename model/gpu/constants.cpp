#include "model/gpu/constants.h"
#include "base/ensure.h"
#include <bit>

namespace tq::gpu {

uint32_t head_subgroup(const Tuning& t, uint32_t head_dim, uint32_t rotation) {
    if (t.subgroup == 0 || rotation == ROTATION_HAAR) return 0;
    // 64 channels an invocation do not stay in registers, and llvmpipe, with vectors of four, takes minutes to build that.
    const uint32_t subgroup = std::bit_floor(std::min(t.subgroup, head_dim / 2));
    return head_dim / subgroup <= 32 ? subgroup : 0;
}

uint32_t append_subgroup(const Tuning& t, uint32_t head_dim, KvType type, uint32_t rotation) {
    const bool one_scale = is_turboquant(type) || !is_coded(type);
    return one_scale ? head_subgroup(t, head_dim, rotation) : 0;
}

AttentionTile attention_tile(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens) {
    const uint32_t lanes = attention_lanes(t, head_dim);
    // Of a row: queries, scores, and maximum and factor or the subgroups' maxima; shaders/attention.comp.
    const uint32_t row_bytes = (is_qjl(types.k) ? 2 : 1) * head_dim * 4 +
                               (is_qjl(types.v) ? 2 : 1) * lanes * attention_keys(t, types) * 4 +
                               (t.subgroup ? std::max(lanes / t.subgroup, 1u) * 4 : 8);
    // With QJL's bit a row has two sums of values: more than four such rows do not stay in registers. attention_per_lane takes
    // seconds to build with more than Qwen3-14B's five.
    const uint32_t most_rows = is_per_lane(t, types) ? 5 : is_qjl(types.v) ? 4 : ~0u;
    AttentionTile tile{group, tokens == 1 ? 1 : std::max(1u, std::min(t.attention_rows, most_rows) / group)};
    const uint32_t table_bytes = (is_trellis(types.k) || is_trellis(types.v) ? 64 : 32) * 4; // of levels, shaders/kv_load.glsl
    const auto fits = [&] {
        const uint32_t rows = tile.heads * tile.tokens;
        return rows <= most_rows && rows * row_bytes + table_bytes <= t.shared_bytes;
    };
    while (!fits()) {
        if (tile.tokens > 1) {
            tile.tokens--;
            continue;
        }
        ENSURE(tile.heads > 1, "{} bytes of shared memory", t.shared_bytes);
        do tile.heads--;
        while (group % tile.heads != 0);
    }
    return tile;
}

MatmulTile matmul_tile(const Tuning& t) {
    // In workgroups of 128, the most that every device has.
    constexpr MatmulTile tiles[] = {{128, 64, 8, 8}, {64, 64, 8, 4}, {64, 32, 4, 4}};
    for (const MatmulTile& tile : tiles) {
        static_assert(std::ranges::all_of(tiles, [](const MatmulTile& each) { return each.workgroup() == 128; }));
        const uint32_t levels = 64; // of a format with a table of them
        if ((tile.rows + tile.tokens) * 9 * 16 + levels <= t.shared_bytes)
            return tile; // 36 floats a row: shaders/matmul_tiled.comp
    }
    ENSURE(false, "{} bytes of shared memory", t.shared_bytes);
}

#if TQ_COOPERATIVE_MATRIX
CoopmatTile coopmat_tile(const Tuning& t) {
    for (const CoopmatTile tile : {CoopmatTile{128, 64}, {64, 64}, {32, 32}}) {
        // 40 halves a row or token, four matrices of sums, a maximum per token, a format's levels: shaders/matmul_coopmat.comp
        const uint32_t sums = 4 * t.matrix_side * t.matrix_side * 4, levels = 64;
        if ((tile.rows + tile.tokens) * 80 + sums + tile.tokens * 4 + levels <= t.shared_bytes) return tile;
    }
    ENSURE(false, "{} bytes of shared memory", t.shared_bytes);
}
#endif

namespace {

bool one_scale_fp16(KvType type) { return type == KvType::f16 || (is_turboquant(type) && !is_qjl(type)); }

// shaders/attention_coopmat.comp
uint32_t shared_bytes(const Tuning& t, const CoopmatAttention& tile, uint32_t head_dim) {
    const uint32_t vectors = 2 * tile.keys * (head_dim / 4 + 2) * 8, row = (tile.keys + 4) * 4 + (tile.keys + 8) * 2 + 4,
                   scales = 2 * tile.keys * 4, levels = 64 * 4;
    return vectors + tile.strips(t) * t.matrix_side * row + scales + levels;
}

} // namespace

std::optional<CoopmatAttention> coopmat_attention(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group,
                                                  uint32_t tokens) {
    uint32_t rows = tokens == 1 ? group : t.attention_coopmat_rows,
             keys = tokens == 1 ? t.attention_coopmat_keys : 2 * t.matrix_side;
    if (rows == 0 || keys == 0 || !one_scale_fp16(types.k) || !one_scale_fp16(types.v)) return std::nullopt;
    if (head_dim > 128) return std::nullopt; // a row's query and sums are more than registers hold
    while (true) {
        uint32_t heads = std::min(group, rows);
        while (group % heads != 0) heads--;
        const CoopmatAttention tile{heads, tokens == 1 ? 1 : rows / heads, keys};
        const bool fits = tile.strips(t) * t.matrix_side <= 2 * keys && shared_bytes(t, tile, head_dim) <= t.shared_bytes;
        if (fits) return tile;
        if (rows > t.matrix_side)
            rows /= 2;
        else if (keys > t.matrix_side)
            keys /= 2;
        else
            return std::nullopt;
    }
}

} // namespace tq::gpu
