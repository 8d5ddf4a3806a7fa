// Inputs of attention's rows: the last tokens of slots, with a cache on the host and its copy on the device.
#pragma once
#include "model/host/cache.h"
#include "tools/check/conformance/rig.h"

namespace tq::conformance {

struct AttentionCase {
    KvOptions kv;
    uint32_t head_dim, heads, kv_heads, length, tokens; // the last `tokens` of `length` positions attend
    uint32_t heads_per_slice = 2;
    float deviation = 1; // of the scores
    uint32_t window_begin = 0;
    float stored = 1;     // deviation of keys and values
    bool growing = false; // values grow with their positions
    uint32_t slots = 1;
    bool separate = false; // rows
    bool scaled = false;   // values
    bool mtp = false;      // a cache of a head for multi-token prediction, whose position 0 is not read

    // Slots have different lengths.
    uint32_t length_of(uint32_t slot) const { return length - slot * 37 % length; }
    std::string text() const {
        return fmt::format("d {}, {} heads on {}, {} of {} positions, {} a slice{}{}{}{}{}{}{}{}", head_dim, heads, kv_heads,
                           tokens, length, heads_per_slice, deviation == 1 ? "" : fmt::format(", scores of +-{}", deviation),
                           window_begin == 0 ? "" : fmt::format(", those before {} forgotten", window_begin),
                           stored == 1 ? "" : fmt::format(", keys and values of +-{}", stored), growing ? ", growing values" : "",
                           slots == 1 ? "" : fmt::format(", {} slots", slots), separate ? ", separate rows" : "",
                           scaled ? ", scaled values" : "", mtp ? ", not the first" : "");
    }
};

// Fills a cache's slots and returns the pass of their last tokens. Every other slot begins as the one before it.
gpu::PassRows fill(Rig& rig, const AttentionCase& shape, host::HostCache& cache);
// `cache` on the device, in slices of shape.heads_per_slice kv heads; with the windows that the pass finds.
gpu::DeviceStorage on_device(Rig& rig, const AttentionCase& shape, const host::LayerCache& cache, const gpu::PassRows& pass);

} // namespace tq::conformance
