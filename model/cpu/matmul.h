// What the threads of a product of matrices share, and what each has for itself.
#pragma once
#include "model/cpu/aligned_floats.h"
#include <vector>

namespace tq::cpu {

// Rows of weights that are decoded together: as many as fit into half of a common L2 cache.
inline constexpr size_t panel_bytes = 512 << 10, max_panel_rows = 64;

struct Scratch {
    AlignedFloats panel;          // decoded rows
    std::vector<std::byte> bytes; // of rows that lie nowhere
};

} // namespace tq::cpu
