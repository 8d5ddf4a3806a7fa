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
using Value = std::function<std::optional<double>(const Point&)>;

// "Qwen3 8B Q4_K" as "qwen3-8b-q4_k".
std::string file_part(const std::string& text) {
    std::string out;
    for (const char c : text.substr(0, 60)) {
        const auto byte = static_cast<unsigned char>(c);
        out += std::isalnum(byte) != 0 ? char(std::tolower(byte)) : c == '_' || c == '.' ? c : '-';
    }
    return out;
}

Plot plot_of(const std::vector<Point>& points, const std::string& title, const std::string& y_label, const Value& value) {
    Plot plot{title, "tokens in the cache before (not to scale)", y_label, {}, {}};
    std::set<uint32_t> depths;
    std::set<std::string> devices, kinds;
    for (const Point& p : points)
        if (value(p)) {
            depths.insert(p.depth);
            devices.insert(p.device);
            kinds.insert(p.kind());
        }
    for (const uint32_t depth : depths) plot.ticks.push_back(std::to_string(depth));
    for (const Point& p : points) {
        const auto y = value(p);
        if (!y) continue;
        std::string name = p.cache;
        if (kinds.size() > 1) name = p.kind() + ", " + name;
        if (devices.size() > 1) name = p.device + ", " + name;
        auto line = std::ranges::find(plot.lines, name, &Line::name);
        if (line == plot.lines.end()) line = plot.lines.insert(line, Line{name, {}});
        line->points.emplace_back(size_t(std::distance(depths.begin(), depths.find(p.depth))), *y);
    }
    for (Line& line : plot.lines) std::ranges::sort(line.points);
    if (devices.size() == 1) plot.title += ", " + *devices.begin();
    if (kinds.size() == 1) plot.title += ", " + *kinds.begin();
    return plot;
}

void write(const fs::path& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file) fail("cannot write {}: choose another directory with --plots", printable(path.string(), 200));
}

} // namespace

std::vector<fs::path> write_plots(const Comparison& comparison, const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) fail("cannot make the directory {}: {}", printable(directory.string(), 200), error.message());
    std::vector<fs::path> out;
    const auto add = [&](const std::vector<Point>& points, const std::string& model, const char* name, const char* title,
                         const char* y_label, const Value& value) {
        const Plot plot = plot_of(points, model + ": " + title, y_label, value);
        if (plot.lines.empty()) return;
        const std::string stem = std::string(name) + "-" + file_part(model);
        fs::path path = directory / (stem + ".svg");
        for (int i = 2; std::ranges::find(out, path) != out.end(); i++) // of a model of nearly the same name
            path = directory / fmt::format("{}-{}.svg", stem, i);
        write(path, to_svg(plot));
        out.push_back(path);
    };
    std::vector<std::string> models;
    for (const Point& point : comparison.points)
        if (std::ranges::find(models, point.model) == models.end()) models.push_back(point.model);
    for (const std::string& model : models) {
        std::vector<Point> prompts, generated;
        for (const Point& point : comparison.points)
            if (point.model == model) (point.prompt ? prompts : generated).push_back(point);
        const Value speed = [](const Point& p) { return std::optional(p.tokens_per_second); };
        const Value ratio = [&](const Point& p) { return over_f16(comparison, p); };
        add(prompts, model, "prompt", "reading of prompts", "tokens per second", speed);
        add(generated, model, "generation", "generation", "tokens per second", speed);
        add(generated, model, "bandwidth", "share of the measured bandwidth", "% of what the device reads at best",
            [](const Point& p) { return p.bandwidth_share ? std::optional(100 * *p.bandwidth_share) : std::nullopt; });
        add(generated, model, "over-f16", "speed over that with a cache of f16", "times as fast as f16/f16", ratio);
    }
    return out;
}

} // namespace tq::bench
