// Chooses the type of each layer's keys and values: a cache of a given size must change the model's predictions least.
//
// The cost of a change of one side of one layer is measured alone, with a cache that is exact otherwise; the cost of a mix is
// predicted as the sum. For small errors that holds: KL(p || p') = sum p_i (l_i - l'_i) + log Z'/Z is zero to first order in
// the change of the logits, and its second order is one half of their variance under p; and the errors of different sides and
// layers are roundings of different vectors under different rotations, nearly independent and of mean zero, so that variances
// add. It fails if errors are large enough to change the later layers: so the chosen mix itself is measured in the end.
#pragma once
#include "model/kv/options.h"
#include <array>
#include <optional>

namespace tq::quality {

// A type that one part (one side of a layer) could have.
struct Choice {
    uint64_t bytes;
    double cost;
};

// The choice for each part with the least sum of costs among all whose bytes sum to at most `budget`, and among equals with the
// fewest bytes: exact, by dynamic programming over bytes in units of the greatest common divisor. Nothing when even the
// smallest choices exceed the budget. Costs: finite, at least 0. Throws Error when the table would exceed 1 GiB.
std::optional<std::vector<size_t>> best_choices(std::span<const std::vector<Choice>> parts, uint64_t budget);

struct Probe {
    uint32_t layer;
    KvSide side;
    KvType type;
    bool operator==(const Probe&) const = default;
};

// The KL divergences of all probes of a model: of each type on each side of each layer, everything else as in `base`.
class Sensitivities {
  public:
    // base: both sides of all layers are of one type, whose own probes cost nothing. types: those of unequal bits are for keys
    // alone. recurrent: which layers are, and store nothing, whatever their type; empty: none. Throws Error if no type is for
    // values.
    Sensitivities(const KvOptions& base, uint32_t layers, const std::vector<KvType>& types, std::vector<bool> recurrent = {});

    std::vector<Probe> missing() const;      // probes that are not set yet, layer by layer
    void set(const Probe& probe, double kl); // no effect if it is not one of these probes
    KvOptions options(const Probe& probe) const;

    // The mix of least predicted cost within `budget` bytes per token; nothing when there is none. It names recurrent layers,
    // too, with the types of the next layer that stores something, so that means over layers are theirs.
    std::optional<KvOptions> best_mix(uint64_t budget, uint32_t kv_heads, uint32_t head_dim) const;
    // The same if all layers have the same types of keys and values.
    std::optional<KvOptions> best_pair(uint64_t budget, uint32_t kv_heads, uint32_t head_dim) const;
    double predicted(const KvOptions& kv) const; // kv: of these types only
    double predicted(uint32_t layer, KvSide side, KvType type) const;

    const std::vector<KvType>& types(KvSide side) const { return types_[size_t(side)]; }

  private:
    size_t index(const Probe& probe) const;
    bool stores(uint32_t layer) const { return layer >= recurrent_.size() || !recurrent_[layer]; }

    KvOptions base_;
    uint32_t layers_;
    std::vector<bool> recurrent_;
    std::array<std::vector<KvType>, 2> types_;             // of keys, of values
    std::array<std::vector<std::optional<double>>, 2> kl_; // [layers][types] of keys, of values
};

} // namespace tq::quality
