#pragma once
#include "base/interrupt.h"
#include <cstdint>
#include <random>
#include <vector>

namespace tq::bench {

// Ids below vocab_size, the same for the same count and number on every machine.
inline std::vector<uint32_t> random_ids(uint32_t count, uint32_t vocab_size, uint32_t number = 0) {
    std::mt19937 random(count + (number << 24)); // counts are below 2^24
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = uint32_t(random() % vocab_size);
    return ids;
}

// A Progress that stops after Ctrl-C.
inline bool keep_going(uint32_t = 0, uint32_t = 0) { return !interrupted(); }

} // namespace tq::bench
