// Runs models that differ only in their caches over the same text.
#pragma once
#include "model/forward.h"
#include "tools/check/quality/divergence.h"
#include <nlohmann/json_fwd.hpp>

namespace tq::quality {

// Called now and then with the tokens done so far; returning false stops.
using KeepGoing = std::function<bool(uint32_t done)>;

// The divergences of each of `measured` from `reference` for every token of `ids` but the first, predicted from the tokens
// before it: one list [ids.size() - 1] for each of `measured`, no list if `keep_going` stopped it. All begin with an empty
// cache. ids: at least two. Throws what Forward::run_all does.
std::vector<std::vector<Divergence>> compare(std::span<Forward* const> measured, Forward& reference,
                                             std::span<const uint32_t> ids, const KeepGoing& keep_going);

// {"loss": [...], "reference_loss": [...], "kl": [...], "same_top": [0, 1, ...]}, and back. Throws Error when `part` does not
// hold `tokens` tokens.
nlohmann::json to_json(std::span<const Divergence> tokens);
std::vector<Divergence> divergences(const nlohmann::json& part, size_t tokens);

} // namespace tq::quality
