// Facts of a kernel's SPIR-V once its specialisation constants have values: the shared memory of a workgroup, and the names of
// the constants.
#pragma once
#include "runtime/shader.h"
#include <string>
#include <vector>

namespace tq {

// Returns the size in bytes of all variables of the Workgroup storage class, in order and aligned as std430 does; constants[i] is
// the value of constant i. At most 2^31 in a module from a file; throws Error if its constants have unknown operations.
uint64_t shared_memory_bytes(const AnyShader& shader, std::span<const uint32_t> constants);

// Returns the module with these values as the constants' defaults: the same kernel for tools that do not specialise.
std::vector<uint32_t> specialised(const AnyShader& shader, std::span<const uint32_t> constants);

inline std::vector<std::string> constant_names(const AnyShader& shader) {
    return constant_names(shader.code(), shader.interface);
}

} // namespace tq
