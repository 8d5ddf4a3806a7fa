// Prints results as they arrive: as a table, CSV, JSON or SQL.
#pragma once
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/table.h"
#include <nlohmann/json.hpp>

namespace tq::bench {

class Reporter {
  public:
    using Write = std::function<void(std::string_view)>;

    // The table has the columns that tell the rows of `arguments` apart.
    Reporter(const Arguments& arguments, Format format, Write write)
        : arguments_(arguments), format_(format), write_(std::move(write)) {}

    void add(const Subject& subject, const Result& result, const std::optional<Limits>& limits);
    void finish(); // prints the text after the last result; also where there was none

  private:
    // Rows arrive one by one, before the rest is known: unknown widths are those of common values.
    struct Column {
        const char* name;
        int width; // negative: aligned left
        std::function<std::string(const Subject&, const Result&)> cell;
    };
    std::vector<Column> columns(const Subject& first) const;
    std::string model_cell(const Subject& subject) const;
    std::string device_cell(const Subject& subject) const;
    void add_row(const Subject& subject, const Result& result);
    void add_footer(const Subject& subject, const Result& result, const std::optional<Limits>& limits);

    const Arguments& arguments_;
    const Format format_;
    const Write write_;
    bool begun_ = false;
    std::vector<Column> columns_;
    std::vector<int> widths_; // of the columns
    Json results_ = Json::array();
    std::vector<std::string> footer_; // lines, each once
};

// The kernels of a result as a table with shares of the device's limits.
std::string kernel_table(const Result& result, const std::optional<Limits>& limits);

// "97.3 %"; above 1 "> 100 % *", which `beyond_limit` explains.
std::string share_text(double share);
inline constexpr const char* beyond_limit =
    "* more than the device was measured to read: caches served it, or that measurement was too slow\n";

} // namespace tq::bench
