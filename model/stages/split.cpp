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

bool Split::is_whole_on(uint32_t device) const {
    return std::ranges::all_of(device_of_, [&](uint32_t of) { return of == device; });
}

} // namespace tq
