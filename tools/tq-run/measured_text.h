// A text that caches are measured on.
#pragma once
#include "tools/tq-run/engine.h"

namespace tq {

struct MeasuredText {
    std::string hash; // SHA-256, as hexadecimal digits; "fnv1a64:" and digits in a build without OpenSSL
    std::vector<uint32_t> ids;
};

// Throws Error when it cannot be read, or has not one chunk of `chunk_tokens` tokens.
MeasuredText read_measured_text(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens);

} // namespace tq
