// The device's forward pass on tiny models with golden logits, and with compressed caches against the CPU's.
#pragma once
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"

namespace tq {

// Attention by matrices reads no f32 cache; one of f16 rounds as it does, but not keys with biases of 40 to 160.
void check_on_device(Device& device, const Golden& golden);

// Sums in another order differ by rounding, and a value or scale within rounding of a threshold gets the neighbouring level:
// rarely, but later layers depend on it. Rounding to halves moves many values across: there `tq-run conformance` compares kernels
// code by code, from the same inputs.
void check_compressed(Device& device, const std::vector<std::filesystem::path>& files);

} // namespace tq
