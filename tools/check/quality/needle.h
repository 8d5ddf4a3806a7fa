// Retrieval of facts from a long text: the prompts by a model's template, and the model's answers to them.
#pragma once
#include "model/engine/session.h"
#include "model/model.h"
#include "tools/check/quality/divergence.h"
#include "tools/check/quality/haystack.h"
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace tq::quality {

// The chat in which a user gives `text` and asks for the fact, up to the point where its value must follow; the thinking block,
// if the model has one, is closed and empty. Plain text for a model without a template.
std::vector<uint32_t> needle_prompt(const Model& model, std::string_view text, const Fact& fact);

// A haystack whose prompts followed by the values have at most `length` tokens and hardly fewer; options.tokens is not used.
// The same `random` gives the same haystack. Throws Error as make_haystack does.
Haystack make_haystack(const Model& model, HaystackOptions options, uint32_t length, std::span<const std::string> sentences,
                       Random random);

struct Recall {
    bool exact = false; // the most probable tokens are the value's, and then no further digit
    double log_p = 0;   // of the value's tokens, each given the tokens before it: natural logarithm
    std::string said;   // the most probable tokens instead, printable; the value if it is exact
};

// The model's answer after `prompt`. The beginning that the prompt has in common with the session's last one is not run again.
// Returns nothing if `progress` stopped it. Throws Error when prompt and value exceed the context.
std::optional<Recall> recall(Session& session, const Model& model, std::span<const uint32_t> prompt, const std::string& value,
                             const Progress& progress = {});

// The result for one fact: its depth, and the answers with the measured cache and with the reference, if there is one.
struct Found {
    size_t depth = 0;
    Recall measured;
    std::optional<Recall> reference;
};

struct NeedleSummary {
    uint64_t facts = 0, exact = 0, reference_exact = 0;
    // Shares, and log p of a value: means over the facts. Standard errors assume independent facts, which the facts of one text
    // are not quite. The reference's values are 0 if there is none.
    Estimate exact_share, reference_exact_share, log_p, reference_log_p, log_p_change;
};
NeedleSummary summarise(std::span<const Found> found);

// {"key": "silver kettle", "value": "4821", "depth": 0, "exact": 1, "log_p": -0.01, "said": "4821", "reference": {"exact": 1,
// ...}}, and back. Throws Error if `json` has another form.
nlohmann::json to_json(const Needle& needle, const Found& found);
Found found_from_json(const nlohmann::json& json);

} // namespace tq::quality
