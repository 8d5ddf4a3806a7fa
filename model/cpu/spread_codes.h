// Stored codes of three bits as words of nibbles, which are indices of levels (NibbleLevels), for processors that shift and
// multiply bytes (AVX-512 with VBMI, and GFNI): what a byte's two indices depend on, their codes and those before them in a
// trellis, are windows of bits of the planes, and each bit of an index is a sum modulo 2 of some of them.
#pragma once
#include "model/kv/types.h"
#include <cstddef>
#include <cstdint>

namespace tq::cpu {

// Whether this processor has the instructions.
bool has_spread_codes();

// Enables or disables them from now on, for tests of the other kernels. Returns whether they are enabled.
bool use_spread_codes(bool use);

// words[count][d / 8] = the indices of the levels of codes[count][d] of tq3 or tq3t: nibble n of word w is that of
// channel 8 w + n. d is a multiple of 128. Call it only if has_spread_codes().
void spread_codes(KvType type, uint32_t* words, const uint8_t* codes, size_t count, size_t d);

} // namespace tq::cpu
