// The requests of a soak: conversations that share beginnings, branch and go on. The same seed gives the same requests
// everywhere.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tq::soak {

using Ids = std::vector<uint32_t>;
using Answers = std::map<uint32_t, Ids>; // by the requests' numbers

inline constexpr uint32_t context_size = 1200, turns = 3;

// A prompt, and how many tokens are generated after it.
struct Request {
    uint32_t number;
    std::optional<uint32_t> parent; // an earlier one, whose prompt and answer this one begins with
    uint32_t kept_permille;         // of these, or else of the beginning that first requests share
    uint32_t new_ids, answer_ids;
    uint64_t seed; // of the new ids
};

// Returns the requests: `turns` of each sequence, the parents first.
std::vector<Request> make_plan(uint64_t seed, uint32_t sequences);

// Whether the prompt is known: its parents have been answered.
bool is_ready(const Request& request, const Answers& answers);
// Returns the ids of a prompt. Every request fits the context with its answer.
Ids prompt_of(const std::vector<Request>& plan, const Request& request, const Answers& answers);

} // namespace tq::soak
