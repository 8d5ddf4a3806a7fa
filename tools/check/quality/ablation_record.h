// A run of the protocol as a line of JSON: sanctum's fields by their names, and more. ppl_fp16 is that of the reference, which
// "reference" names.
#pragma once
#include "tools/check/quality/ablation.h"
#include <nlohmann/json.hpp>

namespace tq::quality {

// The fields that are the same in all runs.
struct Evaluation {
    Config config;
    std::string text_sha;
    nlohmann::json more; // an object of further fields
};

// Numbers that are not finite are null.
nlohmann::ordered_json to_json(const Outcome& outcome, const Evaluation& evaluation);

// Whether the line is of this run with this cache.
bool is_of(const nlohmann::json& line, const Trial& trial);
// Returns the cost in a line of the log. Throws NonFinite if it was invalid, and Error if the line is malformed.
CacheCost cost_of(const nlohmann::json& line);

} // namespace tq::quality
