// Every variant of every kernel that the program can ask a driver for: what `tq-run shaders` compiles.
#pragma once
#include "model/gpu/tuning.h"
#include "runtime/shader.h"
#include <span>
#include <vector>

namespace tq::gpu {

// What choose_tuning and tuning_for give `device` under each device profile, without repetitions.
std::vector<Tuning> all_tunings(const Capabilities& device);

// For models of every head dimension, ratio of heads and weight format, and every type of the cache: attention with every type at
// one shape, and every shape with a few pairs of types. Found by recording, on no device, what forward passes and the
// codec record. Kernel after kernel, in alphabetical order, without repetitions.
std::vector<Variant> all_variants(std::span<const Tuning> tunings);

} // namespace tq::gpu
