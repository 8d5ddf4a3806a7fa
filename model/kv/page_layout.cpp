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

PageLayout window_layout(const PageLayout& pages) {
    std::vector<PageLayout::Vector> vectors;
    for (uint32_t layer = 0; layer < pages.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value})
            vectors.push_back({pages.vector(layer, side).sink, 0, 0}); // a first token's vector is alike
    return {pages.kv_heads(), std::move(vectors)};
}

void copy_first_tokens(const PageLayout& layout, std::span<std::byte> to, uint32_t requested, std::span<const std::byte> page,
                       uint32_t tokens) {
    const auto copy = [](std::span<std::byte> part, std::span<const std::byte> from) {
        std::ranges::copy(from.first(part.size()), part.begin());
    };
    for (uint32_t layer = 0; layer < layout.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value})
            for (uint32_t head = 0; head < layout.kv_heads(); head++) {
                copy(layout.codes(to, requested, layer, side, head), layout.codes(page, tokens, layer, side, head));
                copy(layout.scales(to, requested, layer, side, head), layout.scales(page, tokens, layer, side, head));
                copy(layout.sink(to, requested, layer, side, head), layout.sink(page, tokens, layer, side, head));
            }
}

void copy_last_tokens(const PageLayout& layout, std::span<std::byte> to, uint32_t requested, std::span<const std::byte> window,
                      uint32_t tokens) {
    for (uint32_t layer = 0; layer < layout.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value})
            for (uint32_t head = 0; head < layout.kv_heads(); head++) {
                const auto last = layout.codes(to, requested, layer, side, head);
                std::ranges::copy(layout.codes(window, tokens, layer, side, head).last(last.size()), last.begin());
            }
}

} // namespace tq
