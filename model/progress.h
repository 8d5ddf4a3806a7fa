// Progress of work that takes long, and its interruption: a prompt that runs, a model that is loaded.
#pragma once
#include <cstdint>
#include <functional>

namespace tq {

// Called with the tokens done so far: after each block of a long run, and between the layers of one block (on a device between
// its submissions). If it returns false, the run stops there.
using Progress = std::function<bool(uint32_t done, uint32_t total)>;

// Called now and then with the bytes read and the total (in the formats of `Weights`); returning false stops the loading.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Thrown when the LoadProgress stopped the loading.
struct LoadStopped {};

} // namespace tq
