// Numbers between bounds as patterns of their decimal digits. For bounds of equal length: the digits that both have in common,
// then a choice of three: the lower bound's digit and a rest that is at least its rest, the digits between with any rest, the
// upper bound's digit and a rest that is at most its rest (digits_between()). Lengths that differ are split at powers of ten
// (naturals_between()). Fractions are the same from the left, with one more case: a fraction may end early, which counts as
// zeros. Exclusive bounds are why many functions here have two forms: more than 1.5 is 1.5 followed by zeros and then a digit
// that is not 0. Signs are stripped first: numbers from -3 to 5 are "-" with 0 to 3, or 0 to 5. The digits behind the point are
// bounded, so that an answer ends.
#include "model/text/grammar/number_range.h"
#include "base/error.h"
#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace tq::grammar {
namespace {

constexpr size_t max_integer_digits = 16;

std::string any_digits(size_t min, size_t max) {
    return max == 0 ? "\"\"" : min == max ? fmt::format("[0-9]{{{}}}", min) : fmt::format("[0-9]{{{},{}}}", min, max);
}

std::string digit_range(char first, char last) {
    return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

std::string join_choices(const std::vector<std::string>& choices) {
    std::string out;
    for (const std::string& choice : choices) out += (out.empty() ? "" : " | ") + choice;
    return "(" + out + ")";
}

// Digits from `low` to `high`, which are equally long.
std::string digits_between(const std::string& low, const std::string& high) {
    if (low == high) return "\"" + low + "\"";
    size_t common = 0;
    while (low[common] == high[common]) ++common;
    const std::string prefix = common == 0 ? "" : fmt::format("\"{}\" ", low.substr(0, common));
    const std::string a = low.substr(common), b = high.substr(common);
    const size_t rest = a.size() - 1;
    if (rest == 0) return prefix + digit_range(a[0], b[0]);
    const bool from_zero = a.find_first_not_of('0', 1) == a.npos, to_nine = b.find_first_not_of('9', 1) == b.npos;
    std::vector<std::string> choices;
    if (!from_zero) choices.push_back(digit_range(a[0], a[0]) + " " + digits_between(a.substr(1), std::string(rest, '9')));
    const char first = char(a[0] + (from_zero ? 0 : 1)), last = char(b[0] - (to_nine ? 0 : 1));
    if (first <= last) choices.push_back(digit_range(first, last) + " " + any_digits(rest, rest));
    if (!to_nine) choices.push_back(digit_range(b[0], b[0]) + " " + digits_between(std::string(rest, '0'), b.substr(1)));
    return prefix + join_choices(choices);
}

// Integers from `low` to `high`, 0 <= low; without `high` of up to 16 digits, or of one digit more than `low` if that is longer.
std::string naturals_between(uint64_t low, std::optional<uint64_t> high) {
    std::vector<std::string> choices;
    std::string a = std::to_string(low);
    const std::string b = high ? std::to_string(*high) : std::string(std::max(max_integer_digits, a.size()), '9');
    for (; a.size() < b.size(); a = std::string(a.size() + 1, '0'), a[0] = '1')
        choices.push_back(digits_between(a, std::string(a.size(), '9')));
    choices.push_back(digits_between(a, b));
    return join_choices(choices);
}

uint64_t magnitude(int64_t value) { return value < 0 ? ~uint64_t(value) + 1 : uint64_t(value); }

// A bound without its sign.
struct Decimal {
    uint64_t whole;
    std::string fraction; // without zeros at its end
    bool exclusive;
};

// `is_low`: numbers are at least that. A bound of more than 15 places is rounded to a number that is one of those it allows, or
// the next that is not.
Decimal decimal(const NumberBound& bound, bool is_low) {
    const double value = bound.value < 0 ? -bound.value : bound.value;
    if (!(value < max_number)) fail("the bound {} of a number is not supported: it has more than 16 digits", bound.value);
    std::string text = fmt::format("{:.15f}", value); // the shortest decimal that is this number, if it has at most 15 places
    bool exclusive = bound.exclusive;
    if (const double rounded = std::stod(text); rounded != value) exclusive = is_low == (rounded < value);
    for (int places = 0; places < 15; ++places) {
        if (std::string shorter = fmt::format("{:.{}f}", value, places); std::stod(shorter) == value) {
            text = shorter;
            break;
        }
    }
    const size_t point = std::min(text.find('.'), text.size());
    std::string fraction = point == text.size() ? "" : text.substr(point + 1);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    return {std::stoull(text.substr(0, point)), fraction, exclusive};
}

constexpr const char* some_fraction = "(\".\" [0-9]{1,15})?";

// The rest, from digit `i` of the fraction on, of a number with the whole part of `low` that is at least `low`.
std::string fraction_from(const Decimal& low, size_t i) {
    if (i == low.fraction.size()) return low.exclusive ? "\"0\"{0,14} [1-9] [0-9]{0,14}" : "[0-9]{0,15}";
    const char digit = low.fraction[i];
    std::string out = digit_range(digit, digit) + " " + fraction_from(low, i + 1);
    if (i + 1 == low.fraction.size() && !low.exclusive) out = digit_range(digit, digit) + " [0-9]{0,15}";
    if (digit == '9') return fmt::format("({})", out);
    return fmt::format("({} [0-9]{{0,14}} | {})", digit_range(char(digit + 1), '9'), out);
}

std::string from(const Decimal& low) {
    if (low.fraction.empty() && !low.exclusive) return "(\".\" [0-9]{1,15})?";
    return "\".\" " + fraction_from(low, 0);
}

// The digits that may follow the digits of the fraction of `high` before digit `i`; empty if none may.
std::string fraction_to(const Decimal& high, size_t i) {
    if (i == high.fraction.size()) return high.exclusive ? "" : "\"0\"{0,14}";
    const char digit = high.fraction[i];
    const bool is_last = i + 1 == high.fraction.size();
    std::vector<std::string> choices;
    if (digit > '0') choices.push_back(digit_range('0', char(digit - 1)) + " [0-9]{0,14}");
    if (!is_last) choices.push_back(fmt::format("\"{}\" ({})?", digit, fraction_to(high, i + 1)));
    if (is_last && !high.exclusive) choices.push_back(fmt::format("\"{}\" \"0\"{{0,14}}", digit));
    return join_choices(choices);
}

// The fraction of a number with the whole part of `high` that is at most `high`; empty if even no fraction is too much.
std::string to(const Decimal& high) {
    if (high.fraction.empty()) return high.exclusive ? "" : "(\".\" \"0\"{1,15})?";
    return "(\".\" " + fraction_to(high, 0) + ")?";
}

// Fractions between those of two bounds with the same whole part; empty if there are none.
std::string fraction_between(const Decimal& low, const Decimal& high, size_t i, std::string prefix) {
    if (i == low.fraction.size()) { // numbers between are below `high` alone, and not `low` itself if that is exclusive
        const bool equal = i == high.fraction.size();
        if (equal && (low.exclusive || high.exclusive)) return "";
        if (!low.exclusive) {
            if (prefix.empty()) return to(high);
            return "\"." + prefix + "\" (" + (equal ? "\"0\"{0,14}" : fraction_to(high, i)) + ")?";
        }
        size_t zeros = i; // more than `low`: after the zeros that `high` has here, a digit that is not 0
        while (high.fraction[zeros] == '0') ++zeros;
        const std::string ahead = "\"." + prefix + std::string(zeros - i, '0') + "\" ";
        std::vector<std::string> choices;
        if (high.fraction[zeros] > '1')
            choices.push_back(ahead + digit_range('1', char(high.fraction[zeros] - 1)) + " [0-9]{0,14}");
        const bool is_last = zeros + 1 == high.fraction.size();
        if (!is_last || !high.exclusive)
            choices.push_back(fmt::format("{}\"{}\" ({})?", ahead, high.fraction[zeros], fraction_to(high, zeros + 1)));
        choices.push_back(ahead + "\"0\"{1,9} [1-9] [0-9]{0,5}");
        return join_choices(choices);
    }
    if (i == high.fraction.size() || high.fraction[i] < low.fraction[i]) return "";
    if (high.fraction[i] == low.fraction[i]) return fraction_between(low, high, i + 1, prefix + low.fraction[i]);
    const std::string ahead = "\"." + prefix + "\" ";
    Decimal rest_low = low, rest_high = high;
    rest_low.fraction.erase(0, i + 1), rest_high.fraction.erase(0, i + 1);
    std::vector<std::string> choices{fmt::format("{}\"{}\" {}", ahead, low.fraction[i], fraction_from(rest_low, 0))};
    if (low.fraction[i] + 1 < high.fraction[i])
        choices.push_back(ahead + digit_range(char(low.fraction[i] + 1), char(high.fraction[i] - 1)) + " [0-9]{0,14}");
    if (!rest_high.fraction.empty())
        choices.push_back(fmt::format("{}\"{}\" {}?", ahead, high.fraction[i], fraction_to(rest_high, 0)));
    else if (!high.exclusive)
        choices.push_back(fmt::format("{}\"{}\" \"0\"{{0,14}}", ahead, high.fraction[i]));
    return join_choices(choices);
}

// Numbers from `low` to `high`, both at least 0, without a sign; empty if there are none.
std::string decimals_between(const Decimal& low, const std::optional<Decimal>& high) {
    std::vector<std::string> choices;
    if (high && high->whole < low.whole) return "";
    if (high && high->whole == low.whole) {
        const std::string fraction = fraction_between(low, *high, 0, "");
        return fraction.empty() ? "" : fmt::format("(\"{}\" {})", low.whole, fraction);
    }
    choices.push_back(fmt::format("\"{}\" {}", low.whole, from(low)));
    if (!high) choices.push_back(naturals_between(low.whole + 1, std::nullopt) + " " + some_fraction);
    if (high && low.whole + 1 < high->whole)
        choices.push_back(naturals_between(low.whole + 1, high->whole - 1) + " " + some_fraction);
    if (high)
        if (const std::string end = to(*high); !end.empty()) choices.push_back(fmt::format("\"{}\" {}", high->whole, end));
    return join_choices(choices);
}

} // namespace

std::string integer_range_gbnf(std::optional<int64_t> min, std::optional<int64_t> max) {
    std::vector<std::string> choices;
    if (!min || *min < 0) {
        const uint64_t nearest = max && *max < 0 ? magnitude(*max) : 1;
        choices.push_back("\"-\" " + naturals_between(nearest, min ? std::optional(magnitude(*min)) : std::nullopt));
    }
    if (!max || *max >= 0)
        choices.push_back(
            naturals_between(min && *min > 0 ? magnitude(*min) : 0, max ? std::optional(magnitude(*max)) : std::nullopt));
    return join_choices(choices);
}

std::string number_range_gbnf(std::optional<NumberBound> min, std::optional<NumberBound> max) {
    const Decimal zero{0, "", false};
    std::vector<std::string> choices;
    const auto add = [&](const char* sign, const std::string& numbers) {
        if (!numbers.empty()) choices.push_back(sign + numbers);
    };
    if (!min || min->value < 0) {
        const bool ends_below = max && max->value <= 0;
        add("\"-\" ",
            decimals_between(ends_below ? decimal(*max, true) : zero, min ? std::optional(decimal(*min, false)) : std::nullopt));
    }
    if (!max || max->value > 0 || (max->value == 0 && !max->exclusive)) {
        const bool starts_above = min && min->value >= 0;
        add("", decimals_between(starts_above ? decimal(*min, true) : zero,
                                 max ? std::optional(decimal(*max, false)) : std::nullopt));
    }
    if (choices.empty()) fail("no number lies between the bounds {} and {}", min->value, max->value);
    return join_choices(choices);
}

} // namespace tq::grammar
