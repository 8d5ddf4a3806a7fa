// Results side by side: one row for each test, one column for each device, and tables of what follows from them. Points are cells
// that compare_files.cpp has read and named. A *line* is a test at several depths, from which the cost of context is a slope.
// Every derived number has its standard error if the samples tell one: ratios by the relative errors of both, slopes as weighted
// sums of independent times. A ratio within two standard errors of 1 is marked "~", and a slope that is not above its noise is
// not printed as a number, so nobody reads a difference into noise.
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

namespace tq::bench {
namespace {

constexpr const char* baseline = "f16/f16";

// The names of a table's rows or columns, each once, in the order of the points.
template <class Name> auto each_once(const std::vector<Point>& points, Name name) {
    std::vector<decltype(name(points[0]))> out;
    for (const Point& point : points)
        if (std::ranges::find(out, name(point)) == out.end()) out.push_back(name(point));
    return out;
}

std::string test_name(const Point& p) { return p.kind() + (p.depth > 0 ? fmt::format(" @ d{}", p.depth) : ""); }

// The cells that name a row, and their columns' heads.
using Labels = std::vector<std::string>;
const Labels test_heads{"model", "cache", "test"}, batched_heads{"PP", "TG", "B", "depth"};

Labels labels(const Point& p) {
    if (p.sequences == 0) return {p.model, p.cache, test_name(p)};
    return {std::to_string(p.prompt), std::to_string(p.generated), std::to_string(p.sequences), std::to_string(p.depth)};
}

Comparison only(const Comparison& all, const std::function<bool(const Point&)>& kept) {
    Comparison out;
    std::ranges::copy_if(all.points, std::back_inserter(out.points), kept);
    return out;
}

// Has a row for each test of -np, else for each test, model and cache. `cell` may return an empty text; if it always does,
// returns an empty text.
template <class Cell> std::string table(const Comparison& all, const std::string& title, Cell cell) {
    const auto devices = each_once(all.points, [](const Point& p) { return p.device; });
    std::vector<Labels> rows{all.together() ? batched_heads : test_heads};
    const bool hides_depth = all.together() && std::ranges::all_of(all.points, [](const Point& p) { return p.depth == 0; });
    if (hides_depth) rows[0].pop_back();
    const size_t first_number = all.together() ? 0 : rows[0].size();
    rows[0].insert(rows[0].end(), devices.begin(), devices.end());
    std::map<std::pair<Labels, std::string>, const Point*> cells; // by row and column
    for (const Point& point : all.points) cells[{labels(point), point.device}] = &point;
    for (const Labels& name : each_once(all.points, labels)) {
        const Point* first = nullptr; // the first one that was measured
        Labels row;
        for (const std::string& device : devices) {
            const auto found = cells.find({name, device});
            if (found != cells.end() && first == nullptr) first = found->second;
            const std::string text = found == cells.end() ? "" : cell(*found->second, *first);
            row.push_back(text.empty() ? "-" : text);
        }
        if (std::ranges::all_of(row, [](const std::string& text) { return text == "-"; })) continue;
        row.insert(row.begin(), name.begin(), name.end() - (hides_depth ? 1 : 0));
        rows.push_back(std::move(row));
    }
    if (rows.size() == 1) return "";
    const std::string wide = markdown(rows, first_number), first = rows[1][0];
    const auto same = [&](const Labels& row) { return row[0] == first; };
    if (all.together() || text_columns() == 0 || wide.find('\n') < text_columns() ||
        !std::all_of(rows.begin() + 1, rows.end(), same))
        return fmt::format("{}\n\n{}\n", title, markdown(rows, first_number, text_columns()));
    for (Labels& row : rows) row.erase(row.begin()); // the only model: it need not be in every row of a narrow terminal
    return fmt::format("{}: {}\n\n{}\n", first, title, markdown(rows, first_number - 1, text_columns()));
}

// "12.3 ± 0.4"; without the error if it is unknown.
std::string with_error(const Estimated& e, int digits, const char* unit = "") {
    const std::string value = fmt::format("{:.{}f}{}", e.value, digits, unit);
    return e.error ? fmt::format("{} ± {:.{}f}", value, *e.error, digits) : value;
}

Estimated ratio(const Point& p, const Point& over) {
    const double value = p.tokens_per_second / over.tokens_per_second;
    if (!p.error && !over.error) return {value};
    return {value,
            value * std::hypot(p.error.value_or(0) / p.tokens_per_second, over.error.value_or(0) / over.tokens_per_second)};
}

// Less than two standard errors of the difference; false for single samples, whose error is unknown.
bool within_noise(const Estimated& ratio) { return std::fabs(ratio.value - 1) < 2 * ratio.error.value_or(0); }

// The additional time of a token for each token before it, in ns: least squares over all depths. Nothing for a single depth.
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
        variance += std::pow(weight * ns * p->error.value_or(0) / p->tokens_per_second, 2);
    }
    return Estimated{slope, variance > 0 ? std::optional(std::sqrt(variance)) : std::nullopt};
}

// The same as predicted: the cache's bytes per token over the attention kernel's bandwidth at the greatest depth of the same
// device, model, cache and test. Nothing if that was not measured.
std::optional<double> expected_ns_per_depth(const Comparison& comparison, const Point& point) {
    const Point* deepest = nullptr;
    for (const Point& other : comparison.points) {
        if (!same_line(other, point) || !other.attention_gb_per_s || !other.cache_bytes) continue;
        if (deepest == nullptr || other.depth > deepest->depth) deepest = &other;
    }
    if (deepest == nullptr) return std::nullopt;
    return *deepest->cache_bytes / *deepest->attention_gb_per_s; // bytes over bytes per ns
}

// The speed of a cache relative to f16/f16 on the same device, model and test. Nothing if that was not measured.
std::optional<Estimated> over_f16(const Comparison& comparison, const Point& point) {
    if (point.cache == baseline) return std::nullopt;
    Point wanted = point;
    wanted.cache = baseline;
    const auto found = std::ranges::find_if(comparison.points, [&](const Point& other) { return same_cell(other, wanted); });
    if (found == comparison.points.end()) return std::nullopt;
    return ratio(point, *found);
}

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
    const bool seen = measured->value > 2 * measured->error.value_or(0);
    const std::string text = seen              ? with_error(*measured, 1)
                             : measured->error ? fmt::format("not above noise (± {:.1f})", *measured->error)
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

// Returns the three parts of a cell of -np.
nlohmann::ordered_json batched_row(const Comparison& all, const Point& p) {
    nlohmann::ordered_json out{
        {"column", p.device}, {"pp", p.prompt}, {"tg", p.generated}, {"pl", p.sequences}, {"n_depth", p.depth}};
    for (const Point& other : all.points)
        if (labels(other) == labels(p) && other.device == p.device) out[other.part] = other.tokens_per_second;
    return out;
}

nlohmann::ordered_json test_row(const Comparison& all, const Point& p) {
    const auto or_null = [](const std::optional<double>& value) {
        return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
    };
    const auto first = std::ranges::find(all.points, labels(p), labels); // of this row
    nlohmann::ordered_json out{{"device", p.device},
                               {"model", p.model},
                               {"cache", p.cache},
                               {"test", test_name(p)},
                               {"n_prompt", p.prompt},
                               {"n_gen", p.generated},
                               {"n_depth", p.depth},
                               {"avg_ts", p.tokens_per_second},
                               {"stddev_ts", p.deviation.value_or(0)},
                               {"checked", p.checked}};
    const auto put = [&](const std::string& name, const std::optional<Estimated>& e) {
        out[name] = or_null(e ? std::optional(e->value) : std::nullopt);
        out[name + "_error"] = or_null(e ? e->error : std::nullopt);
    };
    put("over_first_device", &*first == &p ? std::nullopt : std::optional(ratio(p, *first)));
    put("over_f16", over_f16(all, p));
    put("ns_per_depth", p.prompt == 0 ? ns_per_depth(all, p) : std::nullopt);
    out["bandwidth_share"] = or_null(p.bandwidth_share);
    out["joules_per_token"] = or_null(p.joules_per_token);
    return out;
}

// Returns the tables that follow the tables of speed: bandwidth, the cache against f16, energy, and what context costs.
std::string more_tables(const Comparison& all) {
    const std::string shares = table(all, "Share of the device's own measured bandwidth", [](const Point& p, const Point&) {
        return p.bandwidth_share ? share_text(*p.bandwidth_share) : std::string();
    });
    std::string text = shares;
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
    return text;
}

// Several devices whose names would make columns wide become numbers, which the returned lines explain.
std::string number_devices(Comparison& all) {
    constexpr size_t widest = 24;
    std::vector<std::string> names;
    for (const Point& p : all.points)
        if (std::ranges::find(names, p.device) == names.end()) names.push_back(p.device);
    const auto is_wide = [](const std::string& name) { return shown_length(name) > widest; };
    if (names.size() < 2 || std::ranges::none_of(names, is_wide)) return "";
    std::string lines;
    for (size_t i = 0; i < names.size(); i++) {
        const std::string number = fmt::format("({})", i + 1);
        for (Point& p : all.points)
            if (p.device == names[i]) p.device = number;
        lines += fmt::format("{}  {}\n", number, names[i]);
    }
    return lines + "\n";
}

} // namespace

bool same_line(const Point& a, const Point& b) {
    return a.device == b.device && a.model == b.model && a.cache == b.cache && a.kind() == b.kind() &&
           a.sequences == b.sequences && a.part == std::string_view(b.part);
}

bool same_cell(const Point& a, const Point& b) { return same_line(a, b) && a.depth == b.depth; }

std::string Point::kind() const {
    std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : "";
    if (generated > 0) text += fmt::format("{}tg{}", prompt > 0 ? "+" : "", generated);
    return text + settings;
}

std::vector<nlohmann::ordered_json> comparison_rows(const Comparison& all) {
    std::vector<nlohmann::ordered_json> rows;
    for (const Point& p : all.points)
        if (p.sequences == 0)
            rows.push_back(test_row(all, p));
        else if (p.part == std::string_view("speed"))
            rows.push_back(batched_row(all, p));
    return rows;
}

std::string comparison_table(Comparison all) {
    const std::string devices = number_devices(all);
    std::string text;
    if (all.together())
        for (const auto& [part, title] : {std::pair("speed_tg", "Generation (S_TG)"), std::pair("speed_pp", "Prompts (S_PP)"),
                                          std::pair("speed", "Both (S)")})
            text += table(only(all, [&, part = part](const Point& p) { return p.part == std::string_view(part); }),
                          fmt::format("{}, tokens per second of all sequences, ± standard deviation of the samples (and over the "
                                      "first column)",
                                      title),
                          speed_cell);
    else
        text =
            table(all, "Tokens per second, ± standard deviation of the samples (and over those of the first device)", speed_cell);
    if (text.find("(~ ") != std::string::npos) text += "~ within the noise: less than two standard errors apart\n\n";
    if (!all.together()) text += more_tables(all);
    text.insert(0, devices);
    for (const std::string& line : all.footnotes) text += line + "\n";
    return text;
}

} // namespace tq::bench
