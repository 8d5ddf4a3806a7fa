// The settings of /set, as one table: names, range, whole or not, how to read and write them. List, JSON of saved conversations,
// completion and checks all follow from it. -1 stands for no limit, and for a random seed. Numbers are written in the shortest
// form of a float, so that 0.7 stays 0.7 when it is saved and loaded. Whole ones stay whole: a double would round seeds.
#include "tools/tq-run/talk/chat_settings.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/arguments.h"
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct Setting {
    std::string_view name, other_name;
    double min, max;
    bool whole;
    std::string (*text)(const ChatSettings&);
    void (*set)(ChatSettings&, const nlohmann::json& number);
};

// -1 stands for no limit.
std::string limit(uint32_t value) { return value == UINT32_MAX ? "-1" : fmt::to_string(value); }
uint32_t limit(const nlohmann::json& value) { return value < 0 ? UINT32_MAX : value.get<uint32_t>(); }

template <float SamplerOptions::*member>
constexpr Setting real(std::string_view name, std::string_view other, double min, double max) {
    return {.name = name,
            .other_name = other,
            .min = min,
            .max = max,
            .whole = false,
            .text = [](const ChatSettings& s) { return fmt::to_string(s.sampling.*member); },
            .set = [](ChatSettings& s, const nlohmann::json& value) { s.sampling.*member = value.get<float>(); }};
}

constexpr std::array settings{
    real<&SamplerOptions::temperature>("temp", "temperature", 0, 100),
    Setting{"top-k", "top_k", 0, 1e9, true, [](const ChatSettings& s) { return fmt::to_string(s.sampling.top_k); },
            [](ChatSettings& s, const nlohmann::json& value) { s.sampling.top_k = value.get<uint32_t>(); }},
    real<&SamplerOptions::top_p>("top-p", "top_p", 0, 1),
    real<&SamplerOptions::min_p>("min-p", "min_p", 0, 1),
    real<&SamplerOptions::repeat_penalty>("repeat-penalty", "repeat_penalty", 0.01, 100),
    Setting{"repeat-last-n", "repeat_last_n", -1, 1e9, true,
            [](const ChatSettings& s) { return limit(s.sampling.repeat_last_n); },
            [](ChatSettings& s, const nlohmann::json& value) { s.sampling.repeat_last_n = limit(value); }},
    real<&SamplerOptions::presence_penalty>("presence-penalty", "presence_penalty", -100, 100),
    real<&SamplerOptions::frequency_penalty>("frequency-penalty", "frequency_penalty", -100, 100),
    Setting{"seed", "seed", -1, max_seed, true, [](const ChatSettings& s) { return fmt::to_string(s.sampling.seed); },
            [](ChatSettings& s, const nlohmann::json& value) { s.sampling.seed = sampler_seed(value.get<int64_t>()); }},
    Setting{"predict", "n-predict", -1, 1e9, true, [](const ChatSettings& s) { return limit(s.max_tokens); },
            [](ChatSettings& s, const nlohmann::json& value) { s.max_tokens = limit(value); }},
};

const Setting& find_setting(std::string_view name) {
    for (const Setting& s : settings)
        if (name == s.name || name == s.other_name || (name == "n" && s.name == "predict")) return s;
    fail("unknown setting {}: /set lists them", printable(name));
}

void put(ChatSettings& to, const Setting& s, const nlohmann::json& number) {
    const double value = number.get<double>();
    const bool fits = value >= s.min && value <= s.max && (!s.whole || value == std::floor(value));
    if (!fits) fail("{} must be a {}number from {} to {}", s.name, s.whole ? "whole " : "", s.min, s.max);
    s.set(to, number);
}

} // namespace

void ChatSettings::set(std::string_view name, std::string_view value) {
    const Setting& s = find_setting(name);
    int64_t whole = 0;
    double real = 0;
    if (parse_number(value, whole)) return put(*this, s, whole);
    if (!parse_number(value, real)) fail("{} is not a number, and {} must be one", printable(value), s.name);
    put(*this, s, real);
}

std::string ChatSettings::list() const {
    std::string text;
    for (const Setting& s : settings) text += fmt::format("{:<18} {}\n", s.name, s.text(*this));
    return text;
}

nlohmann::ordered_json ChatSettings::to_json() const {
    nlohmann::ordered_json json;
    for (const Setting& s : settings) json[std::string(s.name)] = nlohmann::ordered_json::parse(s.text(*this));
    return json;
}

ChatSettings ChatSettings::from_json(const nlohmann::json& json, const ChatSettings& others) {
    if (!json.is_object()) fail("its settings are {}, not an object", kind_of(json));
    ChatSettings result = others;
    for (const auto& [name, value] : json.items()) {
        if (!value.is_number()) fail("its setting {} is {}, not a number", printable(name), kind_of(value));
        put(result, find_setting(name), value);
    }
    return result;
}

std::vector<std::string> ChatSettings::names() {
    std::vector<std::string> result;
    for (const Setting& s : settings) result.emplace_back(s.name);
    return result;
}

} // namespace tq
