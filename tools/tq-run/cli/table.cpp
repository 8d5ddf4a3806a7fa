// Tables are Markdown that can be read in a terminal as it is. Lengths count characters and not bytes, since names and "±" are
// not ASCII. A bar within a cell would begin another cell, so it becomes a slash.
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace tq {
namespace {

// Replaces bars, which would begin another cell.
std::string without_bars(std::string text) {
    std::ranges::replace(text, '|', '/');
    return text;
}

} // namespace

std::string size_text(uint64_t bytes, int mib_digits) {
    const double mib = double(bytes) / (1 << 20);
    return mib < 1024 ? fmt::format("{:.{}f} MiB", mib, mib_digits) : fmt::format("{:.2f} GiB", mib / 1024);
}

size_t shown_length(std::string_view text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string table_row(const std::vector<std::string>& cells, const std::vector<int>& widths) {
    std::string text = "|";
    for (size_t i = 0; i < cells.size(); i++) {
        const std::string cell = without_bars(cells[i]);
        text += widths[i] < 0 ? fmt::format(" {:<{}} |", cell, -widths[i]) : fmt::format(" {:>{}} |", cell, widths[i]);
    }
    return text + "\n";
}

std::string table_rule(const std::vector<int>& widths) {
    std::string text = "|";
    for (const int width : widths) text += std::string(size_t(std::abs(width)) + 1, '-') + (width < 0 ? "-|" : ":|");
    return text + "\n";
}

std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t first) {
    std::vector<int> widths;
    for (const auto& cells : rows)
        for (size_t i = 0; i < cells.size(); i++) {
            if (i == widths.size()) widths.push_back(3);
            widths[i] = std::max(widths[i], int(shown_length(cells[i])));
        }
    for (size_t i = 0; i < std::min(first, widths.size()); i++) widths[i] = -widths[i];
    std::string text;
    for (size_t r = 0; r < rows.size(); r++) {
        std::vector<std::string> cells = rows[r];
        cells.resize(widths.size());
        text += table_row(cells, widths);
        if (r == 0) text += table_rule(widths);
    }
    return text;
}

// A column that is left out becomes empty cells, so that indices stay.
std::string aligned(std::vector<std::vector<std::string>> rows, size_t first, uint32_t columns,
                    const std::vector<size_t>& spare) {
    const size_t padded = rows.at(0).size();
    std::vector<std::string> lines;
    for (auto left_out = spare.begin();; ++left_out) {
        std::vector<size_t> widths(padded);
        for (const auto& cells : rows)
            for (size_t i = 0; i < std::min(cells.size(), padded); i++) widths[i] = std::max(widths[i], shown_length(cells[i]));
        lines.assign(rows.size(), "");
        for (size_t r = 0; r < rows.size(); r++)
            for (size_t i = 0; i < rows[r].size(); i++) {
                const std::string& cell = rows[r][i];
                if (i < padded ? widths[i] == 0 : cell.empty()) continue;
                const std::string padding(i < padded ? widths[i] - shown_length(cell) : 0, ' ');
                if (!lines[r].empty()) lines[r] += "  ";
                lines[r] += i < first ? cell + padding : padding + cell;
            }
        const bool fits = columns == 0 || std::ranges::all_of(lines, [&](const auto& l) { return shown_length(l) < columns; });
        if (fits || left_out == spare.end()) break;
        for (auto& cells : rows)
            if (*left_out < cells.size()) cells[*left_out].clear();
    }
    std::string text;
    for (const std::string& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    return text;
}

// Two digits of the error decide the places of the value. Below 0.01 both get the same power of ten, so that they can be compared
// at a glance.
std::string with_error(const quality::Estimate& e, std::string_view unit) {
    const std::string ending = unit.empty() ? "" : fmt::format(" {}", unit);
    const double size = std::max(std::fabs(e.value), e.error);
    if (size == 0) return fmt::format("0{}", ending);
    const bool fixed = size >= 0.01;
    const int exponent = fixed ? 0 : int(std::floor(std::log10(size)));
    const double scale = std::pow(10.0, -exponent), value = e.value * scale, error = e.error * scale;
    // A single value has no error: it gets four digits.
    const int places = e.error > 0 ? std::clamp(1 - int(std::floor(std::log10(error))), 0, 8)
                                   : std::clamp(3 - int(std::floor(std::log10(std::fabs(value)))), 0, 8);
    std::string text = fmt::format("{:.{}f}", value, places);
    if (e.error > 0) text += fmt::format(" ± {:.{}f}", error, places);
    if (!fixed) text = e.error > 0 ? fmt::format("({})e{:+03}", text, exponent) : fmt::format("{}e{:+03}", text, exponent);
    return text + ending;
}

} // namespace tq
