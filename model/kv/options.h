// The user's choice of a cache: types of keys and values, exceptions for some layers, rotation, scale rule and conditioning.
#pragma once
#include "model/kv/codec.h"
#include "model/kv/conditioning.h"

namespace tq {

// The defaults are those of a side that is not named beside one that is.
struct KvTypes {
    KvType k = KvType::tq4, v = KvType::tq4;
    bool operator==(const KvTypes&) const = default;
    // Whether either side is stored as codes, so that a window is kept beside them.
    constexpr bool coded() const { return is_coded(k) || is_coded(v); }
};

// Returns the 32-bit words of a vector of either side in fp16, as the FIRST_TOKENS of each page are kept
// (model/kv/page_layout.h); 0: nothing is coded.
constexpr uint32_t sink_words(KvTypes types, uint32_t head_dim) { return types.coded() ? code_words(KvType::f16, head_dim) : 0; }

// Other types for layers first .. last; negative numbers count from the end, -1 being the last layer.
struct KvLayers {
    int first, last;
    KvTypes types;
};

struct KvOptions {
    KvType k = KvType::tq4, v = KvType::tq4;
    RotationKind rotation = RotationKind::wht;
    ScaleRule scale_rule = ScaleRule::unbiased;
    std::vector<KvLayers> layers; // later ones win
    KeyConditioning conditioning;
    uint32_t window = 0;      // tokens that layers with codes also keep as fp16 (model/kv/window.h)
    uint32_t layer_count = 0; // layers that the model must have, if named one by one (model/files/kv_file.h); 0: any

    // Sets the types of all layers; or of one side, also of layers with exceptions.
    void set(KvTypes types) { k = types.k, v = types.v, layers.clear(); }
    void set(const struct KvPreset& preset);
    void set(KvSide side, KvType type);
    // Returns the types of layer `layer` of `count`. One after the last, of a head for multi-token prediction, has those of the
    // last, here and below, and measured conditioning of keys is none of it.
    KvTypes at(uint32_t layer, uint32_t count) const;
    bool any_coded(uint32_t count) const; // in any layer
    uint32_t layers_with_window(uint32_t count) const;
    // Returns the conditioning of the keys of layer `layer` of `count`; never `automatic`.
    KeyConditioning conditioning_of(uint32_t layer, uint32_t count) const;
    // Whether the values of layer `layer` of `count` have their channels scaled (model/weights/channel_scales.h): those stored as
    // codes, unless nothing is conditioned.
    bool scales_values(uint32_t layer, uint32_t count) const;
    // Returns the codec of one side of a layer.
    KvCodec codec(uint32_t layer, uint32_t count, KvSide side, uint32_t head_dim) const;
};

// Returns the size in bytes of one token: all layers, keys and values, scales included.
uint64_t kv_bytes_per_token(const KvOptions& kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim);

// Returns the size in bytes of the window of one layer that has one.
uint64_t kv_window_layer_bytes(const KvOptions& kv, uint32_t kv_heads, uint32_t head_dim);
// Returns the size in bytes of all windows, which come on top and do not grow with the context.
uint64_t kv_window_bytes(const KvOptions& kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim);

// A named combination.
struct KvPreset {
    const char* name;
    KvTypes types;
    uint32_t window = 0; // tokens, KvOptions::window
};
// The first is what commands use if no type is named.
inline constexpr auto kv_presets = std::array{
    KvPreset{"balanced", {KvType::tq4u, KvType::tq4}, 256},
    KvPreset{"accurate", {KvType::tq5u, KvType::tq4t}, 256},
    KvPreset{"compact", {KvType::tq4u, KvType::tq3t}, 256},
    KvPreset{"smallest", {KvType::tq3t, KvType::tq2t}, 256},
    KvPreset{"f16", {KvType::f16, KvType::f16}},
};
// The presets of published implementations, and ours that are nearest in bytes.
inline constexpr auto former_kv_presets = std::array{FormerName{"safe-lowbit", "accurate"}, FormerName{"safe", "balanced"},
                                                     FormerName{"bold", "compact"}, FormerName{"experimental-max", "compact"}};
const FormerName* find_former_preset(std::string_view text); // or null
// Throws an Error that lists the presets when `text` is neither one of them nor a former one.
const KvPreset& parse_kv_preset(std::string_view text);

// Parses "0-1,-2:-1=q8_0" or "3=q8_0/tq4;5-7=f16": layers (ranges by - or :), then a type for both or K/V. Throws Error.
std::vector<KvLayers> parse_kv_layers(std::string_view text);
// Throws Error when a range names a layer that a model of `count` layers does not have, or the options are for another number
// of layers; or for a window of more than max_window_tokens; for values of unequal bits, and for keys of unequal bits if the
// rotation is not wht.
void check_kv(const KvOptions& kv, uint32_t count);

// Returns "tq4/tq4", with "haar", the scale rule, the exceptions and the conditioning if they are not the default: "tq4/tq4
// haar, 0:1 q8_0/q8_0, conditioned by norms".
// If a file names the layers one by one: "mix 3fa92c, 3.42 bits", a hash of the types of all layers and the mean bits of a
// channel in vectors of 128, scales included.
std::string describe(const KvOptions& kv);

} // namespace tq
