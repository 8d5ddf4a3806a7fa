// A field is known if its API reads it (FieldWatch). The lists say which of the others ask for nothing. A sampler of llama.cpp
// has one field that turns it on; if that says off, its other fields mean nothing.
#include "tools/server/ignored_fields.h"
#include "base/printable.h"
#include <algorithm>
#include <utility>

namespace tq::server {
namespace {

struct IgnoredField {
    std::string_view name;
    double neutral = 0;          // the number that asks for nothing
    const char* needs = nullptr; // the field that turns it on; 0: off
};

// Fields whose defaults are not 0, and those that mean nothing where another is off.
constexpr IgnoredField ignored_fields[] = {
    {"num_beams", 1},
    {"best_of", 1},
    {"length_penalty", 1},
    {"typical_p", 1},
    {"top_n_sigma", -1},
    {"mirostat_tau", 0, "mirostat"},
    {"mirostat_eta", 0, "mirostat"},
    {"dynatemp_exponent", 1, "dynatemp_range"},
    {"xtc_threshold", 0, "xtc_probability"},
    {"dry_base", 0, "dry_multiplier"},
    {"dry_allowed_length", 0, "dry_multiplier"},
    {"dry_penalty_last_n", 0, "dry_multiplier"},
    {"dry_sequence_breakers", 0, "dry_multiplier"},
};

// Fields that do not change answers, or have no other value here, and switches that are on by default.
constexpr std::string_view harmless[] = {"model",
                                         "user",
                                         "user_id",
                                         "metadata",
                                         "client_metadata",
                                         "store",
                                         "service_tier",
                                         "safety_identifier",
                                         "modalities",
                                         "prediction",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "stream",
                                         "stream_options",
                                         "include",
                                         "betas",
                                         "anthropic_version",
                                         "cache_control",
                                         "keep_alive",
                                         "cache_prompt",
                                         "id_slot",
                                         "slot_id",
                                         "request_id",
                                         "priority",
                                         "timings_per_token",
                                         "return_tokens",
                                         "return_progress",
                                         "id"};
constexpr std::string_view on_by_default[] = {
    "add_generation_prompt", "skip_special_tokens", "spaces_between_special_tokens", "detokenize", "include_reasoning",
    "separate_reasoning",    "stream_reasoning"};

constexpr size_t max_unread = 32; // that are told of one request

thread_local FieldWatch* watch = nullptr; // the innermost

bool asks_for_nothing(const Json& value, double neutral = 0) {
    if (value.is_number()) return value == 0 || value == neutral;
    if (value.is_string()) return value == "" || value == "none" || value == "disabled";
    return value.is_null() || value == false || (value.is_structured() && value.empty());
}

bool asks_for_nothing(const Json& body, const std::string& name, const Json& value) {
    if (std::ranges::find(harmless, name) != std::end(harmless)) return true;
    if (value == true && std::ranges::find(on_by_default, name) != std::end(on_by_default)) return true;
    if (value == false && std::ranges::find(on_by_default, name) != std::end(on_by_default)) return false;
    const auto known = std::ranges::find(ignored_fields, std::string_view(name), &IgnoredField::name);
    if (known == std::end(ignored_fields)) return asks_for_nothing(value);
    const auto needed = known->needs ? body.find(known->needs) : body.end();
    return asks_for_nothing(value, known->neutral) || (needed != body.end() && asks_for_nothing(*needed));
}

} // namespace

FieldWatch::FieldWatch(const Json& body) : body_(body), outer_(std::exchange(watch, this)) {}

FieldWatch::~FieldWatch() { watch = outer_; }

void note_read(const Json& object, const Json& value) {
    if (watch && &object == &watch->body_) watch->read_.insert(&value);
}

std::set<std::string> FieldWatch::unread() const {
    std::set<std::string> names;
    for (const auto& [name, value] : body_.get_ref<const Json::object_t&>())
        if (names.size() < max_unread && !read_.contains(&value) && !asks_for_nothing(body_, name, value))
            names.insert(fmt::format("the field \"{}\"", printable(name, 40)));
    return names;
}

} // namespace tq::server
