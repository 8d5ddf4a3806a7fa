// Chooses each layer's cache, and reads and writes the texts that name it. `k` and `v` are the types of all layers; `layers` has
// exceptions; later ones win; `window` and `conditioning` are the same for all. The texts come from the command line, from a
// request or from a file that a user wrote, so each parser refuses unknown texts, with the names that it knows. describe() also
// identifies measurements in the logs of the lab: two caches that compute different numbers must have different texts. So a new
// option must show there whenever it is not the default. (Stored pages are identified by model/prefix/owner.h.)
#include "model/kv/options.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/kv/window.h"
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace tq {
namespace {

// Removes the text before the first `separator` from `text`, or all of it, and returns it.
std::string_view take(std::string_view& text, char separator) {
    const size_t at = text.find(separator);
    const std::string_view head = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    return head;
}

[[noreturn]] void fail_layers(std::string_view text) {
    fail("'{}' is not a list of layers and types: write 0-1,-2:-1=q8_0, that is layers or ranges of them (-1: the last), then = "
         "and a cache type, or two as K/V",
         printable(text));
}

// Removes a layer number from the front of `text`.
// Layers are written with a minus for "from the end", and - also divides a range: "-2--1" and "-2:-1" are the same. from_chars
// takes the sign that belongs to a number, so what is left begins with the divider.
int take_layer(std::string_view& text, std::string_view all) {
    int layer = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
    if (error != std::errc() || layer > 9999 || layer < -9999) fail_layers(all);
    text.remove_prefix(size_t(end - text.data()));
    return layer;
}

KvTypes parse_types(std::string_view text) {
    const std::string_view k = take(text, '/');
    return {parse_kv_type(k), parse_kv_type(text.empty() ? k : text)};
}

int from_start(int layer, uint32_t count) { return layer < 0 ? layer + int(count) : layer; }

std::string describe(const KvTypes& types) { return fmt::format("{}/{}", name(types.k), name(types.v)); }

// Describes types that a file names layer by layer.
std::string describe_mix(const KvOptions& kv) {
    uint32_t hash = 0x811c9dc5; // FNV-1a
    uint64_t bytes = 0;
    bool uniform = true;
    for (uint32_t layer = 0; layer < kv.layer_count; layer++) {
        const KvTypes types = kv.at(layer, kv.layer_count);
        uniform = uniform && types == kv.at(0, kv.layer_count);
        for (const KvType type : {types.k, types.v}) {
            hash = (hash ^ uint32_t(type)) * 0x01000193;
            bytes += kv_vector_bytes(type, 128);
        }
    }
    if (uniform) return describe(kv.at(0, kv.layer_count));
    return fmt::format("mix {:06x}, {:.2f} bits", (hash ^ hash >> 24) & 0xffffff,
                       double(bytes) * 8 / (2.0 * 128 * kv.layer_count));
}

} // namespace

void KvOptions::set(const KvPreset& preset) {
    set(preset.types);
    window = preset.window;
}

void KvOptions::set(KvSide side, KvType type) {
    (side == KvSide::key ? k : v) = type;
    for (KvLayers& exception : layers) (side == KvSide::key ? exception.types.k : exception.types.v) = type;
}

// The MTP layer (layer == count) is stored as the last layer is. A range that ends at -1 therefore includes it.
KvTypes KvOptions::at(uint32_t layer, uint32_t count) const {
    KvTypes types{k, v};
    layer = std::min(layer, count - 1);
    for (const KvLayers& exception : layers)
        if (int(layer) >= from_start(exception.first, count) && int(layer) <= from_start(exception.last, count))
            types = exception.types;
    return types;
}

bool KvOptions::any_coded(uint32_t count) const {
    for (uint32_t layer = 0; layer < count; layer++)
        if (at(layer, count).coded()) return true;
    return false;
}

uint32_t KvOptions::layers_with_window(uint32_t count) const {
    uint32_t out = 0;
    for (uint32_t layer = 0; window != 0 && layer < count; layer++)
        if (at(layer, count).coded()) out++;
    return out;
}

// `automatic` is resolved here and nowhere else: no conditioning of keys that are not coded, the calibration if there is one, and
// else the weights alone, which need no measurement. A calibration measures the layers of the model. It has nothing of the MTP
// layer, which falls back to norms.
KeyConditioning KvOptions::conditioning_of(uint32_t layer, uint32_t count) const {
    KeyConditioning out = conditioning;
    out.plain = !is_coded(at(layer, count).k);
    if (layer >= count && out.kind == KeyConditioning::Kind::measured) out.kind = KeyConditioning::Kind::norms;
    if (layer >= count) out.calibration = nullptr;
    if (out.kind == KeyConditioning::Kind::automatic)
        out.kind = out.plain         ? KeyConditioning::Kind::none
                   : out.calibration ? KeyConditioning::Kind::measured
                                     : KeyConditioning::Kind::norms;
    return out;
}

bool KvOptions::scales_values(uint32_t layer, uint32_t count) const {
    return conditioning.kind != KeyConditioning::Kind::none && is_coded(at(layer, count).v);
}

KvCodec KvOptions::codec(uint32_t layer, uint32_t count, KvSide side, uint32_t head_dim) const {
    const KvTypes types = at(layer, count);
    const KvType type = side == KvSide::key ? types.k : types.v;
    return {type, scale_rule, make_rotation(rotation, layer, side, head_dim, type)};
}

uint64_t kv_bytes_per_token(const KvOptions& kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layers; i++) {
        const KvTypes types = kv.at(i, layers);
        bytes += kv_heads * (kv_vector_bytes(types.k, head_dim) + kv_vector_bytes(types.v, head_dim));
    }
    return bytes;
}

uint64_t kv_window_layer_bytes(const KvOptions& kv, uint32_t kv_heads, uint32_t head_dim) {
    return 2ull * kept_window_tokens(kv.window) * kv_heads * kv_vector_bytes(KvType::f16, head_dim);
}

uint64_t kv_window_bytes(const KvOptions& kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim) {
    return kv.layers_with_window(layers) * kv_window_layer_bytes(kv, kv_heads, head_dim);
}

const FormerName* find_former_preset(std::string_view text) {
    const auto found = std::ranges::find(former_kv_presets, text, &FormerName::name);
    return found == former_kv_presets.end() ? nullptr : &*found;
}

const KvPreset& parse_kv_preset(std::string_view text) {
    if (const FormerName* former = find_former_preset(text)) text = former->now;
    std::vector<std::string_view> names;
    for (const KvPreset& preset : kv_presets) {
        if (text == preset.name) return preset;
        names.push_back(preset.name);
    }
    fail("unknown preset '{}': use one of {}", printable(text), fmt::join(names, ", "));
}

// The grammar: entry (";" entry)*, entry = range ("," range)* "=" type ["/" type], range = layer [("-" | ":") layer]. Each range
// of an entry becomes an exception of its own, in the order of the text, so that later ones win.
std::vector<KvLayers> parse_kv_layers(std::string_view text) {
    const std::string_view all = text;
    std::vector<KvLayers> out;
    while (!text.empty()) {
        std::string_view part = take(text, ';'), ranges = take(part, '=');
        if (ranges.empty() || part.empty()) fail_layers(all);
        const KvTypes types = parse_types(part);
        while (!ranges.empty()) {
            std::string_view range = take(ranges, ',');
            const int first = take_layer(range, all);
            int last = first;
            if (!range.empty() && (range[0] == '-' || range[0] == ':')) {
                range.remove_prefix(1);
                last = take_layer(range, all);
            }
            if (!range.empty()) fail_layers(all);
            out.push_back({first, last, types});
        }
    }
    if (out.empty()) fail_layers(all);
    return out;
}

static void check_window(const KvOptions& kv) {
    if (kv.window > max_window_tokens)
        fail("--kv-window {}: the full-precision window holds at most {} tokens", kv.window, max_window_tokens);
}

// Only keys have channels that turn slowly.
static void check_unequal(const KvOptions& kv, uint32_t count) {
    for (uint32_t layer = 0; layer < count; layer++) {
        const KvTypes types = kv.at(layer, count);
        if (is_unequal(types.v))
            fail("{} is a type for keys, and layer {} has its values in it: choose another -ctv, such as {}", name(types.v),
                 layer, name(values_beside(types.v)));
        check_rotation(types.k, kv.rotation);
    }
}

void check_kv(const KvOptions& kv, uint32_t count) {
    check_window(kv);
    check_unequal(kv, count);
    if (kv.layer_count != 0 && kv.layer_count != count)
        fail("the file of cache types is for a model of {} layers, but this one has {}: use the file that was made for it",
             kv.layer_count, count);
    for (const KvLayers& e : kv.layers) {
        const int first = from_start(e.first, count), last = from_start(e.last, count);
        if (first < 0 || last >= int(count) || first > last)
            fail("layers {}:{} are not in this model: it has layers 0 to {}, or -{} to -1", e.first, e.last, count - 1, count);
    }
}

std::string describe(const KvOptions& kv) {
    std::string text = kv.layer_count != 0 ? describe_mix(kv) : describe(KvTypes{kv.k, kv.v});
    if (kv.rotation != RotationKind::wht) text += fmt::format(" {}", name(kv.rotation));
    if (kv.scale_rule != KvOptions().scale_rule) text += fmt::format(" {}", name(kv.scale_rule));
    if (kv.window != 0) text += fmt::format(", window {}", kv.window);
    if (kv.layer_count != 0) return text;
    for (const KvLayers& e : kv.layers) {
        const std::string range = e.first == e.last ? std::to_string(e.first) : fmt::format("{}:{}", e.first, e.last);
        text += fmt::format(", {} {}", range, describe(e.types));
    }
    switch (kv.conditioning.kind) {
    case KeyConditioning::Kind::automatic: return text;
    case KeyConditioning::Kind::none: return text + ", not conditioned";
    default: return text + fmt::format(", conditioned by {}", describe(kv.conditioning));
    }
}

} // namespace tq
