// The kernels with which a device's logits are checked. Kernels that compute in fp32 are held to the strict limit, on every
// device; if the device's own kernels round to halves (cooperative matrices, int8 digits, attention in fp16), these are checked
// as well.
#pragma once
#include "model/gpu/forward.h"
#include "model/gpu/tuning_fields.h"
#include "tests/support/relative_error.h"
#include <doctest/doctest.h>
#include <string>

namespace tq {

// A half has 11 bits: an input is off by 2^-12 = 2.4e-4, twice as much on a driver that truncates, and each product of a layer
// adds an error of that size. The tiny models of these tests were at most 2.0e-3 off, on an H200 (matrices of 16x16x16).
constexpr double halves_limit = 5e-3;

// The same kernels without the ones that compute in fp16 or from inputs of 15 bits.
gpu::Tuning without_halves(gpu::Tuning tuning);

struct DeviceKernels {
    gpu::Tuning tuning;

    bool exact() const { return !tuning.rounds_to_fp16(); }
    std::string name() const { return exact() ? "kernels in fp32" : "the device's own kernels"; }
    double limit() const { return exact() ? exact_limit : halves_limit; } // of relative errors, with an f32 cache

    std::unique_ptr<Forward> make(Device& device, const Config& config, const Weights& weights,
                                  const ForwardOptions& options) const;
};

DeviceKernels own_kernels(const Device& device);

DeviceKernels exact_kernels(const Device& device);

// The exact ones first, and the device's own if they are others.
std::vector<DeviceKernels> kernels_to_check(const Device& device);

} // namespace tq
