// What a kernel's SPIR-V says once its specialisation constants have values: how much shared memory a workgroup takes; and what
// the constants are called.
#pragma once
#include "runtime/shader.h"
#include <string>
#include <vector>

namespace tq {

// Bytes of all variables of the Workgroup storage class, in order and aligned as std430 does; constants[i] is the value of
// constant i.
uint64_t shared_memory_bytes(const AnyShader& shader, std::span<const uint32_t> constants);

// The module with these values in the place of the constants' defaults: the same kernel for tools that do not specialise.
std::vector<uint32_t> specialised(const AnyShader& shader, std::span<const uint32_t> constants);

// The constants' names in the shader's source, by id; a workgroup size has none there: "workgroup", or "workgroup_y",
// "workgroup_z".
std::vector<std::string> constant_names(const AnyShader& shader);

} // namespace tq
