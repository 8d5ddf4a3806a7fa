// The state of a recurrent layer is one matrix for each value head and the last inputs of the convolution, for each slot. Passes
// advance it in place, so after a pass only the state after the last token exists, and a sequence cannot be cut by forgetting
// tokens, as keys and values allow. model/cache.h therefore keeps copies at a few lengths (checkpoints), which read() and write()
// here bring to the host and back, and clear() makes the state of an empty sequence. A pass that was stopped or failed has
// destroyed the state of its slots: the cache then goes back to a checkpoint. The order of operations is the same for blocks and
// for single rows (shaders/delta_rule.comp), so a state's bits do not depend on how a prompt was divided.
#include "model/gpu/states.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/statistics.h"
#include "model/gpu/recurrent.h"
#include "model/pass_rows.h"
#include "runtime/recorder.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace tq::gpu {

RecurrentSlot::RecurrentSlot(const Recurrent& r, uint32_t pending) : history(uint32_t(r.matrix_floats())) {
    ring = pending_ring(pending);
    inputs = uint32_t(r.state_bytes() / 4);
    outputs = inputs + ring * r.channels();
    gates = outputs + ring * r.channels();
    floats = uint32_t(round_up(gates + ring * 2 * r.value_heads, 4)); // vec4s
    ring = std::max(ring, 1u);                                        // positions are divided by it
}

View RecurrentStates::hidden_of(uint32_t slot) const {
    const uint64_t bytes = hidden_ring(pending_) * hidden_bytes_;
    return {*hidden_, slot * bytes, bytes};
}

// Calls use(state of a layer that is held, its offset among those of the slot), and so for the hidden state of the last token.
template <class Use> void RecurrentStates::each(uint32_t slot, uint32_t tokens, const Use& use) const {
    uint64_t at = 0;
    for (const auto& [number, buffer] : layers_) {
        if (buffer) use(View(*buffer, slot * slot_bytes_, layer_bytes_), at);
        at += layer_bytes_;
    }
    if (!hidden_) return;
    const uint64_t place = uint64_t(slot) * hidden_ring(pending_) + (tokens - 1) % hidden_ring(pending_);
    use(View(*hidden_, place * hidden_bytes_, hidden_bytes_), at);
}

// Returns the bytes of a slot of a layer: its state and pending tokens.
static uint64_t slot_bytes(const Config& config, uint32_t pending) {
    return config.recurrent ? 4ull * RecurrentSlot(*config.recurrent, pending).floats : 0;
}

RecurrentStates::RecurrentStates(Device& device, const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held)
    : pending_(pending), layer_bytes_(config.recurrent ? config.recurrent->state_bytes() : 0),
      slot_bytes_(slot_bytes(config, pending)), hidden_bytes_(config.mtp ? 4ull * config.hidden_size : 0) {
    const Capabilities& caps = device.capabilities();
    const uint64_t bytes = slots * slot_bytes_, limit = std::min(caps.storage_range_bytes, caps.allocation_bytes);
    if (bytes > limit)
        fail("the recurrent states of {} slots take {:.1f} MiB per layer, but {} binds at most {:.1f} MiB at once: choose fewer "
             "slots with --parallel",
             slots, double(bytes) / (1 << 20), caps.name, double(limit) / (1 << 20));
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
        if (config.is_recurrent(layer)) {
            std::optional<Buffer>& buffer = layers_[layer];
            if (held.attention(layer))
                buffer = device.allocate(fmt::format("states of layer {}", layer), bytes, Memory::device, Placement::own);
        }
    if (config.mtp) hidden_ = device.allocate("last hidden states", slots * hidden_ring(pending) * hidden_bytes_);
    zeros_ = upload(device, "first state", std::vector<std::byte>(std::max(slot_bytes_, hidden_ring(pending) * hidden_bytes_)));
    for (uint32_t slot = 0; slot < slots; slot++) clear(device, slot);
}

const Buffer* RecurrentStates::of(uint32_t layer) const {
    const auto found = layers_.find(layer);
    return found != layers_.end() && found->second ? &*found->second : nullptr;
}

void RecurrentStates::read(Device& device, uint32_t slot, uint32_t tokens, std::span<std::byte> out) const {
    ENSURE(out.size() == bytes(), "{} bytes of {}", out.size(), bytes());
    const Buffer copy = device.allocate("states read back", out.size(), Memory::readback);
    Recorder recorder(device);
    each(slot, tokens, [&](const View& state, uint64_t at) { recorder.copy(View(copy, at, state.bytes), state); });
    recorder.finish().run();
    each(slot, tokens,
         [&](const View& state, uint64_t at) { std::memcpy(out.data() + at, copy.host().data() + at, state.bytes); });
}

void RecurrentStates::write(Device& device, uint32_t slot, uint32_t tokens, std::span<const std::byte> in) const {
    ENSURE(in.size() == bytes(), "{} bytes of {}", in.size(), bytes());
    const Buffer copy = device.allocate("states to write", in.size(), Memory::upload);
    std::ranges::copy(in, copy.host().begin());
    Recorder recorder(device);
    each(slot, tokens, [&](const View& state, uint64_t at) { recorder.copy(state, View(copy, at, state.bytes)); });
    recorder.finish().run();
}

void RecurrentStates::copy(Device& device, uint32_t from_slot, uint32_t to_slot) const {
    if (from_slot == to_slot) return;
    Recorder recorder(device);
    for (const auto& [number, buffer] : layers_)
        if (buffer) recorder.copy(slot_of(*buffer, to_slot), slot_of(*buffer, from_slot));
    if (hidden_) recorder.copy(hidden_of(to_slot), hidden_of(from_slot));
    recorder.finish().run();
}

void RecurrentStates::clear(Device& device, uint32_t slot) const {
    Recorder recorder(device);
    for (const auto& [number, buffer] : layers_)
        if (buffer) recorder.copy(slot_of(*buffer, slot), View(*zeros_, 0, slot_bytes_));
    if (hidden_) recorder.copy(hidden_of(slot), View(*zeros_, 0, hidden_of(slot).bytes));
    recorder.finish().run();
}

std::optional<std::string> RecurrentStates::find_nonfinite(Device& device, uint32_t slot) const {
    std::vector<float> all(bytes() / 4);
    read(device, slot, 1, std::as_writable_bytes(std::span(all)));
    std::span<const float> left = all;
    for (const auto& [layer, buffer] : layers_) {
        if (!all_finite(left.first(layer_bytes_ / 4))) return fmt::format("the state of layer {}", layer);
        left = left.subspan(layer_bytes_ / 4);
    }
    return std::nullopt;
}

uint64_t states_bytes(const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held) {
    if (!config.has_states()) return 0;
    uint64_t layers = 0;
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
        layers += config.is_recurrent(layer) && held.attention(layer);
    const uint64_t hidden = config.mtp ? 4ull * hidden_ring(pending) * config.hidden_size : 0;
    return layers * slots * slot_bytes(config, pending) + slots * hidden + std::max(slot_bytes(config, pending), hidden);
}

} // namespace tq::gpu
