// The KV cache on the device: per layer one buffer, or several with some of the kv heads each if one would exceed the limit of a
// binding. Each has, of keys and then of values, the codes, the scales and the first tokens in fp16 (model/kv/turboquant.md),
// page after page (model/cache.h).
#pragma once
#include "model/cache.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/gpu/states.h"
#include "model/kv/options.h"
#include "model/kv/stored.h"
#include "model/kv/window.h"
#include "runtime/device.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tq::gpu {

// Offsets in 32-bit words of the parts of a slice of `heads` kv heads, each [pages][heads][page_tokens], and of the first tokens'
// fp16 vectors, [pages][heads][FIRST_TOKENS], if the layer has codes; each is aligned to 16 bytes.
struct CacheLayout {
    uint32_t k_codes, k_scales, k_sinks, v_codes, v_scales, v_sinks, words;

    CacheLayout(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t pages);
    uint32_t codes(KvSide side) const { return side == KvSide::key ? k_codes : v_codes; }
    uint32_t scales(KvSide side) const { return side == KvSide::key ? k_scales : v_scales; }
    uint32_t sinks(KvSide side) const { return side == KvSide::key ? k_sinks : v_sinks; }
};

struct CacheSlice {
    Buffer buffer;
    uint32_t first_head, heads;
    CacheLayout layout;
};

// The storage of one side of a layer; `matrix` is that of a dense rotation.
struct CacheCodec : KvCodec {
    std::optional<Buffer> matrix;

    CacheCodec(Device& device, KvCodec codec);
    CacheCodec(KvCodec codec, std::optional<Buffer> matrix) : KvCodec(std::move(codec)), matrix(std::move(matrix)) {}
    // Returns the rotation; ROTATION_NONE for a type that is not rotated.
    uint32_t rotation_constant() const {
        if (!is_turboquant(type)) return ROTATION_NONE;
        return rotation.quarters ? ROTATION_WHT_QUARTERS : uint32_t(rotation.kind);
    }
};

struct LayerCache {
    CacheCodec k, v;
    std::vector<CacheSlice> slices;
    std::optional<uint32_t> ring = {}; // if the layer has a window: the number of the first vector of its rings
    bool is_recurrent = false;         // then it stores no keys and values
    bool is_mtp = false;               // of the head for multi-token prediction, which does not read position 0

    KvTypes types() const { return {k.type, v.type}; }
    const CacheCodec& side(KvSide side) const { return side == KvSide::key ? k : v; }
    uint32_t sink_words() const { return tq::sink_words(types(), k.head_dim()); }
};

// The full-precision window: fp16 vectors in the codes' own space (model/kv/window.h): those of keys, then those of values,
// each [block, then the rings][head_dim]. The block [kv_heads][block_tokens] holds the tokens of a pass of blocks, until it is
// done; each layer has rings [slots][kv_heads][ring_tokens()], in which position p is at p % ring_tokens(). `tokens` are
// attended to.
struct WindowVectors {
    Buffer buffer;
    uint32_t tokens, block_tokens;

    uint32_t ring_tokens() const { return kept_window_tokens(tokens); }
    uint64_t side_bytes() const { return buffer.bytes() / 2; }
};

// The pages of a slot, in order (Cache::table).
using Table = std::span<const uint32_t>;

struct DeviceStorage {
    uint32_t head_dim, kv_heads, pages;
    std::vector<LayerCache> layers;
    std::optional<WindowVectors> window = {};
    std::optional<RecurrentStates> states = {};

    // Allocates the pages of the layers whose attention is held; others, and recurrent ones, have no slices. Throws Error when a
    // single head's part exceeds the device's limit of a binding, or memory runs out.
    DeviceStorage(Device& device, const Config& config, const KvOptions& kv, uint32_t pages, const HeldHalves& held = {});
    DeviceStorage(uint32_t head_dim, uint32_t kv_heads, uint32_t pages, std::vector<LayerCache> layers)
        : head_dim(head_dim), kv_heads(kv_heads), pages(pages), layers(std::move(layers)) {}

    // Adds a window of `tokens` tokens, a ring for each slot, to every layer that stores codes, for passes of at most
    // `block_tokens`. Throws Error when that exceeds the device's limit of a binding, or memory runs out.
    void keep_window(Device& device, uint32_t slots, uint32_t tokens, uint32_t block_tokens);

    // Adds the states of recurrent layers and of a head for multi-token prediction, if there are any.
    void keep_states(Device& device, const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held);

    void copy_page(Device& device, uint32_t from, uint32_t to) const;
    void copy_window(Device& device, uint32_t from_slot, uint32_t to_slot) const;
    // Like CacheVectors::read_window() and write_window().
    void read_window(Device& device, uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const;
    void write_window(Device& device, uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) const;

    // Makes positions length .. to - 1 repetitions of the first `length`, an even number.
    void repeat(Device& device, Table table, uint32_t length, uint32_t to) const;

    // Reads back the content of one side of a layer for the first `length` tokens. Throws Error when the device is lost.
    StoredSide stored(Device& device, Table table, uint32_t layer, KvSide side, uint32_t length) const;
    // The bytes of the first `tokens` tokens of a page (model/kv/page_layout.h). Throw Error when the device is lost, or memory
    // for a copy runs out.
    PageLayout page_layout() const;
    void read_page(Device& device, uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const;
    void write_page(Device& device, uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) const;

    // Returns "the key of layer 3, kv head 1, position 17": the first vector below `length` that is not finite. Reads all back.
    std::optional<std::string> find_nonfinite(Device& device, Table table, uint32_t length) const;
};

// A DeviceStorage as the vectors of slots that a Cache keeps the books of. All arguments must outlive it.
class DeviceVectors final : public CacheVectors {
  public:
    // settle: settle_state(), by kernels that need more than these.
    using Settle = std::function<void(uint32_t slot, uint32_t settled, uint32_t tokens)>;
    DeviceVectors(Device& device, const DeviceStorage& vectors, const Cache& sequences, Settle settle)
        : device_(device), vectors_(vectors), sequences_(sequences), settle_(std::move(settle)) {}

    PageLayout page_layout() const override { return vectors_.page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        vectors_.read_page(device_, page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        vectors_.write_page(device_, page, tokens, bytes);
    }
    void copy_page(uint32_t from, uint32_t to, uint32_t) override { vectors_.copy_page(device_, from, to); }
    void copy_window(uint32_t from_slot, uint32_t to_slot) override { vectors_.copy_window(device_, from_slot, to_slot); }
    void read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const override {
        vectors_.read_window(device_, slot, first, tokens, bytes);
    }
    void write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) override {
        vectors_.write_window(device_, slot, first, tokens, bytes);
    }
    uint64_t state_bytes() const override { return vectors_.states ? vectors_.states->bytes() : 0; }
    void read_state(uint32_t slot, uint32_t tokens, std::span<std::byte> bytes) const override {
        if (vectors_.states) vectors_.states->read(device_, slot, tokens, bytes);
    }
    void write_state(uint32_t slot, uint32_t tokens, std::span<const std::byte> bytes) override {
        if (vectors_.states) vectors_.states->write(device_, slot, tokens, bytes);
    }
    void copy_state(uint32_t from_slot, uint32_t to_slot) override {
        if (vectors_.states) vectors_.states->copy(device_, from_slot, to_slot);
    }
    void settle_state(uint32_t slot, uint32_t settled, uint32_t tokens) override { settle_(slot, settled, tokens); }
    void clear_state(uint32_t slot) override {
        if (vectors_.states) vectors_.states->clear(device_, slot);
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const override {
        return vectors_.stored(device_, sequences_.table(slot), layer, side, sequences_.position(slot));
    }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override {
        vectors_.repeat(device_, sequences_.table(slot), length, to);
    }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override;

  private:
    Device& device_;
    const DeviceStorage& vectors_;
    const Cache& sequences_;
    const Settle settle_;
};

// Returns the number of bytes that DeviceStorage allocates.
uint64_t cache_bytes(const Config& config, const KvOptions& kv, uint32_t pages, const HeldHalves& held = {});

// Returns the number of bytes that its keep_window() allocates.
uint64_t window_bytes(const Config& config, const ForwardOptions& options);

// Throws Error when a single head's part of a cache of this size exceeds the device's limit of a binding.
void require_bindable(const Capabilities& caps, const Config& config, const KvOptions& kv, uint32_t pages);

} // namespace tq::gpu
