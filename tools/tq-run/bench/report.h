// Prints rows as they are measured: as a table, CSV, JSON, JSON lines or SQL.
#pragma once
#include "tools/tq-run/bench/arguments.h"
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tq::bench {

using Json = nlohmann::ordered_json;

struct Row {
    Json fields;            // by their names, in the order in which files have them
    std::string place = {}; // the device with its driver, for people; empty: the CPU
};

struct Column {
    std::string name;
    int width; // at least, of tables that grow row by row; negative: aligned left; 0 in all: as wide as the widest cell
    std::function<std::string(const Row&)> cell;
    bool is_constant = false; // the same in all rows: it stands above a table that is wider than the terminal
};

// The form of rows for people, and in files.
struct Layout {
    std::function<std::vector<Column>(const Row& first)> columns;   // none: the headings are all
    size_t first_number = 0;                                        // columns from here on are aligned right, if their width is 0
    std::function<std::string(const Row&)> heading = {};            // rows of one heading are one table
    std::function<std::string(const std::vector<Row>&)> notes = {}; // the text below all tables
    const char* list = nullptr; // JSON is describe_machine() with the rows as its member of this name; null: a list of the rows
};

class Reporter {
  public:
    using Write = std::function<void(std::string_view)>;

    // `terminal`: its width in columns; 0: none.
    Reporter(Layout layout, Format format, Write write, uint32_t terminal = 0)
        : layout_(std::move(layout)), format_(format), write_(std::move(write)), terminal_(terminal) {}

    void add(Row row);
    void finish(); // prints the text after the last row; also if there was none

  private:
    void show(const Row& row);
    void fit(const Row& row);
    void end_table();

    const Layout layout_;
    const Format format_;
    const Write write_;
    const uint32_t terminal_;
    std::vector<Row> rows_;
    std::vector<Column> columns_;
    std::vector<int> widths_;                     // of the columns; empty: not known before the table's end
    std::string heading_;                         // of the table that is being printed
    std::vector<std::vector<std::string>> cells_; // of that table, if its widths are not known
};

// The reporters of -o and of -oe.
class Reporters {
  public:
    Reporters(const Arguments& arguments, const Layout& layout);
    void add(const Row& row);
    void finish();

  private:
    std::vector<Reporter> all_;
};

// "97.3 %"; above 1 "> 100 % *", which `beyond_limit` explains; empty for null.
std::string share_text(const Json& share);
inline constexpr const char* beyond_limit =
    "* more than the device was measured to read: caches served it, or that measurement was too slow\n";

} // namespace tq::bench
