// The settings of /set, as one table: names, range, whole or not, how to read and write them. List, JSON of saved conversations,
// completion and checks all follow from it. -1 stands for no limit. Numbers are written in the shortest form of a float, so that
// 0.7 stays 0.7 when it is saved and loaded.
#include "tools/tq-run/talk/chat_settings.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/files/formats/json.h"
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

constexpr double max_exact = 9007199254740992.0; // for whole numbers in a double

struct Setting {
    std::string_view name, other_name;
    double min, max;
    bool whole;
    double (*get)(const ChatSettings&);
    void (*set)(ChatSettings&, double);
};

// -1 stands for no limit.
double limit(uint32_t value) { return value == UINT32_MAX ? -1 : double(value); }
uint32_t limit(double value) { return value < 0 ? UINT32_MAX : uint32_t(value); }

template <float SamplerOptions::*member>
constexpr Setting real(std::string_view name, std::string_view other, double min, double max) {
    return {.name = name,
            .other_name = other,
            .min = min,
            .max = max,
            .whole = false,
            .get = [](const ChatSettings& s) { return double(s.sampling.*member); },
            .set = [](ChatSettings& s, double value) { s.sampling.*member = float(value); }};
}

constexpr std::array settings{
    real<&SamplerOptions::temperature>("temp", "temperature", 0, 100),
    Setting{"top-k", "top_k", 0, 1e9, true, [](const ChatSettings& s) { return double(s.sampling.top_k); },
            [](ChatSettings& s, double value) { s.sampling.top_k = uint32_t(value); }},
    real<&SamplerOptions::top_p>("top-p", "top_p", 0, 1),
    real<&SamplerOptions::min_p>("min-p", "min_p", 0, 1),
    real<&SamplerOptions::repeat_penalty>("repeat-penalty", "repeat_penalty", 0.01, 100),
    Setting{"repeat-last-n", "repeat_last_n", -1, 1e9, true,
            [](const ChatSettings& s) { return limit(s.sampling.repeat_last_n); },
            [](ChatSettings& s, double value) { s.sampling.repeat_last_n = limit(value); }},
    real<&SamplerOptions::presence_penalty>("presence-penalty", "presence_penalty", -100, 100),
    real<&SamplerOptions::frequency_penalty>("frequency-penalty", "frequency_penalty", -100, 100),
    Setting{"seed", "seed", 0, max_exact, true, [](const ChatSettings& s) { return double(s.sampling.seed); },
            [](ChatSettings& s, double value) { s.sampling.seed = uint64_t(value); }},
    Setting{"predict", "n-predict", -1, 1e9, true, [](const ChatSettings& s) { return limit(s.max_tokens); },
            [](ChatSettings& s, double value) { s.max_tokens = limit(value); }},
};

const Setting& find_setting(std::string_view name) {
    for (const Setting& s : settings)
        if (name == s.name || name == s.other_name || (name == "n" && s.name == "predict")) return s;
    fail("unknown setting {}: /set lists them", printable(name));
}

void put(ChatSettings& to, const Setting& s, double value) {
    const bool fits = value >= s.min && value <= s.max && (!s.whole || value == std::floor(value));
    if (!fits) fail("{} must be a {}number from {} to {}", s.name, s.whole ? "whole " : "", s.min, s.max);
    s.set(to, value);
}

// A float's shortest form, not the longer one of the double that holds it.
std::string text_of(const Setting& s, const ChatSettings& from) {
    return s.whole ? fmt::format("{:.0f}", s.get(from)) : fmt::format("{}", float(s.get(from)));
}

} // namespace

void ChatSettings::set(std::string_view name, std::string_view value) {
    const Setting& s = find_setting(name);
    double number = 0;
    if (!parse_number(value, number)) fail("{} is not a number, and {} must be one", printable(value), s.name);
    put(*this, s, number);
}

std::string ChatSettings::list() const {
    std::string text;
    for (const Setting& s : settings) text += fmt::format("{:<18} {}\n", s.name, text_of(s, *this));
    return text;
}

nlohmann::ordered_json ChatSettings::to_json() const {
    nlohmann::ordered_json json;
    for (const Setting& s : settings) json[std::string(s.name)] = nlohmann::ordered_json::parse(text_of(s, *this));
    return json;
}

ChatSettings ChatSettings::from_json(const nlohmann::json& json, const ChatSettings& others) {
    if (!json.is_object()) fail("its settings are {}, not an object", kind_of(json));
    ChatSettings result = others;
    for (const auto& [name, value] : json.items()) {
        if (!value.is_number()) fail("its setting {} is {}, not a number", printable(name), kind_of(value));
        put(result, find_setting(name), value.get<double>());
    }
    return result;
}

std::vector<std::string> ChatSettings::names() {
    std::vector<std::string> result;
    for (const Setting& s : settings) result.emplace_back(s.name);
    return result;
}

} // namespace tq
