// One list serves all APIs, because clients send the fields of one server to another. A sampler of llama.cpp has one field that
// turns it on; if that says off, its other fields mean nothing.
#include "tools/server/ignored_fields.h"
#include <algorithm>

namespace tq::server {
namespace {

struct IgnoredField {
    const char* name;
    double neutral = 0;          // the number that asks for nothing
    const char* needs = nullptr; // the field that turns it on; 0: off
};

constexpr IgnoredField ignored_by_all[] = {
    // OpenAI's, Anthropic's and Ollama's
    {"functions"},
    {"function_call"},
    {"web_search_options"},
    {"audio"},
    {"verbosity"},
    {"max_tool_calls"},
    {"mcp_servers"},
    {"container"},
    {"template"},
    // vLLM's and SGLang's
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"structured_outputs"},
    {"regex"},
    {"ebnf"},
    {"prompt_logprobs"},
    {"num_beams", 1},
    {"use_beam_search"},
    {"length_penalty", 1},
    {"min_tokens"},
    {"min_new_tokens"},
    {"stop_token_ids"},
    {"bad_words"},
    {"allowed_token_ids"},
    {"include_stop_str_in_output"},
    {"truncate_prompt_tokens"},
    // llama.cpp's
    {"n_probs"},
    {"typical_p", 1},
    {"top_n_sigma", -1},
    {"min_keep"},
    {"n_keep"},
    {"n_indent"},
    {"t_max_predict_ms"},
    {"samplers"},
    {"lora"},
    {"mirostat"},
    {"mirostat_tau", 0, "mirostat"},
    {"mirostat_eta", 0, "mirostat"},
    {"dynatemp_range"},
    {"dynatemp_exponent", 1, "dynatemp_range"},
    {"xtc_probability"},
    {"xtc_threshold", 0, "xtc_probability"},
    {"dry_multiplier"},
    {"dry_base", 0, "dry_multiplier"},
    {"dry_allowed_length", 0, "dry_multiplier"},
    {"dry_penalty_last_n", 0, "dry_multiplier"},
    {"dry_sequence_breakers", 0, "dry_multiplier"},
};

bool asks_for_nothing(const Json& value, double neutral) {
    if (value.is_number()) return value == 0 || value == neutral;
    return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

} // namespace

void ignore_fields(std::set<std::string>& ignored, const Json& body) {
    for (const IgnoredField& field : ignored_by_all) {
        const Json* value = member(body, field.name);
        const Json* needed = field.needs ? member(body, field.needs) : nullptr;
        const bool is_off = needed && asks_for_nothing(*needed, 0);
        if (value && !is_off && !asks_for_nothing(*value, field.neutral))
            ignored.insert(fmt::format("the field \"{}\"", field.name));
    }
}

} // namespace tq::server
