// The bytes of a page of the cache: the same on every device, in files and in memory.
#pragma once
#include "model/kv/codec.h"
#include "shaders/kv_types.h"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

// A page of n tokens is, for each layer its keys and then its values, the codes [kv_heads][n][words] of 32 bits, after them the
// scales [kv_heads][n][scales] in fp16, and after those, if the layer has codes, the first tokens' vectors once more in fp16
// [kv_heads][min(n, FIRST_TOKENS)][sink words] (turboquant.md). A page that is partly filled has only the bytes of its n tokens;
// an empty one has no bytes.
class PageLayout {
  public:
    // The 32-bit words and fp16 scales of one vector, and the words of a first token's in fp16; 0: none is kept.
    struct Vector {
        uint32_t words, scales, sink;
    };

    // `vectors`: of each layer's keys and values, in this order.
    PageLayout(uint32_t kv_heads, std::vector<Vector> vectors);

    uint64_t bytes(uint32_t tokens) const { return begin(begin_.size() - 1, tokens); }
    // Returns the n of bytes(n).
    uint32_t tokens(uint64_t bytes) const {
        for (uint32_t n = 0; n < FIRST_TOKENS; n++)
            if (bytes <= this->bytes(n)) return n;
        return uint32_t((bytes - FIRST_TOKENS * sinks_.back()) / begin_.back());
    }
    uint32_t layers() const { return uint32_t(vectors_.size() / 2); }
    uint32_t kv_heads() const { return kv_heads_; }
    Vector vector(uint32_t layer, KvSide side) const { return vectors_[index(layer, side)]; }

    // Returns the part of a page's bytes (bytes(tokens) of them) with the codes or the scales of one side of a head. A part has
    // any alignment.
    template <class Byte>
    std::span<Byte> codes(std::span<Byte> page, uint32_t tokens, uint32_t layer, KvSide side, uint32_t head) const {
        const size_t vector = vectors_[index(layer, side)].words * size_t(4);
        return page.subspan(begin(index(layer, side), tokens) + head * tokens * vector, tokens * vector);
    }
    template <class Byte>
    std::span<Byte> scales(std::span<Byte> page, uint32_t tokens, uint32_t layer, KvSide side, uint32_t head) const {
        const Vector& of = vectors_[index(layer, side)];
        const size_t codes = size_t(kv_heads_) * of.words * 4, vector = of.scales * size_t(2);
        return page.subspan(begin(index(layer, side), tokens) + codes * tokens + head * tokens * vector, tokens * vector);
    }
    // The same of the first tokens' vectors.
    template <class Byte>
    std::span<Byte> sink(std::span<Byte> page, uint32_t tokens, uint32_t layer, KvSide side, uint32_t head) const {
        const size_t i = index(layer, side), vector = std::min(tokens, FIRST_TOKENS) * vectors_[i].sink * size_t(4);
        return page.subspan(begin(i + 1, tokens) - (kv_heads_ - head) * vector, vector);
    }

  private:
    static size_t index(uint32_t layer, KvSide side) { return 2 * size_t(layer) + (side == KvSide::value ? 1 : 0); }

    // Returns the bytes of a page before side i.
    size_t begin(size_t i, uint32_t tokens) const { return begin_[i] * tokens + sinks_[i] * std::min(tokens, FIRST_TOKENS); }

    uint32_t kv_heads_;
    std::vector<Vector> vectors_;
    std::vector<size_t> begin_, sinks_; // bytes of a token, and of a first token's vectors, before each side, and of all
};

// The layout of windows (model/kv/window.h) beside pages of this layout: for each layer with codes the keys and then the values,
// fp16 [kv_heads][tokens][head_dim]; other layers have no bytes.
PageLayout window_layout(const PageLayout& pages);

// Copies the first `requested` of a page's tokens: to[layout.bytes(requested)], page[layout.bytes(tokens)].
void copy_first_tokens(const PageLayout& layout, std::span<std::byte> to, uint32_t requested, std::span<const std::byte> page,
                       uint32_t tokens);
// the last `requested` tokens of a window, in the same way.
void copy_last_tokens(const PageLayout& layout, std::span<std::byte> to, uint32_t requested, std::span<const std::byte> window,
                      uint32_t tokens);

} // namespace tq
