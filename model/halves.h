// A model that runs on several devices is divided into halves of layers: number 2 i is the attention of layer i, 2 i + 1 its
// feed-forward network. The head (the last norm and the output matrix) counts as one more after them.
#pragma once
#include <compare>
#include <cstdint>
#include <vector>

namespace tq {

struct HalfRange {
    uint32_t begin, end;

    bool empty() const { return begin == end; }
    auto operator<=>(const HalfRange&) const = default;
};

constexpr uint32_t attention_of(uint32_t layer) { return 2 * layer; }
constexpr uint32_t feed_forward_of(uint32_t layer) { return 2 * layer + 1; }
constexpr uint32_t head_half(uint32_t layers) { return 2 * layers; }
constexpr uint32_t halves_of(uint32_t layers) { return 2 * layers + 1; } // the head included

// The halves whose weights and cache a device holds.
class HeldHalves {
  public:
    HeldHalves() = default; // all of them
    explicit HeldHalves(std::vector<bool> held) : held_(std::move(held)) {}

    bool all() const { return held_.empty(); }
    bool holds(uint32_t half) const { return all() || held_[half]; }
    bool attention(uint32_t layer) const { return holds(attention_of(layer)); }
    bool feed_forward(uint32_t layer) const { return holds(feed_forward_of(layer)); }
    bool head() const { return all() || held_.back(); }
    // Returns those of the layers as ranges that are as long as possible.
    std::vector<HalfRange> ranges(uint32_t layers) const {
        std::vector<HalfRange> out;
        for (uint32_t half = 0; half < head_half(layers); half++) {
            if (!holds(half)) continue;
            if (out.empty() || out.back().end != half) out.push_back({half, half});
            out.back().end++;
        }
        return out;
    }

  private:
    std::vector<bool> held_;
};

} // namespace tq
