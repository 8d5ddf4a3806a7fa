// The search of place(). It begins with the user's wishes: consecutive layers for each device, by -ts or by memory, the last
// layers on devices (-ngl), the feed-forward networks of the first on the CPU (--n-cpu-moe). If everything fits, that is the
// result. Otherwise, device by device:
// 1. While a device's part does not fit, the device passes a whole layer at its end to the nearest device that then still fits.
//    Devices between them pass one on, too, so that each keeps consecutive layers. The head goes to any other device with room.
// 2. Halves that still do not fit go to the CPU. A device keeps as much as fits in the order attention (with norms and cache),
//    head, feed-forward networks, of the last layers first. The number that fits is found by bisection: needs() counts weights,
//    cache and scratch of any set of halves, and grows with the set. A feed-forward network stays only if its attention does.
// The result is not the optimum of a cost: predict_token_seconds() compares placements, place() only fills memory.
#include "model/stages/placement.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>

namespace tq {
namespace {

// A placement that is being made.
class Placer {
  public:
    Placer(uint32_t layers, std::span<const Candidate> candidates)
        : layers_(layers), candidates_(candidates), cpu_(uint32_t(candidates.size())), device_of_(halves_of(layers), cpu_) {}

    // Gives a device layers [begin, end), those from `first_feed_forward` on with their feed-forward network.
    void wish(uint32_t device, uint32_t begin, uint32_t end, uint32_t first_feed_forward) {
        for (uint32_t i = begin; i < end; i++) {
            device_of_[attention_of(i)] = device;
            if (i >= first_feed_forward) device_of_[feed_forward_of(i)] = device;
        }
    }
    void wish_head(uint32_t device) { device_of_[head_half(layers_)] = device; }
    // Leaves on each device the halves that fit, after others have taken from it the halves that they have room for.
    void fit() {
        for (uint32_t device = 0; device < cpu_; device++)
            for (bool moved = true; moved && !fits(device);) moved = pass_layer_on(device) || pass_head_on(device);
        for (uint32_t device = 0; device < cpu_; device++) fit(device);
    }
    Split split() const { return Split(device_of_, cpu_ + 1); }

  private:
    using Halves = std::vector<uint32_t>;

    void fit(uint32_t device);
    // Moves a layer at an end of a device's range to the nearest device that has room for it; devices between them pass one on.
    bool pass_layer_on(uint32_t device);
    bool pass_layer(uint32_t from, uint32_t to);
    bool pass_head_on(uint32_t device);
    // The first or last layer whose attention a device has.
    std::optional<uint32_t> border_layer(uint32_t device, bool last) const;
    // Moves to the device the most of `halves`, from the first on, that fit beside its own.
    void add_max(uint32_t device, const Halves& halves);
    bool fits(uint32_t device) const { return candidates_[device].needs(split().held(device)) <= candidates_[device].bytes; }

    const uint32_t layers_;
    const std::span<const Candidate> candidates_;
    const uint32_t cpu_;
    std::vector<uint32_t> device_of_;
};

bool Placer::pass_layer_on(uint32_t device) {
    for (uint32_t distance = 1; distance < cpu_; distance++) {
        if (device + distance < cpu_ && pass_layer(device, device + distance)) return true;
        if (device >= distance && pass_layer(device, device - distance)) return true;
    }
    return false;
}

bool Placer::pass_head_on(uint32_t device) {
    uint32_t& head = device_of_[head_half(layers_)];
    if (head != device) return false;
    for (uint32_t other = 0; other < cpu_; other++) {
        head = other;
        if (other != device && fits(other)) return true;
    }
    head = device;
    return false;
}

std::optional<uint32_t> Placer::border_layer(uint32_t device, bool last) const {
    std::optional<uint32_t> found;
    for (uint32_t layer = 0; layer < layers_; layer++)
        if (device_of_[attention_of(layer)] == device && (last || !found)) found = layer;
    return found;
}

// Every device on the way gives the next one its layer that is nearest to it.
bool Placer::pass_layer(uint32_t from, uint32_t to) {
    const std::vector<uint32_t> before = device_of_;
    const bool up = to > from;
    const auto next = [up](uint32_t device) { return up ? device + 1 : device - 1; };
    bool passed = true;
    for (uint32_t device = to; passed && device != from;) { // the last first, so that none passes on a layer that it gets
        const uint32_t giver = up ? device - 1 : device + 1;
        const std::optional<uint32_t> layer = border_layer(giver, up);
        passed = layer.has_value();
        if (passed && device_of_[feed_forward_of(*layer)] == giver) device_of_[feed_forward_of(*layer)] = device;
        if (passed) device_of_[attention_of(*layer)] = device;
        device = giver;
    }
    for (uint32_t device = from; passed && device != to;) passed = fits(device = next(device));
    if (!passed) device_of_ = before;
    return passed;
}

void Placer::fit(uint32_t device) {
    if (fits(device)) return;
    Halves attention, head, feed_forward;
    for (uint32_t half = 0; half < device_of_.size(); half++) {
        if (device_of_[half] != device) continue;
        Halves& kind = half == head_half(layers_) ? head : half % 2 == 0 ? attention : feed_forward;
        kind.push_back(half);
        device_of_[half] = cpu_;
    }
    std::ranges::reverse(attention);
    std::ranges::reverse(feed_forward);
    for (const Halves* kind : {&attention, &head, &feed_forward}) {
        // A feed-forward network stays with its attention: h would cross twice for it alone.
        Halves here = *kind;
        if (kind == &feed_forward) std::erase_if(here, [&](uint32_t half) { return device_of_[half - 1] != device; });
        add_max(device, here);
    }
}

void Placer::add_max(uint32_t device, const Halves& halves) {
    const auto set = [&](size_t count) {
        for (size_t i = 0; i < halves.size(); i++) device_of_[halves[i]] = i < count ? device : cpu_;
    };
    size_t max = 0, too_many = halves.size() + 1;
    while (too_many - max > 1) {
        const size_t middle = (max + too_many) / 2;
        set(middle);
        (fits(device) ? max : too_many) = middle;
    }
    set(max);
}

// Returns each candidate's share of the layers, 1 in all.
std::vector<double> shares_of(std::span<const Candidate> candidates) {
    const bool given = std::ranges::any_of(candidates, [](const Candidate& c) { return c.share > 0; });
    std::vector<double> shares;
    for (const Candidate& c : candidates) shares.push_back(given ? c.share : double(c.bytes));
    const double all = std::max(std::accumulate(shares.begin(), shares.end(), 0.0), 1e-9);
    for (double& share : shares) share /= all;
    return shares;
}

// Returns the bytes of the cache that a token after `depth` others reads of the layers whose attention is held.
double cache_bytes(const Config& c, const KvOptions& kv, uint32_t depth, const HeldHalves& held) {
    double bytes = 0;
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
        if (!held.attention(layer)) continue;
        if (c.is_recurrent(layer)) bytes += 2 * double(c.recurrent->state_bytes()); // read and written
        if (c.is_recurrent(layer)) continue;
        const KvTypes types = kv.at(layer, c.num_hidden_layers);
        bytes +=
            double(depth) * c.num_key_value_heads * (kv_vector_bytes(types.k, c.head_dim) + kv_vector_bytes(types.v, c.head_dim));
    }
    return bytes;
}

// Returns "0-3, 5" of increasing numbers.
std::string ranges_text(const std::vector<uint32_t>& numbers) {
    std::string text;
    for (size_t i = 0, end; i < numbers.size(); i = end) {
        for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) end++;
        text += text.empty() ? "" : ", ";
        text += end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    }
    return text;
}

} // namespace

Split place(uint32_t layers, const PlacementWishes& wishes, std::span<const Candidate> candidates) {
    Placer placer(layers, candidates);
    const auto by_share = uint32_t(layers * (1 - wishes.cpu_share) + 0.5);
    const uint32_t target = std::min(wishes.gpu_layers.value_or(by_share), layers), first = layers - target;
    const std::vector<double> shares = shares_of(candidates);
    double until = 0;
    uint32_t last = 0; // that has layers
    for (uint32_t device = 0, begin = first; device < candidates.size(); device++) {
        until += shares[device];
        const bool rest = device + 1 == candidates.size();
        const uint32_t end = rest ? layers : first + uint32_t(std::min(1.0, until) * target + 0.5);
        placer.wish(device, begin, end, wishes.cpu_feed_forwards);
        if (end > begin) last = device;
        begin = end;
    }
    if (!candidates.empty() && wishes.gpu_layers.value_or(layers + 1) > layers) placer.wish_head(last);
    if (wishes.fit) placer.fit();
    return placer.split();
}

double predict_token_seconds(const Config& config, const Weights& weights, const KvOptions& kv, uint32_t depth,
                             const Split& split, std::span<const AssumedSpeed> speeds) {
    const Weights read = read_by_token(weights, config);
    double seconds = 0;
    for (uint32_t device = 0; device < split.devices(); device++) {
        const HeldHalves held = split.held(device);
        const Weights here = held_weights(read, held);
        const double bytes = double(here.bytes()) + cache_bytes(config, kv, depth, held);
        if (here.bytes() > 0) seconds += bytes / (speeds[device].gb_per_s * 1e9);
    }
    for (const Part& part : split.parts()) seconds += speeds[part.device].part_seconds;
    // Seen in recordings: waits of a layer's halves; of experts the router, its choice, the sum and a norm that is not folded.
    constexpr double attention_waits = 4, feed_forward_waits = 3, waits_of_experts = 4;
    for (uint32_t layer = 0; layer < split.layers(); layer++)
        seconds += attention_waits * speeds[split.device_of(attention_of(layer))].wait_seconds +
                   (feed_forward_waits + (config.num_experts != 0 ? waits_of_experts : 0)) *
                       speeds[split.device_of(feed_forward_of(layer))].wait_seconds;
    return seconds;
}

uint32_t predict_stream_rows(const Config& config, const Weights& weights, const Split& split,
                             std::span<const AssumedSpeed> speeds) {
    const double used = config.num_experts != 0 ? double(config.num_experts_per_tok) / config.num_experts : 1;
    double upload_seconds = 0, saved_by_row = 0;
    for (uint32_t device = 0; device + 1 < split.devices(); device++)
        for (uint32_t layer = 0; layer < split.layers(); layer++) {
            if (split.device_of(attention_of(layer)) != device || split.device_of(feed_forward_of(layer)) + 1 != split.devices())
                continue;
            const LayerWeights& l = weights.layers[layer];
            for (const Tensor* t : {&l.ffn_gate, &l.ffn_up, &l.ffn_down}) {
                const double gflop = 2e-9 * used * double(t->rows) * t->cols;
                upload_seconds += double(t->bytes()) / (speeds[device].upload_gb_per_s * 1e9);
                saved_by_row += gflop / speeds.back().gflops - gflop / speeds[device].gflops;
            }
        }
    if (upload_seconds == 0 || saved_by_row <= 0) return 0;
    return uint32_t(std::clamp(std::ceil(upload_seconds / saved_by_row), double(min_stream_rows), 1e9));
}

std::string describe_part(const Split& split, uint32_t device) {
    std::vector<uint32_t> attention, feed_forward;
    for (uint32_t layer = 0; layer < split.layers(); layer++) {
        if (split.device_of(attention_of(layer)) == device) attention.push_back(layer);
        if (split.device_of(feed_forward_of(layer)) == device) feed_forward.push_back(layer);
    }
    std::string text;
    const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
    if (!attention.empty() && attention == feed_forward) {
        add("layers " + ranges_text(attention));
    } else {
        if (!attention.empty()) add("attention of layers " + ranges_text(attention));
        if (!feed_forward.empty()) add("feed-forward of layers " + ranges_text(feed_forward));
    }
    if (split.device_of_head() == device) add("head");
    return text.empty() ? "nothing" : text;
}

} // namespace tq
