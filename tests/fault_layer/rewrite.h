// Kernels with a fault: one SPIR-V module with one instruction or constant changed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq::fault {

// `code` with `change` made: "FMul:2=FAdd" makes the second multiplication an addition (FAdd, FSub, FMul, FDiv; IAdd, ISub,
// IMul; comparisons such as ULessThan and FOrdLessThan, each to another of its own kind), "constant:0x3f800000=0x40000000"
// replaces the scalar constant with these bits. Ends the process with a message if nothing matches.
std::vector<uint32_t> rewritten(std::span<const uint32_t> code, std::string_view change);

} // namespace tq::fault
