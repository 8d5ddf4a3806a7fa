// Which plots a comparison has.
#include "base/error.h"
#include "base/printable.h"
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/svg.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <set>
#include <system_error>

namespace tq::bench {
namespace {

namespace fs = std::filesystem;

// What is plotted of a point; nothing where it has none.
using Value = std::function<std::optional<Estimated>(const Point&)>;

// "Qwen3 8B Q4_K" as "qwen3-8b-q4_k".
std::string file_part(const std::string& text) {
    std::string out;
    for (const char c : text.substr(0, 60)) {
        const auto byte = static_cast<unsigned char>(c);
        out += std::isalnum(byte) != 0 ? char(std::tolower(byte)) : c == '_' || c == '.' ? c : '-';
    }
    return out;
}

// What tells the lines of a plot of these points apart, and what all of them have in common.
struct Naming {
    std::set<std::string> devices, kinds;
    std::vector<std::string> caches, others; // in their order; others: devices and kinds

    explicit Naming(const std::vector<Point>& points) {
        const auto add = [](std::vector<std::string>& all, const std::string& one) {
            if (std::ranges::find(all, one) == all.end()) all.push_back(one);
        };
        for (const Point& p : points) {
            devices.insert(p.device);
            kinds.insert(p.kind());
            add(caches, p.cache);
            add(others, p.device + p.kind());
        }
    }
    std::string line(const Point& p) const {
        std::string name = p.cache;
        if (kinds.size() > 1) name += ", " + p.kind();
        if (devices.size() > 1) name += ", " + p.device;
        return name;
    }
    // A cache is a colour; a device, and a test, a marker and a dash. Where there is one of these alone, caches differ in them
    // too.
    Line empty_line(const Point& p) const {
        const auto colour = size_t(std::ranges::find(caches, p.cache) - caches.begin());
        const auto other = size_t(std::ranges::find(others, p.device + p.kind()) - others.begin());
        return {.name = line(p), .points = {}, .colour = colour, .shape = others.size() > 1 ? other : colour};
    }
    std::string title(std::string text) const {
        if (devices.size() == 1) text += ", " + *devices.begin();
        if (kinds.size() == 1) text += ", " + *kinds.begin();
        return text;
    }
};

Plot plot_of(std::vector<Point> points, const std::string& title, const std::string& y_label, const Value& value) {
    std::erase_if(points, [&](const Point& p) { return !value(p); });
    const Naming naming(points);
    Plot plot{naming.title(title), "tokens in the cache before (not to scale)", y_label, {}, {}};
    std::set<uint32_t> depths;
    for (const Point& p : points) depths.insert(p.depth);
    for (const uint32_t depth : depths) plot.ticks.push_back(std::to_string(depth));
    for (const Point& p : points) {
        const std::string name = naming.line(p);
        auto line = std::ranges::find(plot.lines, name, &Line::name);
        if (line == plot.lines.end()) line = plot.lines.insert(line, naming.empty_line(p));
        const Estimated y = *value(p);
        line->points.push_back({size_t(std::distance(depths.begin(), depths.find(p.depth))), y.value, y.error});
    }
    for (Line& line : plot.lines) std::ranges::sort(line.points, {}, &Mark::tick);
    return plot;
}

// A token's time by depth, to scale. Behind each line the one that is expected: from its first point on, as steep as
// expected_ns_per_depth() says.
Plot plot_of_times(const Comparison& all, const std::vector<Point>& points, const std::string& title) {
    Plot plot = plot_of(points, title, "ms per token", [](const Point& p) {
        const double ms = 1e3 / p.tokens_per_second;
        return std::optional(Estimated{ms, ms * p.deviation / p.tokens_per_second});
    });
    plot.x_label = "tokens in the cache before";
    for (const std::string& tick : plot.ticks) plot.tick_positions.push_back(std::stod(tick));
    const Naming naming(points);
    std::vector<Line> lines;
    for (Line& measured : plot.lines) {
        const auto point = std::ranges::find_if(points, [&](const Point& p) { return naming.line(p) == measured.name; });
        const auto slope = expected_ns_per_depth(all, *point);
        const size_t first_tick = measured.points.front().tick, last_tick = measured.points.back().tick;
        const double first_ms = measured.points.front().value;
        Line expected{.name = fmt::format("{}, expected: {:.0f} ns per token of context", measured.name, slope.value_or(0)),
                      .points = {},
                      .colour = measured.colour,
                      .expected = true};
        lines.push_back(std::move(measured));
        if (!slope || first_tick == last_tick) continue;
        const double last_ms = first_ms + *slope * 1e-6 * (plot.tick_positions[last_tick] - plot.tick_positions[first_tick]);
        expected.points = {{first_tick, first_ms}, {last_tick, last_ms}};
        lines.push_back(std::move(expected));
    }
    plot.lines = std::move(lines);
    return plot;
}

void write(const fs::path& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file) fail("cannot write {}: choose another directory with --plots", printable(path.string(), 200));
}

// Writes plots into a directory, each under a name of its own.
class Writer {
  public:
    explicit Writer(const fs::path& directory) : directory_(directory) {
        std::error_code error;
        fs::create_directories(directory, error);
        if (error) fail("cannot make the directory {}: {}", printable(directory.string(), 200), error.message());
    }

    void add(const Plot& plot, const char* name, const std::string& model) {
        if (plot.lines.empty()) return;
        const std::string stem = std::string(name) + "-" + file_part(model);
        fs::path path = directory_ / (stem + ".svg");
        for (int i = 2; std::ranges::find(written, path) != written.end(); i++) // of a model of nearly the same name
            path = directory_ / fmt::format("{}-{}.svg", stem, i);
        write(path, to_svg(plot));
        written.push_back(path);
    }
    std::vector<fs::path> written;

  private:
    const fs::path directory_;
};

} // namespace

std::vector<fs::path> write_plots(const Comparison& comparison, const fs::path& directory) {
    Writer out(directory);
    std::vector<std::string> models;
    for (const Point& point : comparison.points)
        if (std::ranges::find(models, point.model) == models.end()) models.push_back(point.model);
    for (const std::string& model : models) {
        std::vector<Point> prompts, generated;
        for (const Point& point : comparison.points)
            if (point.model == model) (point.prompt > 0 ? prompts : generated).push_back(point);
        const Value speed = [](const Point& p) { return std::optional(Estimated{p.tokens_per_second, p.deviation}); };
        const Value ratio = [&](const Point& p) { return over_f16(comparison, p); };
        const Value share = [](const Point& p) {
            const bool known = p.bandwidth_share && *p.bandwidth_share <= 1; // or the limit was mis-measured
            return known ? std::optional(Estimated{100 * *p.bandwidth_share, 0}) : std::nullopt;
        };
        out.add(plot_of(prompts, model + ": reading of prompts", "tokens per second", speed), "prompt", model);
        out.add(plot_of(generated, model + ": generation", "tokens per second", speed), "generation", model);
        out.add(plot_of_times(comparison, generated, model + ": time of a token"), "time", model);
        out.add(plot_of(generated, model + ": share of the measured bandwidth", "% of what the device reads at best", share),
                "bandwidth", model);
        out.add(plot_of(generated, model + ": speed over that with a cache of f16", "times as fast as f16/f16", ratio),
                "over-f16", model);
    }
    return out.written;
}

} // namespace tq::bench
