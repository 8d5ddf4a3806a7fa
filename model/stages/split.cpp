#include "model/stages/split.h"
#include <algorithm>

namespace tq {

HeldHalves Split::held(uint32_t device) const {
    std::vector<bool> held;
    for (const uint32_t of : device_of_) held.push_back(of == device);
    return HeldHalves(std::move(held));
}

std::vector<Part> Split::parts() const {
    std::vector<Part> out;
    for (uint32_t half = 0; half < head_half(layers()); half++) {
        if (out.empty() || out.back().device != device_of(half)) out.push_back({{half, half}, device_of(half)});
        out.back().halves.end++;
    }
    return out;
}

bool Split::streams(uint32_t half) const {
    const uint32_t cpu = devices_ - 1;
    return stream_rows_ != 0 && half % 2 == 1 && device_of(half) == cpu && device_of(half - 1) != cpu;
}

std::vector<uint32_t> Split::streamed(uint32_t device) const {
    std::vector<uint32_t> out;
    for (uint32_t layer = 0; layer < layers(); layer++)
        if (device_of(attention_of(layer)) == device && streams(feed_forward_of(layer))) out.push_back(layer);
    return out;
}

std::vector<Part> Split::streamed_parts() const {
    std::vector<Part> out;
    for (uint32_t half = 0; half < head_half(layers()); half++) {
        const uint32_t device = device_of(streams(half) ? half - 1 : half);
        const bool goes_on = !out.empty() && out.back().device == device && !streams(half - 1);
        if (!goes_on) out.push_back({{half, half}, device});
        out.back().halves.end++;
    }
    return out;
}

bool Split::is_whole_on(uint32_t device) const {
    return std::ranges::all_of(device_of_, [&](uint32_t of) { return of == device; });
}

} // namespace tq
