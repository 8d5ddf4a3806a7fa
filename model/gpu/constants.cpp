#include "model/gpu/constants.h"
#include "base/ensure.h"

namespace tq::gpu {

AttentionTile attention_tile(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens) {
    const uint32_t lanes = std::min(t.workgroup, head_dim);
    // Of a row: queries, scores, maximum and factor; shaders/attention.comp.
    const uint32_t row_bytes = (is_qjl(types.k) ? 2 : 1) * head_dim * 4 + (is_qjl(types.v) ? 2 : 1) * lanes * 4 + 8;
    AttentionTile tile{group, tokens == 1 ? 1 : std::max(1u, t.attention_rows / group)};
    while (tile.heads * tile.tokens * row_bytes > t.shared_bytes) {
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

} // namespace tq::gpu
