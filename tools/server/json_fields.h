// Reads the fields of a request: of the right type and within their limits, or a 400 that names the field. Unknown fields are
// ignored.
#pragma once
#include "tools/server/generation.h"
#include <string_view>

namespace tq::server {

// Parses a body: an object, at most limits.json_depth levels deep, valid UTF-8. Throws ApiError (400).
Json parse_body(std::string_view body, const Limits& limits);

// The member, or null if it is missing or null.
const Json* member(const Json& object, const char* name);

// Each returns nothing if the member is missing or null. `path`: of the object, "" or "messages[1]", for the error.
std::optional<double> number_field(const Json& object, const char* name, double min, double max, std::string_view path = "");
std::optional<int64_t> integer_field(const Json& object, const char* name, int64_t min, int64_t max, std::string_view path = "");
std::optional<bool> bool_field(const Json& object, const char* name, std::string_view path = "");
std::optional<std::string> text_field(const Json& object, const char* name, std::string_view path = "");
const Json* array_field(const Json& object, const char* name, size_t max, std::string_view path = "");
const Json* object_field(const Json& object, const char* name, std::string_view path = "");

// "messages[1].content" from "messages[1]" and "content".
std::string field_path(std::string_view path, std::string_view name);

// The fields that all APIs of this server share: temperature, top_p, top_k, min_p, seed, presence_penalty, frequency_penalty,
// repeat_penalty (repetition_penalty), repeat_last_n, stop, max_tokens and max_completion_tokens, logit_bias, n, ignore_eos.
Sampling read_sampling(const Service& service, const Json& body);

} // namespace tq::server
