// What a model needs of a device's memory, as a table for people.
#pragma once
#include <string>

namespace tq {

struct Setup;

// Weights, cache, scratch and total against what there is; the largest context of each way to store the cache; and, where it does
// not fit, what to change.
std::string memory_table(const Setup& setup);

} // namespace tq
