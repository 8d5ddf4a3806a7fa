// Messages between ranks, as bytes. Both sides run the same build, which is checked when a job begins (rank_group.cpp), so
// numbers and plain structs go as they lie in memory. The choices and sizes in options are checked here. Pages, slots and rows
// become indices on the other side, so they are checked: pages here, the others by the code that knows their limits
// (stage_host.cpp). A page has all layers' bytes in a row. held_bytes() takes those of the layers that a rank holds;
// put_held_bytes() puts them back in their places.
#include "model/stages/ranks/stage_messages.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {
namespace {

void write_conditioning(MessageWriter& to, const KeyConditioning& by) {
    to.add(by.kind);
    to.add_text(by.file);
    to.add(by.calibration != nullptr);
    if (!by.calibration) return;
    const KeyCalibration& c = *by.calibration;
    to.add(std::array{c.layers, c.kv_heads, c.head_dim});
    to.add_list(std::span(c.scales));
    to.add_list(std::span(c.means));
}

// A measured calibration travels with its numbers: the file that it came from is on rank 0's machine.
KeyConditioning read_conditioning(MessageReader& from, const Config& config) {
    using Kind = KeyConditioning::Kind;
    KeyConditioning by;
    by.kind = from.one_of<Kind>(uint64_t(Kind::measured) + 1, "conditioning of keys");
    by.file = from.text();
    if (!from.flag()) return by;
    const auto [layers, kv_heads, head_dim] = from.get<std::array<uint32_t, 3>>();
    KeyCalibration c{layers, kv_heads, head_dim, from.list<float>(), {}};
    c.means = from.list<float>();
    const uint64_t heads = uint64_t(layers) * kv_heads; // may be any number; a product of three could overflow
    for (const auto* list : {&c.scales, &c.means})
        if (head_dim == 0 || list->size() % head_dim != 0 || list->size() / head_dim != heads)
            fail("a message between ranks has a calibration of {} numbers for {} layers of {} kv heads of {}", list->size(),
                 layers, kv_heads, head_dim);
    if (layers != config.num_hidden_layers || kv_heads != config.num_key_value_heads || head_dim != config.head_dim)
        fail("a message between ranks has a calibration for {} layers of {} kv heads of {}, but this model has {} of {} of {}",
             layers, kv_heads, head_dim, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
    by.calibration = std::make_shared<const KeyCalibration>(std::move(c));
    return by;
}

void write_kv(MessageWriter& to, const KvOptions& kv) {
    to.add(KvTypes{kv.k, kv.v});
    to.add(kv.rotation);
    to.add(kv.scale_rule);
    to.add_list(std::span<const KvLayers>(kv.layers));
    write_conditioning(to, kv.conditioning);
    to.add(std::array{kv.window, kv.layer_count});
}

void require_known(const KvTypes& types) {
    for (const KvType type : {types.k, types.v})
        if (std::ranges::find(kv_types, type, &KvTypeName::type) == kv_types.end())
            fail("a message between ranks has the cache type {}, which there is not", uint32_t(type));
}

// Throws Error if rank 0 sends a size that no command line allows.
uint32_t checked_size(uint32_t value, uint32_t min, uint32_t max, const char* what) {
    if (value < min || value > max) fail("a message between ranks has {} {}, not {} to {}", what, value, min, max);
    return value;
}

KvOptions read_kv(MessageReader& from, const Config& config) {
    KvOptions kv;
    kv.set(from.get<KvTypes>());
    kv.rotation = from.one_of<RotationKind>(rotation_names.size(), "rotation");
    kv.scale_rule = from.one_of<ScaleRule>(scale_rule_names.size(), "scale rule");
    kv.layers = from.list<KvLayers>();
    require_known({kv.k, kv.v});
    for (const KvLayers& some : kv.layers) require_known(some.types);
    kv.conditioning = read_conditioning(from, config);
    const auto [window, layer_count] = from.get<std::array<uint32_t, 2>>();
    kv.window = window; // check_kv() looks at it
    kv.layer_count = layer_count;
    return kv;
}

// The bytes of a layer in a page are consecutive: those of its keys, and then of its values.
template <class Byte>
std::span<Byte> layer_bytes(const PageLayout& layout, std::span<Byte> page, uint32_t tokens, uint32_t layer) {
    const std::span<Byte> first = layout.codes(page, tokens, layer, KvSide::key, 0),
                          last = layout.sink(page, tokens, layer, KvSide::value, layout.kv_heads() - 1);
    return {first.data(), last.data() + last.size()};
}

} // namespace

void write_options(MessageWriter& to, const ForwardOptions& options, uint32_t layers) {
    write_kv(to, options.kv);
    to.add(std::array{options.context_size, options.slots, options.cache_tokens, options.batch_size, options.pending});
    to.add(std::array{options.deterministic, options.speculative});
    std::vector<uint8_t> held;
    for (uint32_t half = 0; half < halves_of(layers); half++) held.push_back(options.held.holds(half) ? 1 : 0);
    to.add_list(std::span<const uint8_t>(held));
}

ForwardOptions read_options(MessageReader& from, const Config& config) {
    constexpr uint32_t max_slots = 4096, max_batch = 65536;
    const uint32_t layers = config.num_hidden_layers;
    ForwardOptions options;
    options.kv = read_kv(from, config);
    check_kv(options.kv, layers);
    const auto [context_size, slots, cache_tokens, batch_size, pending] = from.get<std::array<uint32_t, 5>>();
    options.context_size = checked_size(context_size, 1, max_context, "context size");
    options.slots = checked_size(slots, 1, max_slots, "slots");
    options.cache_tokens = cache_tokens; // the slots bound it (pages())
    options.batch_size = checked_size(batch_size, 0, max_batch, "batch size");
    options.pending = checked_size(pending, 0, max_batch, "pending tokens");
    options.deterministic = from.flag();
    options.speculative = from.flag();
    std::vector<uint8_t> held(halves_of(layers));
    from.get_list(std::span(held));
    options.held = HeldHalves(std::vector<bool>(held.begin(), held.end()));
    return options;
}

void write_rows(MessageWriter& to, const PassRows& rows) {
    to.add_list(std::span<const uint32_t>(rows.ids));
    to.add_list(std::span<const PassRow>(rows.rows));
    to.add_list(std::span<const RowSpan>(rows.spans));
}

PassRows read_rows(MessageReader& from) {
    PassRows rows;
    rows.ids = from.list<uint32_t>();
    rows.rows = from.list<PassRow>();
    rows.spans = from.list<RowSpan>();
    if (rows.ids.size() != rows.rows.size()) fail("{} ids, but {} rows in a message", rows.ids.size(), rows.rows.size());
    return rows;
}

void write_sequences(MessageWriter& to, const Cache& cache, bool with_tables) {
    to.add(with_tables);
    for (uint32_t slot = 0; slot < cache.shape().slots; slot++) {
        to.add(std::array{cache.position(slot), cache.window(slot).begin});
        if (with_tables) to.add_list(cache.table(slot));
    }
}

void read_sequences(MessageReader& from, Cache& cache) {
    const bool with_tables = from.flag();
    for (uint32_t slot = 0; slot < cache.shape().slots; slot++) {
        const auto [position, window_begin] = from.get<std::array<uint32_t, 2>>();
        const auto own = cache.table(slot);
        const auto pages = with_tables ? from.list<uint32_t>() : std::vector(own.begin(), own.end());
        for (const uint32_t page : pages)
            if (page >= cache.shape().pages) fail("page {} of {} in a message", page, cache.shape().pages);
        if (pages_of(position) > pages.size()) fail("{} pages for {} tokens in a message", pages.size(), position);
        cache.mirror(slot, pages, position, window_begin);
    }
}

// Layers follow each other in a page, and a rank holds some of them, not always neighbours. Both sides know the layout and who
// holds what, so that only bytes are sent.
std::vector<std::byte> held_bytes(const PageLayout& layout, const HeldHalves& held, std::span<const std::byte> page,
                                  uint32_t tokens) {
    std::vector<std::byte> out;
    for (uint32_t layer = 0; layer < layout.layers(); layer++) {
        if (!held.attention(layer)) continue;
        const std::span<const std::byte> part = layer_bytes(layout, page, tokens, layer);
        out.insert(out.end(), part.begin(), part.end());
    }
    return out;
}

void put_held_bytes(const PageLayout& layout, const HeldHalves& held, std::span<std::byte> page, uint32_t tokens,
                    std::span<const std::byte> bytes) {
    for (uint32_t layer = 0; layer < layout.layers(); layer++) {
        if (!held.attention(layer)) continue;
        const std::span<std::byte> part = layer_bytes(layout, page, tokens, layer);
        if (part.size() > bytes.size()) fail("the bytes of a page end too early, at layer {}", layer);
        if (!part.empty()) std::memcpy(part.data(), bytes.data(), part.size());
        bytes = bytes.subspan(part.size());
    }
    if (!bytes.empty()) fail("{} bytes too many for a page", bytes.size());
}

namespace {

// The bytes of a layer among a slot's states.
struct StatePart {
    uint64_t at, size;
};
// Returns those of the recurrent layers that are held.
std::vector<StatePart> state_parts(const Config& config, const HeldHalves& held, uint64_t bytes) {
    if (bytes != config.state_bytes()) fail("{} bytes of recurrent states in place of {}", bytes, config.state_bytes());
    std::vector<StatePart> parts;
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++) {
        if (!config.is_recurrent(layer)) continue;
        if (held.attention(layer)) parts.push_back({at, config.recurrent->state_bytes()});
        at += config.recurrent->state_bytes();
    }
    return parts;
}

} // namespace

std::vector<std::byte> held_states(const Config& config, const HeldHalves& held, std::span<const std::byte> states) {
    std::vector<std::byte> out;
    for (const StatePart& part : state_parts(config, held, states.size())) {
        const auto of_layer = states.subspan(part.at, part.size);
        out.insert(out.end(), of_layer.begin(), of_layer.end());
    }
    return out;
}

void put_held_states(const Config& config, const HeldHalves& held, std::span<std::byte> states,
                     std::span<const std::byte> bytes) {
    const std::vector<StatePart> parts = state_parts(config, held, states.size());
    const uint64_t expected = parts.empty() ? 0 : parts.size() * parts[0].size;
    if (bytes.size() != expected) fail("{} bytes of a rank's recurrent states in place of {}", bytes.size(), expected);
    for (const StatePart& part : parts) {
        std::memcpy(&states[part.at], bytes.data(), part.size);
        bytes = bytes.subspan(part.size);
    }
}

} // namespace tq
