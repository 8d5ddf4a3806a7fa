// The memory that a model needs on a device, as a table for people and as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tq {

struct Setup;

// The name of the memory that a model has to fit, as "the memory of llvmpipe (...)" or "the 8.00 GiB of --memory".
std::string memory_name(const Setup& setup);

// Says on standard error that the CPU reads the weights from their file as tokens need them, if it does.
void warn_of_reading(const Setup& setup);

// Returns the table of `tq-run plan`: whether the model fits; weights, cache, scratch and their total against the available
// memory; the largest context with each type of cache; and, if it does not fit, the changes that would help.
std::string memory_table(const Setup& setup);

// The same in bytes, as `tq-run plan --json` prints it.
nlohmann::ordered_json memory_json(const Setup& setup);

} // namespace tq
