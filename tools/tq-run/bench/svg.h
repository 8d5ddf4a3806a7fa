// Line plots as SVG: plain, with axes that say their units, and lines that differ in colour, marker and dash; light or dark as
// the viewer is.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tq::bench {

struct Line {
    std::string name;
    std::vector<std::pair<size_t, double>> points; // index of the tick on the x axis, value from 0 on
    bool expected = false;                         // what the line before it should be: thin, in its colour, without markers
};

struct Plot {
    std::string title, x_label, y_label;
    std::vector<std::string> ticks; // of the x axis, at equal distances
    std::vector<Line> lines;
    std::vector<double> tick_positions = {}; // where the ticks are not at equal distances, but to scale: from 0 on, rising
};

std::string to_svg(const Plot& plot);

} // namespace tq::bench
