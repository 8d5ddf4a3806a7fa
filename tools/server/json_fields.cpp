// Readers of fields, a function for each type. A client's mistake becomes a 400 that names the field by its path, the value that
// came and what is allowed: `"messages[1].content" must be a text, but is 5`. null counts as missing, since clients send all
// fields of their library's objects.
// Numbers: integers may come as 5.0; what exceeds 64 bits is taken for the nearest that fits, and then is out of range. NaN
// cannot come (JSON has none), but it stands for "no number" here, and fails every comparison of a range.
// Limits of counts (Limits) are there because some lists cost much more than their bytes: each choice is a sequence of its own,
// and each bias is applied to the logits of every token.
// read_sampling() reads what all APIs share, on top of the server's defaults; the names of other APIs for these fields are
// translated before.
#include "tools/server/json_fields.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/server/ignored_fields.h"
#include <cmath>

namespace tq::server {
namespace {

constexpr size_t max_stop_bytes = 1024;                // of each
constexpr uint64_t exact_integers = uint64_t(1) << 53; // of a double

// Describes a value for an error: "the text "1"".
std::string described(const Json& value) {
    switch (value.type()) {
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return fmt::format("the text \"{}\"", printable(value.get_ref<const std::string&>(), 40));
    default: return printable(value.dump(), 40);
    }
}

// The integer nearest to the value within 64 bits, for a number without a fraction. Clients write 5 as 5.0, too.
std::optional<int64_t> whole_number(const Json& value) {
    if (value.is_number_unsigned()) return int64_t(std::min(value.get<uint64_t>(), uint64_t(INT64_MAX)));
    if (value.is_number_integer()) return value.get<int64_t>();
    const double number = value.is_number_float() ? value.get<double>() : NAN;
    if (std::abs(number) <= double(exact_integers) && number == std::floor(number)) return int64_t(number);
    return std::nullopt;
}

void read_stop(Sampling& sampling, const Json& body, size_t max) {
    const Json* stop = member(body, "stop");
    if (!stop) return;
    const bool one = stop->is_string();
    if (!one && !stop->is_array()) bad_request("stop", "\"stop\" must be a text or a list of texts, but is {}", described(*stop));
    if (!one && stop->size() > max) bad_request("stop", "\"stop\" has {} texts, of which there may be {}", stop->size(), max);
    for (size_t i = 0; i < (one ? 1 : stop->size()); ++i) {
        const Json& text = one ? *stop : (*stop)[i];
        if (!text.is_string()) bad_request(fmt::format("stop[{}]", i), "stop[{}] must be a text, but is {}", i, described(text));
        if (text.get_ref<const std::string&>().size() > max_stop_bytes)
            bad_request(fmt::format("stop[{}]", i), "stop[{}] has {} bytes, of which there may be {}", i,
                        text.get_ref<const std::string&>().size(), max_stop_bytes);
        if (text != "") sampling.stop.push_back(text.get<std::string>());
    }
}

// An id may be a text: the key of an object.
uint32_t token_id(const Json& id, const std::string& field, uint32_t vocab_size) {
    std::optional<int64_t> number = whole_number(id);
    if (id.is_string()) { // the key of an object
        int64_t value = 0;
        if (parse_number(id.get_ref<const std::string&>(), value)) number = value;
    }
    if (!number || *number < 0 || *number >= int64_t(vocab_size))
        bad_request(field, "\"logit_bias\" names {}, which is no token id: those of this model are 0 to {}", described(id),
                    vocab_size - 1);
    return uint32_t(*number);
}

// OpenAI's object {"id": bias}, or llama.cpp's list [[id, bias]], whose bias may be false: never.
void read_logit_bias(Sampling& sampling, const Json& body, const Service& service) {
    const Json* biases = member(body, "logit_bias");
    if (!biases) return;
    if (!biases->is_structured())
        bad_request("logit_bias", "\"logit_bias\" must be an object of token ids and numbers, but is {}", described(*biases));
    const uint32_t max = service.options.limits.logit_biases;
    if (biases->size() > max)
        bad_request("logit_bias", "\"logit_bias\" has {} tokens, of which there may be {}", biases->size(), max);
    const auto add = [&](const Json& id, const Json& bias) {
        const uint32_t token = token_id(id, "logit_bias", service.model.config.vocab_size);
        const double value = bias == false ? -100 : bias.is_number() ? bias.get<double>() : NAN;
        if (!(value >= -100 && value <= 100))
            bad_request("logit_bias", "\"logit_bias\" of token {} must be a number between -100 and 100, but is {}", token,
                        described(bias));
        sampling.logit_bias.push_back({token, value == -100 ? never_bias : float(value)});
    };
    if (biases->is_object())
        for (const auto& [id, bias] : biases->items()) add(id, bias);
    else
        for (const Json& pair : *biases) {
            if (!pair.is_array() || pair.size() != 2)
                bad_request("logit_bias", "\"logit_bias\" has an entry that is not [token id, number] but {}", described(pair));
            add(pair[0], pair[1]);
        }
}

void read_lengths(Sampling& sampling, const Json& body) {
    for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
        const auto tokens = integer_field(body, name, -1, INT32_MAX); // -1 is llama.cpp's for no limit
        if (tokens && *tokens >= 0 && !sampling.max_tokens) sampling.max_tokens = uint32_t(*tokens);
    }
}

} // namespace

Json parse_body(std::string_view body, const Limits& limits) {
    Json json;
    try {
        json = build_json<Json>(body, "the request's body",
                                {.max_depth = limits.json_depth, .repeated_keys = true, .lone_surrogates = true});
    } catch (const Error& error) {
        throw ApiError(400, "invalid_request_error", error.what());
    }
    if (!json.is_object()) bad_request("", "the request's body must be a JSON object, but is {}", described(json));
    return json;
}

const Json* member(const Json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end()) return nullptr;
    note_read(object, *found);
    return found->is_null() ? nullptr : &*found;
}

std::string field_path(std::string_view path, std::string_view name) {
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

std::optional<double> number_field(const Json& object, const char* name, double min, double max, std::string_view path) {
    const Json* value = member(object, name);
    if (!value) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= min && number <= max)) {
        const std::string field = field_path(path, name);
        bad_request(field, "\"{}\" must be a number between {} and {}, but is {}", field, min, max, described(*value));
    }
    return number;
}

std::optional<int64_t> integer_field(const Json& object, const char* name, int64_t min, int64_t max, std::string_view path) {
    const Json* value = member(object, name);
    if (!value) return std::nullopt;
    const auto number = whole_number(*value);
    if (!number || *number < min || *number > max) {
        const std::string field = field_path(path, name);
        bad_request(field, "\"{}\" must be an integer between {} and {}, but is {}", field, min, max, described(*value));
    }
    return number;
}

// The member if it has the type.
static const Json* typed_field(const Json& object, const char* name, std::string_view path,
                               bool (Json::*is_type)() const noexcept, const char* type) {
    const Json* value = member(object, name);
    if (value && !(value->*is_type)()) {
        const std::string field = field_path(path, name);
        bad_request(field, "\"{}\" must be {}, but is {}", field, type, described(*value));
    }
    return value;
}

std::optional<bool> bool_field(const Json& object, const char* name, std::string_view path) {
    const Json* value = typed_field(object, name, path, &Json::is_boolean, "true or false");
    return value ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<std::string> text_field(const Json& object, const char* name, std::string_view path) {
    const Json* value = typed_field(object, name, path, &Json::is_string, "a text");
    return value ? std::optional(value->get<std::string>()) : std::nullopt;
}

const Json* array_field(const Json& object, const char* name, size_t max, std::string_view path) {
    const Json* value = typed_field(object, name, path, &Json::is_array, "a list");
    if (value && value->size() > max) {
        const std::string field = field_path(path, name);
        bad_request(field, "\"{}\" has {} entries, of which there may be {}", field, value->size(), max);
    }
    return value;
}

const Json* object_field(const Json& object, const char* name, std::string_view path) {
    return typed_field(object, name, path, &Json::is_object, "an object");
}

// A later name of the same setting counts: repeat_penalty after repetition_penalty. A seed is any integer of 64 bits, taken for
// its bits; -1 is llama.cpp's for none.
Sampling read_sampling(const Service& service, const Json& body) {
    Sampling sampling;
    SamplerOptions& options = sampling.options = service.options.sampling;
    const auto number = [&](const char* name, double min, double max, float& out) {
        if (const auto value = number_field(body, name, min, max)) out = float(*value);
    };
    number("temperature", 0, 100, options.temperature);
    number("top_p", 0, 1, options.top_p);
    number("min_p", 0, 1, options.min_p);
    number("presence_penalty", -100, 100, options.presence_penalty);
    number("frequency_penalty", -100, 100, options.frequency_penalty);
    number("repetition_penalty", 0.01, 100, options.repeat_penalty);
    number("repeat_penalty", 0.01, 100, options.repeat_penalty);
    if (const auto k = integer_field(body, "top_k", -1, INT32_MAX)) options.top_k = uint32_t(std::max<int64_t>(*k, 0)); // -1: all
    if (const auto n = integer_field(body, "repeat_last_n", -1, INT32_MAX)) options.repeat_last_n = uint32_t(*n);       // -1: all
    const auto seed = integer_field(body, "seed", INT64_MIN, INT64_MAX);
    sampling.seed_given = seed && *seed != -1; // which is llama.cpp's for a random one
    if (sampling.seed_given) options.seed = uint64_t(*seed);
    read_lengths(sampling, body);
    read_stop(sampling, body, service.options.limits.stop_strings);
    read_logit_bias(sampling, body, service);
    sampling.choices = uint32_t(integer_field(body, "n", 1, service.options.limits.choices).value_or(1));
    sampling.ignore_end = bool_field(body, "ignore_eos").value_or(false);
    return sampling;
}

} // namespace tq::server
