// The vectors that a cache holds, for comparisons.
#pragma once
#include "model/kv/codec.h"
#include <vector>

namespace tq {

// One side of a layer: for each kv head the vectors of positions 0 .. tokens - 1, in the layout of turboquant.md.
struct StoredSide {
    KvCodec codec;
    uint32_t heads, tokens;
    std::vector<uint32_t> codes;  // [heads][tokens][codec.words()]
    std::vector<uint16_t> scales; // [heads][tokens][codec.scales()]

    StoredSide(KvCodec codec, uint32_t heads, uint32_t tokens)
        : codec(std::move(codec)), heads(heads), tokens(tokens), codes(size_t(heads) * tokens * this->codec.words()),
          scales(size_t(heads) * tokens * this->codec.scales()) {}

    std::span<uint32_t> codes_of(uint32_t head, uint32_t position) {
        return {codes.data() + (size_t(head) * tokens + position) * codec.words(), codec.words()};
    }
    std::span<uint16_t> scales_of(uint32_t head, uint32_t position) {
        return {scales.data() + (size_t(head) * tokens + position) * codec.scales(), codec.scales()};
    }
    // Returns the codes of all tokens of a head.
    std::span<uint32_t> codes_of(uint32_t head) { return std::span(codes).subspan(head * codes_per_head(), codes_per_head()); }
    std::span<uint16_t> scales_of(uint32_t head) {
        return std::span(scales).subspan(head * scales_per_head(), scales_per_head());
    }

  private:
    size_t codes_per_head() const { return size_t(tokens) * codec.words(); }
    size_t scales_per_head() const { return size_t(tokens) * codec.scales(); }
};

} // namespace tq
