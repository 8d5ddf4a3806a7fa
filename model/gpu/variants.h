// Every variant of every kernel that the program can ask a driver to compile: `tq-run shaders` compiles these.
#pragma once
#include "model/gpu/tuning.h"
#include "runtime/shader.h"
#include <span>
#include <vector>

namespace tq::gpu {

// Returns the results of choose_tuning and tuning_for for `device` under each device profile, without duplicates.
std::vector<Tuning> all_tunings(const Capabilities& device);

// Returns the variants for models of every head dimension, ratio of heads and weight format, and every type of the cache:
// attention with every type at one shape, and every shape with a few pairs of types. Found by recording forward passes and the
// codec, without a device. Ordered by kernel, alphabetically, without duplicates.
std::vector<Variant> all_variants(std::span<const Tuning> tunings);

} // namespace tq::gpu
