// Kernels that compute something else: one SPIR-V module, one instruction or constant of it changed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq::fault {

// `code` with `change` made: "FMul:2=FAdd" makes the second multiplication an addition (FAdd, FSub, FMul, FDiv; IAdd, ISub, IMul;
// comparisons such as ULessThan and FOrdLessThan, each to another of its own kind), "constant:0x3f800000=0x40000000" the scalar
// constant with these bits one with those. Ends the process with a sentence where there is nothing that fits.
std::vector<uint32_t> rewritten(std::span<const uint32_t> code, std::string_view change);

} // namespace tq::fault
