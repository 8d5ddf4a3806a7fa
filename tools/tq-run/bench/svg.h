// Line plots as SVG: plain, with axes that say their units, error bars, and lines that differ in colour, and in marker and dash;
// light or dark as the viewer is.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace tq::bench {

struct Mark {
    size_t tick; // index on the x axis
    double value, error = 0;
};

struct Line {
    std::string name;
    std::vector<Mark> points;     // values from 0 on
    size_t colour = 0, shape = 0; // shape: of markers and dashes
    bool expected = false;        // what the line before it should be: thin, in its colour, without markers
};

struct Plot {
    std::string title, x_label, y_label;
    std::vector<std::string> ticks; // of the x axis, at equal distances
    std::vector<Line> lines;
    std::vector<double> tick_positions = {}; // where the ticks are not at equal distances, but to scale: from 0 on, rising
};

std::string to_svg(const Plot& plot);

} // namespace tq::bench
