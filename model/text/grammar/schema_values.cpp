// Texts and numbers of a schema as grammars.
// A text is described by its pattern; if that is missing, or is one that regex.cpp cannot read, by its format; otherwise by its
// length alone. The patterns of formats are those of well-formed values that usual libraries of schemas accept: a date has a
// month from 1 to 12, but may be 31 February.
// Numbers are described by bounds, or as multiples. JSON has one kind of number, and JavaScript's integers end at 2^53, so an
// integer's bound beyond that is left out rather than rounded.
#include "model/text/grammar/schema_values.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/number_multiple.h"
#include "model/text/grammar/number_range.h"
#include "model/text/grammar/regex.h"
#include "model/text/grammar/regex_product.h"
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace tq::grammar {
namespace {

constexpr uint32_t max_count = 32768; // each character and each item has states

constexpr std::string_view date = R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))", hour_minute = R"(([01]\d|2[0-3]):[0-5]\d)",
                           label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?", atom = "[a-zA-Z0-9_+-]+";

std::string time() { return fmt::format(R"({}:[0-5]\d(\.\d{{1,9}})?(Z|[+-]{}))", hour_minute, hour_minute); }

std::string ipv6() {
    std::string out = "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::(([0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4})?";
    for (int before = 1; before < 7; ++before) // groups before the ::
        out += fmt::format("|[0-9a-fA-F]{{1,4}}(:[0-9a-fA-F]{{1,4}}){{{}}}::(([0-9a-fA-F]{{1,4}}:){{0,{}}}[0-9a-fA-F]{{1,4}})?",
                           before - 1, 6 - before);
    return out;
}

// The pattern of a format, of texts that libraries of schemas accept, too; nothing for an unknown one, which is an annotation.
std::optional<std::string> format_pattern(std::string_view name) {
    if (name == "date") return std::string(date);
    if (name == "time") return time();
    if (name == "date-time") return fmt::format("{}T{}", date, time());
    if (name == "duration")
        return R"(P(\d{1,9}W|(\d{1,9}Y)?(\d{1,9}M)?(\d{1,9}D)?T(\d{1,9}H(\d{1,9}M)?(\d{1,9}S)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S)|\d{1,9}Y(\d{1,9}M)?(\d{1,9}D)?|\d{1,9}M(\d{1,9}D)?|\d{1,9}D))";
    if (name == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
    if (name.size() == 5 && name.starts_with("uuid") && name[4] >= '1' && name[4] <= '8') // pydantic's, of one version
        return fmt::format("[0-9a-fA-F]{{8}}-[0-9a-fA-F]{{4}}-{}[0-9a-fA-F]{{3}}-[89abAB][0-9a-fA-F]{{3}}-[0-9a-fA-F]{{12}}",
                           name[4]);
    if (name == "hostname") return fmt::format(R"({}(\.{}){{0,8}})", label, label);
    if (name == "email") return fmt::format(R"({}(\.{})*@({}\.){{1,8}}[a-zA-Z]{{2,24}})", atom, atom, label);
    if (name == "ipv4") return R"(((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
    if (name == "ipv6") return ipv6();
    if (name == "uri") return R"([a-zA-Z][a-zA-Z0-9+.-]{0,30}:([a-zA-Z0-9._~:/?#@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+)";
    if (name == "emoji") return "[\xF0\x9F\x98\x80-\xF0\x9F\x99\x8F]+";
    return std::nullopt;
}

std::optional<RegexPart> format_regex(SchemaRules& rules, const SchemaJson& schema, const std::string& place) {
    const auto format = schema.find("format");
    if (format == schema.end()) return std::nullopt;
    if (!format->is_string()) refuse_schema(place, "'format' must be a text");
    const auto known = format_pattern(format->get_ref<const std::string&>());
    if (!known) return std::nullopt;
    return std::move(parse_regex(fmt::format("^({})$", *known), rules.writer()).front());
}

// A keyword's number; draft 4's exclusiveMinimum is a boolean beside minimum.
std::optional<NumberBound> bound(const SchemaJson& schema, const char* keyword, const char* exclusive, const std::string& place,
                                 bool is_min) {
    std::optional<NumberBound> result;
    const auto number = [&](const char* key) {
        const SchemaJson& value = schema[key];
        if (!value.is_number() || !std::isfinite(value.get<double>()))
            refuse_schema(place, fmt::format("'{}' must be a number", key));
        return value.get<double>();
    };
    if (schema.contains(keyword)) result = NumberBound{number(keyword), false};
    if (!schema.contains(exclusive)) return result;
    if (schema[exclusive].is_boolean()) {
        if (result && schema[exclusive] == true) result->exclusive = true;
        return result;
    }
    const NumberBound other{number(exclusive), true};
    if (!result || (is_min ? other.value >= result->value : other.value <= result->value)) result = other;
    return result;
}

// The nearest integer that the bound allows; nullopt if all integers that can be written are within it. Libraries of schemas
// bound integers by those that JavaScript has, 2^53 - 1.
std::optional<int64_t> integer_bound(SchemaRules& rules, const std::optional<NumberBound>& bound, bool is_min,
                                     const std::string& place) {
    constexpr double exact = 9007199254740992, all = 1e16; // 2^53; integers without a bound have up to 16 digits
    if (!bound || (is_min ? bound->value <= -all : bound->value >= all)) return std::nullopt;
    if (!(std::fabs(bound->value) <= exact)) return rules.leave_out(place, "a bound of an integer is beyond 2^53"), std::nullopt;
    const double nearest = is_min ? std::ceil(bound->value) : std::floor(bound->value);
    const int64_t step = bound->exclusive && nearest == bound->value ? 1 : 0;
    return int64_t(nearest) + (is_min ? step : -step);
}

} // namespace

std::string times_gbnf(uint32_t min, uint32_t max) {
    return max == unlimited ? fmt::format("{{{},}}", min) : fmt::format("{{{},{}}}", min, max);
}

static double count_of(const SchemaJson& schema, const char* keyword, double otherwise, const std::string& place) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return otherwise;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 0) || value != std::floor(value)) refuse_schema(place, fmt::format("'{}' must be a whole number", keyword));
    return value;
}

uint32_t schema_min(SchemaRules& rules, const SchemaJson& schema, const char* keyword, const std::string& place) {
    const double value = count_of(schema, keyword, 0, place);
    if (value <= max_count) return uint32_t(value);
    rules.leave_out(place, fmt::format("'{}' is too large: at most {} is supported", keyword, max_count));
    return 0;
}

uint32_t schema_max(const SchemaJson& schema, const char* keyword, const std::string& place) {
    const double value = count_of(schema, keyword, max_count + 1, place);
    return value <= max_count ? uint32_t(value) : unlimited;
}

bool is_known_format(std::string_view format) { return format_pattern(format).has_value(); }

// Returns the regexes that a text must match: its patterns where these can be read, else its format if that is known.
static std::vector<RegexPart> text_regexes(SchemaRules& rules, const SchemaJson& schema, const std::string& place) {
    std::vector<RegexPart> parts;
    std::string problem;
    size_t bytes = 0;
    if (const auto given = schema.find("pattern"); given != schema.end())
        for (const SchemaJson& pattern : given->is_array() ? *given : SchemaJson::array({*given})) {
            if (!pattern.is_string()) refuse_schema(place, "'pattern' must be a text");
            if ((bytes += pattern.get_ref<const std::string&>().size()) > max_pattern_bytes) {
                problem = fmt::format("its patterns have more than {} bytes", max_pattern_bytes);
                break;
            }
            try {
                std::vector<RegexPart> some = parse_regex(pattern.get_ref<const std::string&>(), rules.writer());
                std::ranges::move(some, std::back_inserter(parts));
            } catch (const Error& error) {
                problem = error.what();
            }
        }
    if (parts.empty() || !problem.empty())
        if (auto format = format_regex(rules, schema, place)) return parts.push_back(std::move(*format)), parts;
    if (!problem.empty()) rules.leave_out(place, problem);
    return parts;
}

// One regex is written as a tree, as people write it; several, and those with lookaheads, as an automaton.
std::string string_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place) {
    const uint32_t min = schema_min(rules, schema, "minLength", place), max = schema_max(schema, "maxLength", place);
    const bool has_length = min > 0 || max != unlimited;
    if (max < min) refuse_schema(place, "'maxLength' is less than 'minLength'");
    const auto quoted = [](const std::string& body) { return "\"\\\"\" " + body + " \"\\\"\""; };
    std::vector<RegexPart> parts = text_regexes(rules, schema, place);
    if (parts.size() > 1) {
        if (const auto text = regex_product_gbnf(rules.writer(), parts, min, max)) return quoted(*text);
        if (auto format = format_regex(rules, schema, place)) {
            parts.clear();
            parts.push_back(std::move(*format));
        } else {
            rules.leave_out(place,
                            "no text was found that its patterns, with their lookaheads, and its length allow, or there are "
                            "too many ways to write one");
        }
    }
    if (!parts.empty() && !parts[0].negated) {
        if (!has_length) return quoted(regex_tree_gbnf(parts[0].regex));
        if (const auto text = regex_tree_gbnf(parts[0].regex, min, max)) return quoted(*text);
        rules.leave_out(place, "no text of the pattern or format was found that has a length from 'minLength' to 'maxLength'");
        return quoted(regex_tree_gbnf(parts[0].regex));
    }
    if (!has_length) return rules.writer().json("string");
    return quoted(rules.writer().json("char") + times_gbnf(min, max));
}

// Returns nullopt if there is no multipleOf, or a grammar cannot express it.
static std::optional<std::string> multiple(SchemaRules& rules, const SchemaJson& schema, const std::string& place,
                                           bool is_integer, const std::optional<NumberBound>& min,
                                           const std::optional<NumberBound>& max) {
    const auto given = schema.find("multipleOf");
    if (given == schema.end() || (is_integer && *given == 1)) return std::nullopt;
    const double of = given->is_number() ? given->get<double>() : 0;
    if (!(of > 0) || !std::isfinite(of)) refuse_schema(place, "'multipleOf' must be a number above 0");
    try {
        auto text = multiple_gbnf(rules.writer(), of, min, max, is_integer);
        if (text) return text;
    } catch (const Error& error) {
        refuse_schema(place, error.what());
    }
    rules.leave_out(place, fmt::format("'multipleOf' is {}, but must be a small number, or one such as 100 or 0.01", of));
    return std::nullopt;
}

std::string number_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, bool is_integer) {
    auto min = bound(schema, "minimum", "exclusiveMinimum", place, true),
         max = bound(schema, "maximum", "exclusiveMaximum", place, false);
    if (auto text = multiple(rules, schema, place, is_integer, min, max)) return *std::move(text);
    const std::optional<NumberBound> none;
    if (!min && !max) return rules.writer().json(is_integer ? "integer" : "number");
    if (is_integer) {
        const auto low = integer_bound(rules, min, true, place), high = integer_bound(rules, max, false, place);
        if (low && high && *low > *high) refuse_schema(place, "no integer lies between the bounds");
        return integer_range_gbnf(low, high);
    }
    if (min && max && (min->value > max->value || (min->value == max->value && (min->exclusive || max->exclusive))))
        refuse_schema(place, "no number lies between the bounds");
    // Numbers without an exponent have up to 16 digits before the point. Bounds beyond them, such as those of float32, are none.
    if (min && min->value <= -max_number) min.reset();
    if (max && max->value >= max_number) max.reset();
    if (!min && !max) return number_range_gbnf(none, none);
    std::string problem;
    for (const auto& [low, high] : {std::pair(min, max), std::pair(min, none), std::pair(none, max)}) {
        try {
            if (low || high) return number_range_gbnf(low, high);
        } catch (const Error& error) {
            if (problem.empty()) rules.leave_out(place, problem = error.what());
        }
    }
    return rules.writer().json("number");
}

} // namespace tq::grammar
