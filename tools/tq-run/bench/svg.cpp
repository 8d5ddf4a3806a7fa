#include "tools/tq-run/bench/svg.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace tq::bench {
namespace {

// Pixels of the plot itself, and of what is around it.
constexpr double width = 560, height = 340, left = 80, top = 48, legend = 400, below = 64, legend_step = 22;

// Okabe and Ito's colours, which colour-blind people can tell apart (jfly.uni-koeln.de/color), but for the yellow, which is too
// pale on white, and black.
constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
constexpr std::array dashes{"none", "7 4", "2 3"};
constexpr const char* expected_dash = "4 3";
constexpr double label_width = 9; // of a digit, with what keeps labels apart

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else
            out += c;
    }
    return out;
}

// A name as the legend has room for it: what distinguishes it is at its ends.
std::string elided(const std::string& name) {
    constexpr size_t most = 48, end = 22;
    return name.size() <= most ? name : name.substr(0, most - end - 3) + "..." + name.substr(name.size() - end);
}

// 1, 2 or 5 times a power of ten, so that about five of them reach `most`.
double nice_step(double most) {
    const double raw = std::max(most, 1e-9) / 5, power = std::pow(10, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= raw * 0.999) return factor * power;
    return 10 * power;
}

std::string marker(size_t kind, double x, double y) {
    constexpr double r = 4.5;
    switch (kind % 4) {
    case 0: return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", x, y, r);
    case 1: return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>", x - r, y - r, 2 * r, 2 * r);
    case 2: return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}h{}z\"/>", x, y - r, r, 2 * r, -2 * r);
    default: return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}l{} {}l{} {}z\"/>", x, y - r, r, r, -r, r, -r, -r);
    }
}

class Drawing {
  public:
    explicit Drawing(const Plot& plot) : plot_(plot) {
        double most = 0;
        for (const Line& line : plot.lines)
            for (const Mark& mark : line.points) most = std::max(most, mark.value + mark.error);
        step_ = nice_step(most);
        most_ = std::max(std::ceil(most / step_ - 1e-9), 1.0) * step_;
    }

    std::string draw() {
        const double all_height = top + std::max(height + below, legend_step * double(plot_.lines.size() + 1));
        out_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
            "<title>{2}</title>\n{3}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
            left + width + legend, all_height, escaped(plot_.title), style);
        text(left, 26, "start", plot_.title, "title");
        axes();
        for (size_t i = 0; i < plot_.lines.size(); i++) line(i);
        return out_ + "</svg>\n";
    }

  private:
    static constexpr const char* style =
        "<style>\n.paper{fill:#fff}text{font:13px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}\n"
        ".grid{stroke:#ddd}.axis{stroke:#222}\n"
        "@media (prefers-color-scheme:dark){.paper{fill:#16181c}text{fill:#e4e4e4}.grid{stroke:#3a3d44}.axis{stroke:#e4e4e4}}\n"
        "</style>\n";

    double x_at(size_t tick) const {
        if (!plot_.tick_positions.empty())
            return left + width * plot_.tick_positions[tick] / std::max(plot_.tick_positions.back(), 1.0);
        const auto count = double(plot_.ticks.size());
        return left + width * (double(tick) + 0.5) / count;
    }
    double y_at(double value) const { return top + height * (1 - value / most_); }

    void text(double x, double y, const char* anchor, const std::string& content, const char* css = "",
              const std::string& more = "") {
        out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\"{}>{}</text>\n", x, y, anchor, css,
                            more, escaped(content));
    }
    void rule(double x1, double y1, double x2, double y2, const char* css) {
        out_ +=
            fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", css, x1, y1, x2, y2);
    }

    void axes() {
        for (int i = 0; i * step_ <= most_ * 1.0001; i++) {
            rule(left, y_at(i * step_), left + width, y_at(i * step_), i == 0 ? "axis" : "grid");
            text(left - 8, y_at(i * step_) + 4, "end", fmt::format("{:g}", i * step_));
        }
        rule(left, top, left, top + height, "axis");
        double free_from = 0; // of the labels, which may be denser than they are wide
        for (size_t i = 0; i < plot_.ticks.size(); i++) {
            rule(x_at(i), top + height, x_at(i), top + height + 5, "axis");
            const double half = label_width / 2 * double(plot_.ticks[i].size());
            if (x_at(i) - half < free_from) continue;
            text(x_at(i), top + height + 20, "middle", plot_.ticks[i]);
            if (!plot_.tick_positions.empty()) free_from = x_at(i) + half;
        }
        text(left + width / 2, top + height + 46, "middle", plot_.x_label);
        const double middle = top + height / 2;
        text(20, middle, "middle", plot_.y_label, "", fmt::format(" transform=\"rotate(-90 20 {:.1f})\"", middle));
    }

    std::string error_bar(const Mark& mark) const {
        if (mark.error <= 0) return "";
        const double top = y_at(mark.value + mark.error), bottom = y_at(std::max(mark.value - mark.error, 0.0));
        return fmt::format("M{0:.1f} {1:.1f}h6m-3 0V{2:.1f}m-3 0h6", x_at(mark.tick) - 3, top, bottom);
    }

    void line(size_t i) {
        const Line& line = plot_.lines[i];
        const char* colour = colours[line.colour % colours.size()];
        const char* dash = line.expected ? expected_dash : dashes[line.shape % dashes.size()];
        std::string path, markers, bars;
        for (const Mark& mark : line.points) {
            path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x_at(mark.tick), y_at(mark.value));
            if (!line.expected) markers += marker(line.shape, x_at(mark.tick), y_at(mark.value));
            bars += error_bar(mark);
        }
        if (!bars.empty()) out_ += fmt::format("<path class=\"error\" fill=\"none\" stroke=\"{}\" d=\"{}\"/>\n", colour, bars);
        const double x = left + width + 24, y = top + 12 + legend_step * double(i);
        // Markers that one can see through: equal series do not hide each other.
        out_ += fmt::format("<g fill=\"{0}\" fill-opacity=\"0.5\" stroke=\"{0}\"><path fill=\"none\" stroke-width=\"{1}\" "
                            "stroke-dasharray=\"{2}\" "
                            "d=\"{3}M{4:.1f} {5:.1f}h28\"/>{6}{7}</g>\n",
                            colour, line.expected ? 1 : 2, dash, path, x, y, markers,
                            line.expected ? "" : marker(line.shape, x + 14, y));
        text(x + 36, y + 4, "start", elided(line.name));
    }

    const Plot& plot_;
    double step_, most_;
    std::string out_;
};

} // namespace

std::string to_svg(const Plot& plot) { return Drawing(plot).draw(); }

} // namespace tq::bench
