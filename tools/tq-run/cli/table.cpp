// Tables are Markdown that can be read in a terminal as it is. Lengths count characters and not bytes, since names and "±" are
// not ASCII. A bar within a cell would begin another cell, so it becomes a slash.
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sstream>

namespace tq {
namespace {

// Replaces bars, which would begin another cell.
std::string without_bars(std::string text) {
    std::ranges::replace(text, '|', '/');
    return text;
}

// The lines of a cell, none wider than `width` but a longer word.
std::vector<std::string> lines_of(const std::string& cell, size_t width) {
    std::vector<std::string> lines;
    std::istringstream words(cell);
    for (std::string word; words >> word;) {
        if (lines.empty() || shown_length(lines.back()) + 1 + shown_length(word) > width)
            lines.push_back(word);
        else
            lines.back() += ' ' + word;
    }
    return lines;
}

size_t longest_word(const std::string& cell) {
    size_t longest = 0;
    for (const std::string& word : lines_of(cell, 0)) longest = std::max(longest, shown_length(word));
    return longest;
}

// Breaks cells between words into rows of their own, so that each row is narrower than `columns`, if that is possible. The widest
// column gives way first. Returns how many rows the first one has become.
size_t narrow(std::vector<std::vector<std::string>>& rows, size_t columns) {
    const size_t count = std::ranges::max(rows, {}, [](const auto& cells) { return cells.size(); }).size();
    std::vector<size_t> widths(count, 3), least(count, 3);
    for (const auto& cells : rows)
        for (size_t i = 0; i < cells.size(); i++) {
            widths[i] = std::max(widths[i], shown_length(cells[i]));
            least[i] = std::max(least[i], longest_word(cells[i]));
        }
    size_t width = 1;
    for (const size_t column : widths) width += column + 3;
    if (width < columns) return 1;
    for (; width >= columns; width--) {
        size_t widest = count;
        for (size_t i = 0; i < count; i++)
            if (widths[i] > least[i] && (widest == count || widths[i] > widths[widest])) widest = i;
        if (widest == count) return 1; // it would be too wide all the same
        widths[widest]--;
    }
    std::vector<std::vector<std::string>> broken;
    size_t heads = 0;
    for (const auto& cells : rows) {
        const size_t from = broken.size();
        for (size_t i = 0; i < cells.size(); i++) {
            const auto lines = lines_of(cells[i], widths[i]);
            while (broken.size() < from + std::max<size_t>(lines.size(), 1)) broken.emplace_back(count);
            for (size_t line = 0; line < lines.size(); line++) broken[from + line][i] = lines[line];
        }
        if (heads == 0) heads = broken.size();
    }
    rows = std::move(broken);
    return heads;
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

std::string markdown(std::vector<std::vector<std::string>> rows, size_t first, uint32_t columns) {
    const size_t heads = columns == 0 ? 1 : narrow(rows, columns);
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
        if (r + 1 == heads) text += table_rule(widths);
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
