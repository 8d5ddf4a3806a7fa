// What a model needs of a device's memory, as a table for people.
#pragma once
#include <cstdint>
#include <string>

namespace tq {

struct Setup;

// "604.2 MiB", and from 1 GiB on "23.42 GiB".
std::string size_text(uint64_t bytes);

// What a model has to fit, as "the memory of llvmpipe (...)" or "the 8.00 GiB of --memory".
std::string memory_name(const Setup& setup);

// Whether it fits, weights, cache, scratch and total against what there is; the largest context of each way to store the cache;
// and, where it does not fit, what to change.
std::string memory_table(const Setup& setup);

} // namespace tq
