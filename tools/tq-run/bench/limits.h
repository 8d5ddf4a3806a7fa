// Measures the limits of a device: the rates that kernels are compared with.
#pragma once
#include "base/thread_pool.h"
#include "runtime/device.h"
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace tq::bench {

// Empty if the device, or this build, lacks the feature. Copies count the bytes read and written.
struct Limits {
    std::optional<double> read_gb_per_s, copy_gb_per_s;            // 1e9 bytes
    std::optional<double> fp32_gflops, fp16_gflops, int8_dot_gops; // a multiply-add is two, a dot product of four bytes eight
    std::optional<double> cooperative_matrix_gflops;               // fp16, sums in fp32
};

// Takes a few seconds at most. Throws Error when a result is wrong, or memory is too small.
Limits measure_limits(Device& device);
Limits measure_cpu_limits(ThreadPool& pool);

// Makes a table of the fields that to_json(Limits) writes.
std::string limits_table(const nlohmann::ordered_json& limits);

} // namespace tq::bench
