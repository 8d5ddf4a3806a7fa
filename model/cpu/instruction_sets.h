// The instruction sets that the CPU path may use: all of this processor, or fewer if TQ_CPU says so.
#pragma once
#include <string>

namespace tq::cpu {

// Uses no instruction set above the one that the environment variable TQ_CPU names: avx2, avx-vnni or avx512. To be called
// before any kernel runs. Throws Error for other names and for sets that this processor does not have.
void limit_instruction_sets();

// Whether the integer products of AVX-VNNI may be used, which Highway does not know.
bool has_avx_vnni();

// Names the instruction sets in use, such as "AVX-512 VNNI".
std::string instruction_sets();

} // namespace tq::cpu
