// The rotary table, made once on the CPU: no device's sine or cosine is trusted.
#pragma once
#include "model/config.h"
#include <vector>

namespace tq {

// [positions][head_dim / 2][2]: cosine and sine of p * rope_theta^(-2 i / head_dim), computed in double, rounded to fp32.
std::vector<float> rope_table(const Config& config, uint32_t positions);

} // namespace tq
