// What the sources of kernels.h share.
#pragma once
#include "model/gpu/kernels.h"
#include <initializer_list>

namespace tq::gpu {

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr uint32_t groups(uint64_t count, uint32_t per_group) { return uint32_t((count + per_group - 1) / per_group); }

// The Work of what depends on the step: `work(step)` as recorded, and asked again for each run that is profiled.
template <class F> Work per_step(const Step& step, F work) {
    Work most = work(step);
    most.now = [&step, work] { return work(step); };
    return most;
}

// Whether kernels that read these buffers are to be SIMD variants, which have texels for them.
bool uses_simd(const Pass& pass, std::initializer_list<View> reads);

} // namespace tq::gpu
