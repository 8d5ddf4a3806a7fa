// The KV cache in host memory: for each layer and side, the codes of each kv head, page by page, and the scales beside them; and
// the states of recurrent layers.
#pragma once
#include "model/cache.h"
#include "model/config.h"
#include "model/halves.h"
#include "model/kv/window.h"
#include "model/pass_rows.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq::host {

// A token of a sequence, as a row of a pass.
struct Row {
    uint32_t slot, position;
    StateRange state = {}; // the same in all rows of a slot
};
// Returns the rows of `count` consecutive tokens of a slot.
std::vector<Row> make_rows(uint32_t slot, uint32_t position, uint32_t count, StateRange state = {});
std::vector<Row> rows_of(const PassRows& rows);

// Rows first .. end - 1 of a pass follow one another in one slot, from `position` on.
struct SlotRows {
    uint32_t slot;
    size_t first, end;
    uint32_t position;
    StateRange state; // of these rows

    size_t count() const { return end - first; }
    uint32_t end_position() const { return position + uint32_t(count()); }
};
std::vector<SlotRows> by_slot(std::span<const Row> rows);

// Place of a token's vectors: in a page, or in the ring of a slot's window.
struct Place {
    uint32_t block, token;
};

// One side (keys or values) of one layer: blocks of block_tokens tokens each, which are pages or the rings of windows. Its memory
// is not initialised, so that the system provides it when it is written.
struct CacheSide {
    KvCodec codec;
    uint32_t heads, blocks, block_tokens;
    std::unique_ptr<uint32_t[]> words_;  // [blocks][heads][block_tokens][codec.words()]
    std::unique_ptr<uint16_t[]> scales_; // [blocks][heads][block_tokens][codec.scales()]
    uint32_t sink_words;                 // of one of a block's first tokens in fp16; 0: none is kept
    std::unique_ptr<uint32_t[]> sinks_;  // [blocks][heads][FIRST_TOKENS][sink_words]

    // Throws std::bad_alloc.
    CacheSide(KvCodec codec, uint32_t heads, uint32_t blocks, uint32_t block_tokens, uint32_t sink_words = 0);

    uint32_t head_dim() const { return codec.head_dim(); }
    std::span<uint32_t> codes(Place at, uint32_t head) const { return {&words_[index(at, head) * codec.words()], codec.words()}; }
    std::span<uint16_t> scales(Place at, uint32_t head) const {
        return {&scales_[index(at, head) * codec.scales()], codec.scales()};
    }
    // The fp16 vector of one of a block's first tokens (model/kv/window.h).
    std::span<uint32_t> sink(Place at, uint32_t head) const {
        return {&sinks_[((size_t(at.block) * heads + head) * FIRST_TOKENS + at.token) * sink_words], sink_words};
    }
    // Copies the vectors of all heads of `tokens` tokens, which lie within a block on either side.
    void copy(Place from, Place to, uint32_t tokens) const;

  private:
    size_t index(Place at, uint32_t head) const { return (size_t(at.block) * heads + head) * block_tokens + at.token; }
};

inline constexpr uint32_t ring_step = 64; // the size of a ring is a multiple of it: no tile of positions crosses the end

// Returns the size of the ring of a window, which has room for the tokens of one more pass.
constexpr uint32_t ring_tokens(uint32_t window, uint32_t pass_tokens) {
    return (kept_window_tokens(window) + pass_tokens + ring_step - 1) / ring_step * ring_step;
}

// The full-precision windows, in fp16 (model/kv/window.h): a ring for each slot, in which position p is at p % block_tokens; a
// ring holds the kept tokens and those of a pass.
struct WindowVectors {
    CacheSide k, v; // of type f16

    const CacheSide& side(KvSide side) const { return side == KvSide::key ? k : v; }
};

// The states of a recurrent layer, one for each slot (Recurrent of model/config.h), all 0 at first.
struct LayerStates {
    Recurrent shape;
    uint32_t slots;
    std::vector<float> values;  // [slots][matrix_floats() + history_floats()]
    uint32_t ring;              // tokens that can be pending: pending_ring() of model/cache.h
    std::vector<float> pending; // [slots][ring][pending_floats()], a token at its position modulo the ring

    LayerStates(const Recurrent& shape, uint32_t slots, uint32_t pending = 0);

    std::span<float> of(uint32_t slot) { return {&values[slot * floats()], floats()}; }
    std::span<const float> of(uint32_t slot) const { return {&values[slot * floats()], floats()}; }
    // [head_dim keys][head_dim values]
    std::span<float> matrix(uint32_t slot, uint32_t value_head) {
        const size_t size = size_t(shape.head_dim) * shape.head_dim;
        return of(slot).subspan(value_head * size, size);
    }
    std::span<float> history(uint32_t slot) { return of(slot).subspan(shape.matrix_floats()); } // [conv_kernel - 1][channels]
    // Parts of a pending token: its rows before the convolution and after the norms, and its gates [value_heads][2].
    std::span<float> pending_input(Row at) { return pending_part(at, 0, shape.channels()); }
    std::span<float> pending_output(Row at) { return pending_part(at, shape.channels(), shape.channels()); }
    std::span<float> pending_gates(Row at) { return pending_part(at, 2 * shape.channels(), 2 * shape.value_heads); }
    std::span<float> pending_of(uint32_t slot) {
        return std::span(pending).subspan(slot * ring * shape.pending_floats(), ring * shape.pending_floats());
    }

  private:
    size_t floats() const { return shape.matrix_floats() + shape.history_floats(); }
    std::span<float> pending_part(Row at, uint32_t first, uint32_t count) {
        return pending_of(at.slot).subspan(at.position % ring * shape.pending_floats() + first, count);
    }
};

// The hidden states after the last norm of the last tokens of each slot, which the model's head for multi-token prediction goes
// on from: [slots][ring][cols], a token at its position modulo the ring.
struct LastStates {
    uint32_t ring, cols;
    std::vector<float> values;

    LastStates(uint32_t slots, uint32_t ring, uint32_t cols) : ring(ring), cols(cols), values(size_t(slots) * ring * cols) {}
    std::span<float> at(Row row) {
        return std::span(values).subspan((size_t(row.slot) * ring + row.position % ring) * cols, cols);
    }
    std::span<float> of(uint32_t slot) { return std::span(values).subspan(size_t(slot) * ring * cols, size_t(ring) * cols); }
};

// y[t] = the state of the token before that of row t: row t - 1 of x if it is of the same slot, else the kept one; zeros at the
// start of a sequence. x, y: [rows][cols]
void states_before(std::span<float> y, std::span<const float> x, LastStates& kept, std::span<const Row> rows);
// Keeps those of the rows.
void keep_states(LastStates& kept, std::span<const float> x, std::span<const Row> rows);

// Applies updates that are pending: the states of a slot, which are those after `from` tokens, become those after `to`.
using SettleStates = void (*)(LayerStates& states, uint32_t slot, uint32_t from, uint32_t to);

struct LayerCache {
    const Cache& sequences;              // whose pages and windows they are
    CacheSide k, v;                      // of a recurrent layer without blocks
    std::optional<WindowVectors> window; // if the sequences have windows and the layer stores codes
    std::optional<Recurrent> recurrent;  // of a recurrent layer
    std::unique_ptr<LayerStates> states; // if the recurrent layer is held
    bool is_mtp = false;                 // of the head for multi-token prediction, which does not read position 0

    bool held() const { return k.blocks > 0; }
    bool has_sinks() const { return k.sink_words != 0; }
    // Number of a page's first tokens that are kept in fp16, too.
    uint32_t first_tokens() const { return has_sinks() ? FIRST_TOKENS : 0; }
    // reads_sinks(): attention reads a sequence's first tokens in fp16. left_out(): number of first positions that are not read
    // as codes.
    bool reads_sinks() const { return has_sinks() && !is_mtp; }
    uint32_t left_out() const { return is_mtp ? 1 : first_tokens(); }
    // Returns the page of a slot's first token; the slot has one.
    uint32_t first_block(uint32_t slot) const { return sequences.table(slot)[0]; }
    const CacheSide& side(KvSide side) const { return side == KvSide::key ? k : v; }
    // Returns the place of a token in `k` and `v`, and in those of `window`.
    Place place(Row row) const { return {sequences.table(row.slot)[row.position / page_tokens], row.position % page_tokens}; }
    Place window_place(Row row) const { return {row.slot, row.position % window->k.block_tokens}; }
};

struct LayerCodecs {
    KvCodec k, v;
    std::optional<Recurrent> recurrent = {}; // of a recurrent layer, which stores no keys and values
    bool is_mtp = false;                     // of the head for multi-token prediction
};

// The vectors of the slots that a Cache keeps the books of, or of some layers of them.
class HostVectors final : public CacheVectors {
  public:
    // Allocates all pages and windows of the layers that are held; a pass stores at most `pass_tokens` tokens of a slot.
    // `sequences` must outlive it. settle: that of the kernels that advance the states. hidden_size: not 0 if there is a head for
    // multi-token prediction. Throws std::bad_alloc.
    HostVectors(const Cache& sequences, uint32_t kv_heads, const std::vector<LayerCodecs>& layers, uint32_t pass_tokens,
                const HeldHalves& held = {}, SettleStates settle = nullptr, uint32_t hidden_size = 0);
    HostVectors(const HostVectors&) = delete;

    const std::vector<LayerCache>& layers() const { return layers_; }
    LastStates* last_states() const { return last_states_.get(); } // null: no head for multi-token prediction

    PageLayout page_layout() const override;
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override;
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override;
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override;
    void copy_window(uint32_t from_slot, uint32_t to_slot) override;
    void read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const override;
    void write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) override;
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const override;
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override;
    std::optional<std::string> find_nonfinite(uint32_t slot) const override;
    uint64_t state_bytes() const override;
    void read_state(uint32_t slot, uint32_t tokens, std::span<std::byte> bytes) const override;
    void write_state(uint32_t slot, uint32_t tokens, std::span<const std::byte> bytes) override;
    void settle_state(uint32_t slot, uint32_t settled, uint32_t tokens) override;
    void copy_state(uint32_t from_slot, uint32_t to_slot) override;
    void clear_state(uint32_t slot) override;

  private:
    std::string where(std::string what, uint32_t slot) const; // with the slot if there are several
    template <class Byte> void transfer_page(uint32_t page, uint32_t tokens, std::span<Byte> bytes) const;
    template <class Byte> void transfer_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<Byte> bytes) const;
    template <class Byte> void transfer_state(uint32_t slot, uint32_t tokens, std::span<Byte> bytes) const;

    const Cache& sequences_;
    const uint32_t kv_heads_;
    const SettleStates settle_;
    std::vector<LayerCache> layers_;
    std::unique_ptr<LastStates> last_states_;
};

// The cache of a whole model on the host.
class HostCache final : public Cache {
  public:
    HostCache(const Shape& shape, uint32_t kv_heads, const std::vector<LayerCodecs>& layers, uint32_t pass_tokens,
              SettleStates settle = nullptr, uint32_t hidden_size = 0)
        : Cache(shape), vectors_(*this, kv_heads, layers, pass_tokens, {}, settle, hidden_size) {
        store_in(vectors_);
    }

    const HostVectors& vectors() const { return vectors_; }
    const std::vector<LayerCache>& layers() const { return vectors_.layers(); }

  private:
    HostVectors vectors_;
};

} // namespace tq::host
