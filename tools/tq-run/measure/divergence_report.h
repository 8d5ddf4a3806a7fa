// Divergences of the tokens of a text, chunk by chunk, as a report for people.
#pragma once
#include "tools/check/quality/divergence.h"
#include <string>
#include <vector>

namespace tq {

using Chunks = std::vector<std::vector<quality::Divergence>>; // of each the tokens from its second on

// The ratio of two perplexities on the same tokens, whose losses are correlated.
quality::Estimate perplexity_ratio(const quality::Summary& summary);

// The tokens of all chunks at positions [from, to) of their chunk.
std::vector<quality::Divergence> at_positions(const Chunks& chunks, size_t from, size_t to);

// Perplexities and KL divergence of the second halves of chunks of `context` tokens, and by the tokens before. `measured` and
// `reference` name what was compared.
std::string divergence_report(const Chunks& chunks, uint32_t context, const std::string& measured, const std::string& reference);

} // namespace tq
