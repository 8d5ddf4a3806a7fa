// Identifies the kernels of this build.
#pragma once
#include <cstdint>

namespace tq::gpu {

// Returns a hash of the names and the SPIR-V of all kernels.
uint64_t shaders_hash();

} // namespace tq::gpu
