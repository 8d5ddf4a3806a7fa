// The state of a recurrent layer is one matrix for each value head and the last inputs of the convolution, for each slot. Passes
// advance it in place, so after a pass only the state after the last token exists, and a sequence cannot be cut by forgetting
// tokens, as keys and values allow. model/cache.h therefore keeps copies at a few lengths (checkpoints), which read() and write()
// here bring to the host and back, and clear() makes the state of an empty sequence. A pass that was stopped or failed has
// destroyed the state of its slots: the cache then goes back to a checkpoint. The order of operations is the same for blocks and
// for single rows (shaders/delta_rule.comp), so a state's bits do not depend on how a prompt was divided.
#include "model/gpu/states.h"
#include "base/ensure.h"
#include "base/error.h"
#include "runtime/recorder.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace tq::gpu {

// Calls use(state of a layer that is held, its offset among those of the slot).
template <class Use> void RecurrentStates::each(uint32_t slot, const Use& use) const {
    uint64_t at = 0;
    for (const auto& [number, buffer] : layers_) {
        if (buffer) use(View(*buffer, slot * layer_bytes_, layer_bytes_), at);
        at += layer_bytes_;
    }
}

RecurrentStates::RecurrentStates(Device& device, const Config& config, uint32_t slots, const HeldHalves& held)
    : layer_bytes_(config.recurrent->state_bytes()) {
    const Capabilities& caps = device.capabilities();
    const uint64_t bytes = slots * layer_bytes_, limit = std::min(caps.storage_range_bytes, caps.allocation_bytes);
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
    zeros_ = device.allocate("first state", layer_bytes_);
    Uploader uploader(device);
    for (uint64_t at = 0; at < layer_bytes_; at += Uploader::max_piece_bytes()) {
        const uint64_t piece = std::min<uint64_t>(Uploader::max_piece_bytes(), layer_bytes_ - at);
        std::ranges::fill(uploader.begin(View(*zeros_, at, piece)), std::byte(0));
        uploader.end();
    }
    uploader.finish();
    for (uint32_t slot = 0; slot < slots; slot++) clear(device, slot);
}

const Buffer* RecurrentStates::of(uint32_t layer) const {
    const auto found = layers_.find(layer);
    return found != layers_.end() && found->second ? &*found->second : nullptr;
}

void RecurrentStates::read(Device& device, uint32_t slot, std::span<std::byte> out) const {
    ENSURE(out.size() == bytes(), "{} bytes of {}", out.size(), bytes());
    const Buffer copy = device.allocate("states read back", out.size(), Memory::readback);
    Recorder recorder(device);
    each(slot, [&](const View& state, uint64_t at) { recorder.copy(View(copy, at, layer_bytes_), state); });
    recorder.finish().run();
    each(slot, [&](const View&, uint64_t at) { std::memcpy(out.data() + at, copy.host().data() + at, layer_bytes_); });
}

void RecurrentStates::write(Device& device, uint32_t slot, std::span<const std::byte> in) const {
    ENSURE(in.size() == bytes(), "{} bytes of {}", in.size(), bytes());
    const Buffer copy = device.allocate("states to write", in.size(), Memory::upload);
    std::ranges::copy(in, copy.host().begin());
    Recorder recorder(device);
    each(slot, [&](const View& state, uint64_t at) { recorder.copy(state, View(copy, at, layer_bytes_)); });
    recorder.finish().run();
}

void RecurrentStates::copy(Device& device, uint32_t from_slot, uint32_t to_slot) const {
    if (from_slot == to_slot) return;
    Recorder recorder(device);
    each(from_slot,
         [&](const View& state, uint64_t) { recorder.copy(View(*state.buffer, to_slot * layer_bytes_, layer_bytes_), state); });
    recorder.finish().run();
}

void RecurrentStates::clear(Device& device, uint32_t slot) const {
    Recorder recorder(device);
    each(slot, [&](const View& state, uint64_t) { recorder.copy(state, *zeros_); });
    recorder.finish().run();
}

std::optional<std::string> RecurrentStates::find_nonfinite(Device& device, uint32_t slot) const {
    std::vector<float> all(bytes() / 4);
    read(device, slot, std::as_writable_bytes(std::span(all)));
    auto at = all.begin();
    for (const auto& [layer, buffer] : layers_) {
        const auto end = at + std::ptrdiff_t(layer_bytes_ / 4);
        if (!std::all_of(at, end, [](float v) { return std::isfinite(v); })) return fmt::format("the state of layer {}", layer);
        at = end;
    }
    return std::nullopt;
}

uint64_t states_bytes(const Config& config, uint32_t slots, const HeldHalves& held) {
    if (!config.recurrent) return 0;
    uint64_t layers = 0;
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
        layers += config.is_recurrent(layer) && held.attention(layer);
    return (layers * slots + 1) * config.recurrent->state_bytes();
}

} // namespace tq::gpu
