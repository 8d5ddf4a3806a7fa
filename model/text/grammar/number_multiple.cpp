// multipleOf as a grammar: the digits of a number are read from the left, and only the remainder of the digits so far by the step
// matters. So an automaton with as many states as the step is large knows the multiples. free() makes its rules, one for each
// remainder and number of digits that are left, on demand. Bounds hold digit by digit (tight()): as long as the digits are those
// of a bound, the next is bounded by it; from the first digit that differs on, all are free. The step is a decimal, digits *
// 10^exponent, and numbers are counted in units of 10^exponent, so that 0.05 is 5 hundredths and no binary fraction. For an
// integer only whole multiples are wanted: the step becomes the least common multiple of step and 1. A step of more than 100
// units would need too many rules. Then all multiples are listed if there are few; otherwise the caller is told that a grammar
// cannot express it.
#include "model/text/grammar/number_multiple.h"
#include "base/error.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <numeric>

namespace tq::grammar {
namespace {

constexpr int64_t max_units = 9'999'999'999'999'999; // 16 digits
constexpr int64_t max_states = 100, max_listed = 1024;
constexpr int max_decimals = 15;

// A number as digits * 10^exponent, whose digits do not end with a zero.
struct Step {
    int64_t digits;
    int exponent;
};

std::optional<Step> step_of(double value) {
    const std::string text = fmt::format("{:.14e}", value); // "5.00000000000000e-02"
    Step result{0, std::stoi(text.substr(text.find('e') + 1)) - 14};
    for (const char c : text.substr(0, text.find('e')))
        if (c != '.') result.digits = result.digits * 10 + (c - '0');
    if (result.digits == 0) return std::nullopt;
    for (; result.digits % 10 == 0; result.digits /= 10) result.exponent++;
    if (std::abs(result.exponent) > max_decimals) return std::nullopt;
    return result;
}

// The nearest number of units that the bound allows.
int64_t units(const std::optional<NumberBound>& bound, int exponent, bool is_min) {
    if (!bound) return is_min ? -max_units : max_units;
    const double exact = bound->value / std::pow(10.0, exponent), near = std::round(exact);
    const bool on_it = std::abs(exact - near) <= 1e-9 * std::max(1.0, std::abs(exact));
    double value = on_it ? near : is_min ? std::ceil(exact) : std::floor(exact);
    if (on_it && bound->exclusive) value += is_min ? 1 : -1;
    return int64_t(std::clamp(value, -double(max_units), double(max_units)));
}

// The digits of multiples of `of`, with `decimals` of them behind a point.
class Multiples {
  public:
    Multiples(GbnfWriter& writer, int64_t of, int decimals) : writer_(writer), of_(of), decimals_(decimals) {}

    // Multiples from low to high, neither negative; empty if there are none.
    std::string between(int64_t low, int64_t high) {
        if (low > high) return "";
        std::string all;
        const size_t shortest = std::max(std::to_string(low).size(), size_t(decimals_) + 1);
        for (size_t length = shortest; length <= std::max(std::to_string(high).size(), shortest); ++length) {
            const int64_t first = length == shortest ? low : int64_t(std::pow(10.0, double(length - 1)) + 0.5);
            const int64_t last = std::min(high, int64_t(std::pow(10.0, double(length)) + 0.5) - 1);
            const std::string some =
                tight(fmt::format("{:0{}}", first, length), fmt::format("{:0{}}", last, length), 0, 0, true, true);
            if (!some.empty()) all += (all.empty() ? "" : " | ") + some;
        }
        return all;
    }

  private:
    std::string point(size_t left) const { return decimals_ > 0 && left == size_t(decimals_) ? "\".\" " : ""; }
    int64_t after(int64_t rest, char digit) const { return (rest * 10 + (digit - '0')) % of_; }

    // The digits from i on, if those before leave the remainder `rest` and are those of the bounds. Empty if there are none.
    std::string tight(const std::string& low, const std::string& high, size_t i, int64_t rest, bool at_low, bool at_high) {
        if (!at_low && !at_high) return free(low.size() - i, rest);
        if (i == low.size()) return rest == 0 ? "\"\"" : "";
        std::string out;
        for (char digit = at_low ? low[i] : '0'; digit <= (at_high ? high[i] : '9'); ++digit) {
            const std::string more =
                tight(low, high, i + 1, after(rest, digit), at_low && digit == low[i], at_high && digit == high[i]);
            if (!more.empty()) out += fmt::format("{}\"{}\" {}", out.empty() ? "" : " | ", digit, more);
        }
        return out.empty() ? "" : fmt::format("{}({})", point(low.size() - i), out);
    }

    // Any `left` digits: a rule.
    std::string free(size_t left, int64_t rest) {
        if (left == 0) return rest == 0 ? "\"\"" : "";
        const auto [place, is_new] = rules_.try_emplace({left, rest});
        if (!is_new) return place->second;
        std::string out;
        for (char digit = '0'; digit <= '9'; ++digit) {
            const std::string more = free(left - 1, after(rest, digit));
            if (!more.empty()) out += fmt::format("{}\"{}\" {}", out.empty() ? "" : " | ", digit, more);
        }
        if (out.empty()) return "";
        const std::string name = writer_.new_name("digits");
        writer_.define(name, fmt::format("{}({})", point(left), out));
        return place->second = name;
    }

    GbnfWriter& writer_;
    const int64_t of_;
    const int decimals_;
    std::map<std::pair<size_t, int64_t>, std::string> rules_; // by the digits left and the rest
};

// All multiples from low to high, as texts.
std::string listed(int64_t low, int64_t high, const Step& step) {
    const int decimals = std::max(-step.exponent, 0), zeros = std::max(step.exponent, 0);
    std::string out;
    for (int64_t n = low / step.digits - (low < 0 ? 1 : 0); n * step.digits <= high; ++n) {
        if (n * step.digits < low) continue;
        std::string text = fmt::format("{:0{}}", std::abs(n * step.digits), decimals + 1);
        if (decimals > 0) text.insert(text.size() - size_t(decimals), ".");
        if (n != 0) text.append(size_t(zeros), '0');
        out += fmt::format("{}\"{}{}\"", out.empty() ? "" : " | ", n < 0 ? "-" : "", text);
    }
    return out;
}

} // namespace

std::optional<std::string> multiple_gbnf(GbnfWriter& writer, double of, std::optional<NumberBound> min,
                                         std::optional<NumberBound> max, bool is_integer) {
    std::optional<Step> step = step_of(of);
    if (!step) return std::nullopt;
    if (is_integer && step->exponent < 0) {
        const auto unit = int64_t(std::pow(10.0, -step->exponent) + 0.5);
        step = step_of(double(step->digits / std::gcd(step->digits, unit)));
    }
    const int exponent = step->exponent, decimals = std::max(-exponent, 0), zeros = std::max(exponent, 0);
    const int64_t limit = max_units / int64_t(std::pow(10.0, zeros) + 0.5);
    const int64_t low = std::max(units(min, exponent, true), -limit), high = std::min(units(max, exponent, false), limit);
    if (step->digits > max_states && (high - low) / step->digits > max_listed) return std::nullopt;
    std::string all;
    const auto add = [&](const std::string& sign, const std::string& digits, int ends) {
        if (!digits.empty())
            all += fmt::format("{}{}({}){}", all.empty() ? "" : " | ", sign, digits,
                               ends > 0 ? fmt::format(" \"{:0{}}\"", 0, ends) : "");
    };
    if (step->digits > max_states) {
        add("", listed(low, high, *step), 0);
    } else {
        Multiples multiples(writer, step->digits, decimals);
        if (low <= 0 && high >= 0) add("", decimals > 0 ? "\"0\" | " + multiples.between(0, 0) : "\"0\"", 0);
        add("", multiples.between(std::max<int64_t>(low, 1), high), zeros);
        if (low < 0) add("\"-\" ", multiples.between(std::max<int64_t>(-high, 1), -low), zeros);
    }
    if (all.empty()) fail("no multiple of {} lies between the bounds", of);
    return "(" + all + ")";
}

} // namespace tq::grammar
