// The dense rotations of the published TurboQuant reference (turboquant.md, section "Haar rotation").
#pragma once
#include <cstdint>
#include <vector>

namespace tq {

// Returns Q[head_dim][head_dim], row-major, orthogonal: Q of the QR factorisation A = Q R with a positive diagonal of R, A is
// torch.randn(head_dim, head_dim, generator=torch.Generator().manual_seed(seed)) in fp32 on the CPU. The same fp32 words on every
// platform; entries below 2^-40 are 0. head_dim is 64, 128 or 256; only the low 32 bits of the seed are used, as in torch.
std::vector<float> haar_matrix(uint32_t head_dim, uint64_t seed);

} // namespace tq
