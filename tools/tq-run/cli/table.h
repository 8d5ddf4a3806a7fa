// Tables and measured numbers as text, for people.
#pragma once
#include "tools/check/quality/divergence.h"
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// Rows of cells as a markdown table, padded to be readable as plain text; columns from `first_number` on are aligned right. If a
// row is as wide as a terminal of `columns` (0: any width), cells are broken between words into several lines, as far as needed.
std::string markdown(std::vector<std::vector<std::string>> rows, size_t first_number, uint32_t columns = 0);

// A row whose cells have at least these widths, for tables that grow row by row; negative: aligned left.
std::string table_row(const std::vector<std::string>& cells, const std::vector<int>& widths);
std::string table_rule(const std::vector<int>& widths);

// Returns rows of cells as plain text: columns are as wide as their widest cell, and aligned left before `first_number`. The
// first row sets the number of columns; further cells are notes, which are not padded. If a row is as wide as a terminal of
// `columns` (0: any width), the columns in `spare` are left out, in this order, as far as needed.
std::string aligned(std::vector<std::vector<std::string>> rows, size_t first_number, uint32_t columns,
                    const std::vector<size_t>& spare);

// "604.2 MiB", and from 1 GiB on "23.42 GiB".
std::string size_text(uint64_t bytes, int mib_digits = 1);

size_t shown_length(std::string_view text); // in characters of UTF-8

// "2.0779 ± 0.0012", "(1.93 ± 0.28)e-03", "97.85 ± 0.31 %": two digits of the error, which has the same unit and exponent.
std::string with_error(const quality::Estimate& estimate, std::string_view unit = "");

} // namespace tq
