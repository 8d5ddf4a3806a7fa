#include "model/kv/page_layout.h"
#include <algorithm>

namespace tq {

PageLayout::PageLayout(uint32_t kv_heads, std::vector<Vector> vectors)
    : kv_heads_(kv_heads), vectors_(std::move(vectors)), begin_{0}, sinks_{0} {
    for (const Vector& v : vectors_) {
        begin_.push_back(begin_.back() + kv_heads_ * (size_t(v.words) * 4 + size_t(v.scales) * 2));
        sinks_.push_back(sinks_.back() + size_t(kv_heads_) * v.sink * 4);
    }
}

void copy_first_tokens(const PageLayout& layout, std::span<std::byte> to, uint32_t wanted, std::span<const std::byte> page,
                       uint32_t tokens) {
    const auto copy = [](std::span<std::byte> part, std::span<const std::byte> from) {
        std::ranges::copy(from.first(part.size()), part.begin());
    };
    for (uint32_t layer = 0; layer < layout.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value})
            for (uint32_t head = 0; head < layout.kv_heads(); head++) {
                copy(layout.codes(to, wanted, layer, side, head), layout.codes(page, tokens, layer, side, head));
                copy(layout.scales(to, wanted, layer, side, head), layout.scales(page, tokens, layer, side, head));
                copy(layout.sink(to, wanted, layer, side, head), layout.sink(page, tokens, layer, side, head));
            }
}

} // namespace tq
