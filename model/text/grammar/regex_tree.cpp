// A pattern together with minLength and maxLength. The intersection of two regular languages is regular, but its automaton is as
// large as the pattern times the length. Here the tree is narrowed instead, so that the result is about as large as the pattern:
// each part gets bounds on its length, such that no sum of lengths is outside the bounds of the whole.
// That never allows a text that the schema forbids, but it forbids some that the schema allows. For [a-z]+-[a-z]+ with at most 11
// characters, each side gets about half, and "a-bcdefghi" is lost. A sequence divides the length beyond its parts' minimum
// lengths in equal shares, to the parts that need least first; a repetition is made of few long units rather than of many short
// ones. limited() returns nothing if it finds no way, though there may be one. The caller then leaves the length unchecked, or
// refuses.
#include "model/text/grammar/regex_tree.h"
#include "model/text/grammar/interrupt.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <unordered_map>

namespace tq::grammar {
namespace {

constexpr uint64_t any_length = uint64_t(1) << 40;

struct Lengths {
    uint64_t min, max;
};

// Lengths of parts that are known, which are asked for again and again. Repetitions of one another are tried in several
// ways each, so the tries have a limit.
class Search {
  public:
    const Lengths& lengths(const Regex& regex) {
        const auto known = lengths_.find(&regex);
        return known != lengths_.end() ? known->second : lengths_.emplace(&regex, measure(regex)).first->second;
    }

    bool goes_on() {
        look_at_interrupt();
        return tries_++ < max_tries;
    }

  private:
    static constexpr size_t max_tries = 1u << 20;

    Lengths measure(const Regex& regex);

    std::unordered_map<const Regex*, Lengths> lengths_;
    size_t tries_ = 0;
};

Lengths Search::measure(const Regex& regex) {
    if (regex.kind == Regex::Kind::chars) return {1, 1};
    Lengths all = regex.kind == Regex::Kind::choice ? Lengths{any_length, 0} : Lengths{0, 0};
    for (const Regex& part : regex.of) {
        const Lengths one = lengths(part);
        if (regex.kind == Regex::Kind::choice)
            all = {std::min(all.min, one.min), std::max(all.max, one.max)};
        else if (regex.kind == Regex::Kind::sequence)
            all = {std::min(all.min + one.min, any_length), std::min(all.max + one.max, any_length)};
        else
            all = {std::min(one.min * regex.min, any_length),
                   regex.max == unlimited ? (one.max == 0 ? 0 : any_length) : std::min(one.max * regex.max, any_length)};
    }
    return all;
}

std::string times(uint64_t min, uint64_t max) {
    return max >= unlimited ? fmt::format("{{{},}}", min) : fmt::format("{{{},{}}}", min, max);
}

using Text = std::optional<std::string>;
Text limited(Search& search, const Regex& regex, uint64_t min, uint64_t max);

Text limited_choice(Search& search, const Regex& regex, uint64_t min, uint64_t max) {
    std::string out;
    for (const Regex& part : regex.of)
        if (const Text text = limited(search, part, min, max)) out += (out.empty() ? "" : " | ") + *text;
    if (out.empty()) return std::nullopt;
    return "(" + out + ")";
}

// At most `max_repeats` repetitions; the bounds on their lengths are such that no sum is outside the bounds.
Text limited_repeat(Search& search, const Regex& regex, uint64_t min, uint64_t max, uint64_t max_repeats) {
    const Lengths unit = search.lengths(regex.of[0]);
    const uint64_t longest = max >= any_length ? unit.max : std::min(unit.max, max / max_repeats);
    const uint64_t needed = min == 0 ? 0 : longest == 0 ? any_length : (min + longest - 1) / longest;
    const uint64_t min_repeats = std::max<uint64_t>(regex.min, needed);
    if (min_repeats > max_repeats) return std::nullopt;
    const Text one = limited(search, regex.of[0], min_repeats == 0 ? 0 : (min + min_repeats - 1) / min_repeats, longest);
    if (!one) return std::nullopt;
    return *one + times(min_repeats, max_repeats);
}

Text limited_repeat(Search& search, const Regex& regex, uint64_t min, uint64_t max) {
    const Lengths unit = search.lengths(regex.of[0]);
    const uint64_t min_unit = std::max<uint64_t>(unit.min, 1), bound = regex.max == unlimited ? any_length : regex.max;
    if (unit.min == unit.max) {
        const uint64_t min_repeats = std::max<uint64_t>(regex.min, (min + min_unit - 1) / min_unit),
                       max_repeats = std::min(bound, max / min_unit);
        if (min_repeats > max_repeats) return std::nullopt;
        return regex_tree_gbnf(regex.of[0]) + times(min_repeats, max_repeats);
    }
    const uint64_t min_repeats = std::max<uint64_t>(regex.min, 1), root = uint64_t(std::ceil(std::sqrt(double(max / min_unit))));
    const uint64_t few = unit.max < any_length ? max / unit.max : root; // long ones rather than many
    for (const uint64_t max_repeats : {max >= any_length ? bound : few, min_repeats, max / min_unit})
        if (const Text text =
                limited_repeat(search, regex, min, max, std::clamp(max_repeats, min_repeats, std::max(bound, min_repeats))))
            return text;
    return regex.min == 0 && min == 0 ? Text("\"\"") : std::nullopt;
}

// The length beyond the parts' minimum lengths is divided among them.
Text limited_sequence(Search& search, const Regex& regex, uint64_t min, uint64_t max) {
    std::vector<Lengths> parts;
    uint64_t min_length = 0;
    for (const Regex& part : regex.of) min_length += parts.emplace_back(search.lengths(part)).min;
    const std::vector<Lengths> given = parts;
    uint64_t spare = max - min_length; // not negative: limited() has looked
    uint64_t open = uint64_t(std::ranges::count_if(given, [](const Lengths& one) { return one.max > one.min; }));
    std::vector<size_t> order;
    for (size_t i = 0; i < parts.size(); ++i) order.push_back(i);
    std::ranges::stable_sort(order, {}, [&](size_t i) { return given[i].max - given[i].min; }); // small ones leave the rest
    for (const size_t i : order) {
        if (given[i].max == given[i].min) continue;
        const uint64_t share = max >= any_length ? any_length : std::min(given[i].max - given[i].min, spare / open--);
        parts[i].max = std::min(given[i].min + share, given[i].max);
        if (max < any_length) spare -= share;
    }
    uint64_t missing = min > min_length ? min - min_length : 0;
    for (auto i = order.rbegin(); i != order.rend() && missing > 0; ++i) { // the longest first
        const uint64_t more = std::min(missing, parts[*i].max - parts[*i].min);
        parts[*i].min += more;
        missing -= more;
    }
    if (missing > 0) return std::nullopt;
    std::string out;
    for (size_t i = 0; i < parts.size(); ++i) {
        const Text text = limited(search, regex.of[i], parts[i].min, parts[i].max);
        if (!text) return std::nullopt;
        out += (i == 0 ? "" : " ") + *text;
    }
    return "(" + out + ")";
}

Text limited(Search& search, const Regex& regex, uint64_t min, uint64_t max) {
    if (!search.goes_on()) return std::nullopt;
    const Lengths all = search.lengths(regex);
    if (all.min >= min && all.max <= max) return regex_tree_gbnf(regex);
    if (all.max < min || all.min > max) return std::nullopt;
    switch (regex.kind) {
    case Regex::Kind::chars: return std::nullopt;
    case Regex::Kind::choice: return limited_choice(search, regex, min, max);
    case Regex::Kind::repeat: return limited_repeat(search, regex, min, max);
    case Regex::Kind::sequence: break;
    }
    return limited_sequence(search, regex, min, max);
}

} // namespace

std::string regex_tree_gbnf(const Regex& regex) {
    if (regex.kind == Regex::Kind::chars) return regex.text;
    if (regex.kind == Regex::Kind::repeat) {
        const std::string_view mark = regex.max != unlimited ? (regex.min == 0 && regex.max == 1 ? "?" : "")
                                      : regex.min == 0       ? "*"
                                      : regex.min == 1       ? "+"
                                                             : "";
        return regex_tree_gbnf(regex.of[0]) + (mark.empty() ? times(regex.min, regex.max) : std::string(mark));
    }
    std::string out;
    for (const Regex& part : regex.of)
        out += (out.empty() ? "" : regex.kind == Regex::Kind::choice ? " | " : " ") + regex_tree_gbnf(part);
    return out.empty() ? "\"\"" : "(" + out + ")";
}

std::optional<std::string> regex_tree_gbnf(const Regex& regex, uint32_t min, uint32_t max) {
    Search search;
    return limited(search, regex, min, max == unlimited ? any_length : max);
}

} // namespace tq::grammar
