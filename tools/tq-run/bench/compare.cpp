#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/report.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace tq::bench {
namespace {

constexpr const char* baseline = "f16/f16";

// The names of a table's rows or columns, each once, in the order of the points.
template <class Name> std::vector<std::string> each_once(const std::vector<Point>& points, Name name) {
    std::vector<std::string> out;
    for (const Point& point : points)
        if (std::ranges::find(out, name(point)) == out.end()) out.push_back(name(point));
    return out;
}

std::string test_name(const Point& p) { return p.kind() + (p.depth > 0 ? fmt::format(" @ d{}", p.depth) : ""); }
std::string row_name(const Point& p) { return p.model + '\n' + p.cache + '\n' + test_name(p); }

// One row per model, cache and test; `cell` may return an empty text. Empty where it always does.
template <class Cell> std::string table(const Comparison& all, const char* title, Cell cell) {
    const auto devices = each_once(all.points, [](const Point& p) { return p.device; });
    std::vector<std::vector<std::string>> rows{{"model", "cache", "test"}};
    rows[0].insert(rows[0].end(), devices.begin(), devices.end());
    std::map<std::pair<std::string, std::string>, const Point*> cells; // by row and column
    for (const Point& point : all.points) cells[{row_name(point), point.device}] = &point;
    for (const std::string& name : each_once(all.points, row_name)) {
        const Point* first = nullptr; // the first one that was measured
        std::vector<std::string> row;
        for (const std::string& device : devices) {
            const auto found = cells.find({name, device});
            if (found != cells.end() && first == nullptr) first = found->second;
            const std::string text = found == cells.end() ? "" : cell(*found->second, *first);
            row.push_back(text.empty() ? "-" : text);
        }
        if (std::ranges::all_of(row, [](const std::string& text) { return text == "-"; })) continue;
        row.insert(row.begin(), {first->model, first->cache, test_name(*first)});
        rows.push_back(std::move(row));
    }
    return rows.size() == 1 ? "" : fmt::format("{}\n\n{}\n", title, markdown(rows, 3));
}

// "12.3 ± 0.4"; without the error where it is unknown.
std::string with_error(const Estimated& e, int digits, const char* unit = "") {
    const std::string value = fmt::format("{:.{}f}{}", e.value, digits, unit);
    return e.error > 0 ? fmt::format("{} ± {:.{}f}", value, e.error, digits) : value;
}

Estimated ratio(const Point& p, const Point& over) {
    const double value = p.tokens_per_second / over.tokens_per_second;
    return {value, value * std::hypot(p.error / p.tokens_per_second, over.error / over.tokens_per_second)};
}

// Less than two standard errors of the difference; false for single samples, whose error is unknown.
bool within_noise(const Estimated& ratio) { return ratio.error > 0 && std::fabs(ratio.value - 1) < 2 * ratio.error; }

std::string speed_cell(const Point& p, const Point& first) {
    const std::string speed = with_error({p.tokens_per_second, p.deviation}, 2);
    if (&p == &first) return speed;
    const Estimated over = ratio(p, first);
    return fmt::format("{} ({}{:.2f}x)", speed, within_noise(over) ? "~ " : "", over.value);
}

// A slope within the noise is not shown as a number.
std::string slope_cell(const Comparison& all, const Point& p) {
    const auto measured = ns_per_depth(all, p);
    const auto expected = expected_ns_per_depth(all, p);
    if (!measured) return "";
    const bool seen = measured->value > 2 * measured->error;
    const std::string text = seen                  ? with_error(*measured, 1)
                             : measured->error > 0 ? fmt::format("not above noise (± {:.1f})", measured->error)
                                                   : "not above noise";
    return text + (expected ? fmt::format(" ({:.1f})", *expected) : "");
}

// The first point of each line of generated tokens, with its depth left out.
Comparison lines_of_generation(const Comparison& all) {
    Comparison out;
    for (Point p : all.points) {
        p.depth = 0;
        if (p.prompt == 0 && std::ranges::none_of(out.points, [&](const Point& other) { return same_line(other, p); }))
            out.points.push_back(std::move(p));
    }
    return out;
}

} // namespace

bool same_line(const Point& a, const Point& b) {
    return a.device == b.device && a.model == b.model && a.cache == b.cache && a.kind() == b.kind();
}

bool same_cell(const Point& a, const Point& b) { return same_line(a, b) && a.depth == b.depth; }

std::string Point::kind() const {
    std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : "";
    if (generated > 0) text += fmt::format("{}tg{}", prompt > 0 ? "+" : "", generated);
    return text + settings;
}

std::optional<Estimated> over_f16(const Comparison& comparison, const Point& point) {
    if (point.cache == baseline) return std::nullopt;
    Point wanted = point;
    wanted.cache = baseline;
    const auto found = std::ranges::find_if(comparison.points, [&](const Point& other) { return same_cell(other, wanted); });
    if (found == comparison.points.end()) return std::nullopt;
    return ratio(point, *found);
}

std::optional<Estimated> ns_per_depth(const Comparison& all, const Point& point) {
    std::vector<const Point*> line;
    double depths = 0;
    for (const Point& p : all.points)
        if (same_line(p, point)) {
            line.push_back(&p);
            depths += p.depth;
        }
    double spread = 0, slope = 0, variance = 0; // of a weighted sum of times with independent errors
    const double middle = depths / double(line.size());
    for (const Point* p : line) spread += (p->depth - middle) * (p->depth - middle);
    if (!(spread > 0)) return std::nullopt;
    for (const Point* p : line) {
        const double weight = (p->depth - middle) / spread, ns = 1e9 / p->tokens_per_second;
        slope += weight * ns;
        variance += std::pow(weight * ns * p->error / p->tokens_per_second, 2);
    }
    return Estimated{slope, std::sqrt(variance)};
}

std::optional<double> expected_ns_per_depth(const Comparison& comparison, const Point& point) {
    const Point* deepest = nullptr;
    for (const Point& other : comparison.points) {
        if (!same_line(other, point) || !other.attention_gb_per_s || !other.cache_bytes) continue;
        if (deepest == nullptr || other.depth > deepest->depth) deepest = &other;
    }
    if (deepest == nullptr) return std::nullopt;
    return *deepest->cache_bytes / *deepest->attention_gb_per_s; // bytes over bytes per ns
}

nlohmann::ordered_json comparison_json(const Comparison& all) {
    const auto or_null = [](const std::optional<double>& value) {
        return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
    };
    const auto put = [&](nlohmann::ordered_json& to, const std::string& name, const std::optional<Estimated>& e) {
        to[name] = or_null(e ? std::optional(e->value) : std::nullopt);
        to[name + "_error"] = or_null(e && e->error > 0 ? std::optional(e->error) : std::nullopt);
    };
    auto json = nlohmann::ordered_json::array();
    for (const Point& p : all.points) {
        const auto first =
            std::ranges::find_if(all.points, [&](const Point& other) { return row_name(other) == row_name(p); }); // of this row
        auto& out = json.emplace_back(nlohmann::ordered_json{{"device", p.device},
                                                             {"model", p.model},
                                                             {"cache", p.cache},
                                                             {"test", test_name(p)},
                                                             {"n_prompt", p.prompt},
                                                             {"n_gen", p.generated},
                                                             {"n_depth", p.depth},
                                                             {"avg_ts", p.tokens_per_second},
                                                             {"stddev_ts", p.deviation},
                                                             {"checked", p.checked}});
        put(out, "over_first_device", &*first == &p ? std::nullopt : std::optional(ratio(p, *first)));
        put(out, "over_f16", over_f16(all, p));
        put(out, "ns_per_depth", p.prompt == 0 ? ns_per_depth(all, p) : std::nullopt);
        out["bandwidth_share"] = or_null(p.bandwidth_share);
        out["joules_per_token"] = or_null(p.joules_per_token);
    }
    return json;
}

std::string comparison_table(const Comparison& all) {
    std::string text =
        table(all, "Tokens per second, ± standard deviation of the samples (and over those of the first device)", speed_cell);
    if (text.find("(~ ") != std::string::npos) text += "~ within the noise: less than two standard errors apart\n\n";
    const std::string shares = table(all, "Share of the device's own measured bandwidth", [](const Point& p, const Point&) {
        return p.bandwidth_share ? share_text(*p.bandwidth_share) : std::string();
    });
    text += shares;
    if (shares.find('*') != std::string::npos) text += beyond_limit + std::string("\n");
    text += table(all, "Speed over that with a cache of f16, ± its standard error", [&](const Point& p, const Point&) {
        const auto over = over_f16(all, p);
        return over ? (within_noise(*over) ? "~ " : "") + with_error(*over, 2, "x") : std::string();
    });
    text += table(all, "Joules per token", [](const Point& p, const Point&) {
        return p.joules_per_token ? fmt::format("{:.4f}", *p.joules_per_token) : std::string();
    });
    text += table(lines_of_generation(all),
                  "Extra ns per token of context, ± its standard error (and as the cache's bytes over the attention kernel's "
                  "bandwidth)",
                  [&](const Point& p, const Point&) { return slope_cell(all, p); });
    for (const std::string& line : all.footnotes) text += line + "\n";
    return text;
}

} // namespace tq::bench
