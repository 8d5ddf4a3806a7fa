// Writes rows in one format as they come: md and csv and sql line by line, json at the end as one list, jsonl by lines. Limits,
// kernels and speculation are no lists of tests: they are one JSON object with the machine and the list. A markdown table whose
// columns have widths grows row by row; one without waits for all rows, to be aligned. sql has llama-bench's fields alone, which
// come first in a row, so the first structured field ends them.
#include "tools/tq-run/bench/report.h"
#include "base/terminal.h"
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/cli/table.h"
#include <cstdlib>
#include <fmt/ranges.h>

namespace tq::bench {
namespace {

// "" for null; a truth value is 1 or 0, as in llama-bench.
std::string plain(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string quoted(const std::string& text, char quote) {
    std::string out(1, quote);
    for (const char c : text) out += c == quote ? std::string(2, quote) : std::string(1, c);
    return out + quote;
}

// Returns all fields that are no lists or objects. Fields of "model" and "device" get names such as model_layers.
std::vector<std::pair<std::string, std::string>> flat(const Json& row) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& [key, value] : row.items()) {
        if (!value.is_structured()) out.emplace_back(key, plain(value));
        if (!value.is_object() || (key != "model" && key != "device")) continue;
        for (const auto& [inner, part] : value.items()) out.emplace_back(key + "_" + inner, plain(part));
    }
    if (row.contains("test_time")) // measured here, and perhaps checked
        out.emplace_back("check_error", row.contains("check") ? plain(row.at("check").at("error")) : "");
    return out;
}

// Each value is quoted.
std::string csv(const Json& row, bool first) {
    std::vector<std::string> names, values;
    for (const auto& [name, value] : flat(row)) {
        names.push_back(name);
        values.push_back(quoted(value, '"'));
    }
    return fmt::format("{}{}\n", first ? fmt::format("{}\n", fmt::join(names, ",")) : "", fmt::join(values, ","));
}

// Writes a table named llama_bench with llama-bench's fields alone (all before the first list), so that results can go into a
// database that llama-bench has begun.
std::string sql(const Json& row, bool first) {
    std::vector<std::string> names, types, values;
    for (const auto& [name, value] : row.items()) {
        if (value.is_structured()) break;
        names.push_back(name);
        types.push_back(fmt::format("  {} {}", name, value.is_string() ? "TEXT" : value.is_number_float() ? "REAL" : "INTEGER"));
        values.push_back(quoted(plain(value), '\''));
    }
    return (first ? fmt::format("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", fmt::join(types, ",\n")) : "") +
           fmt::format("INSERT INTO llama_bench ({}) VALUES ({});\n", fmt::join(names, ", "), fmt::join(values, ", "));
}

} // namespace

void Reporter::add(Row row) {
    rows_.push_back(std::move(row));
    const Json& fields = rows_.back().fields;
    const bool first = rows_.size() == 1;
    if (format_ == Format::markdown) show(rows_.back());
    if (format_ == Format::csv) write_(csv(fields, first));
    if (format_ == Format::sql) write_(sql(fields, first));
    if (format_ == Format::jsonl && layout_.list == nullptr) write_(fields.dump() + "\n");
}

// Takes what is the same in all rows out of a table that is wider than the terminal.
// It is decided at the first row, as rows are written when they come: a table cannot change its columns later.
void Reporter::fit(const Row& row) {
    size_t width = 1;
    for (const Column& column : columns_) width += size_t(std::abs(column.width)) + 3;
    if (width <= terminal_ || terminal_ == 0) return;
    std::vector<std::string> constants;
    for (const Column& column : columns_)
        if (column.is_constant) constants.push_back(fmt::format("{} {}", column.name, column.cell(row)));
    std::erase_if(columns_, [](const Column& column) { return column.is_constant; });
    if (!constants.empty()) write_(fmt::format("{}\n\n", fmt::join(constants, ", ")));
}

// A new heading (another model, device or cache) ends the table and begins another.
void Reporter::show(const Row& row) {
    const bool first = rows_.size() == 1;
    const std::string heading = layout_.heading ? layout_.heading(row) : "";
    if (first && layout_.columns) columns_ = layout_.columns(row), fit(row);
    if (first || heading != heading_) {
        end_table();
        if (!heading.empty()) write_((first || columns_.empty() ? "" : "\n") + heading + (columns_.empty() ? "\n" : "\n\n"));
        heading_ = heading;
        widths_.clear();
        std::vector<std::string>& names = cells_.emplace_back();
        for (const Column& column : columns_) {
            names.push_back(column.name);
            if (column.width != 0) widths_.push_back(column.width);
        }
        if (!widths_.empty()) write_(table_row(names, widths_) + table_rule(widths_));
    }
    std::vector<std::string>& cells = cells_.emplace_back();
    for (const Column& column : columns_) cells.push_back(column.cell(row));
    if (!widths_.empty()) write_(table_row(cells, widths_));
}

void Reporter::end_table() {
    if (widths_.empty() && !columns_.empty() && !cells_.empty()) write_(markdown(cells_, layout_.first_number));
    cells_.clear();
}

void Reporter::finish() {
    if (format_ == Format::markdown) {
        end_table();
        if (!rows_.empty() && layout_.notes) write_(layout_.notes(rows_));
    }
    if (format_ != Format::json && (format_ != Format::jsonl || layout_.list == nullptr)) return;
    Json list = Json::array();
    for (Row& row : rows_) list.push_back(std::move(row.fields));
    Json all = layout_.list == nullptr ? list : describe_machine();
    if (layout_.list != nullptr) all[layout_.list] = std::move(list);
    write_(all.dump(format_ == Format::json ? 1 : -1) + "\n");
}

Reporters::Reporters(const Arguments& arguments, const Layout& layout) {
    const bool is_text = arguments.output() == Format::markdown;
    all_.emplace_back(layout, arguments.output(), is_text ? write_text : write_output, terminal_columns(Stream::output));
    if (const auto format = arguments.error_output())
        all_.emplace_back(layout, *format, write_error, terminal_columns(Stream::error));
}

void Reporters::add(const Row& row) {
    for (Reporter& reporter : all_) reporter.add(row);
}

void Reporters::finish() {
    for (Reporter& reporter : all_) reporter.finish();
}

std::string share_text(const Json& share) {
    if (share.is_null()) return "";
    const double value = share.get<double>();
    return value > 1 ? "> 100 % *" : fmt::format("{:.1f} %", 100 * value);
}

} // namespace tq::bench
