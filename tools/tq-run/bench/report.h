// Results on standard output, as they come: a table, CSV, or JSON.
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

class Reporter {
  public:
    explicit Reporter(Format format) : format_(format) {}

    void add(const Setup& setup, const Result& result, const std::optional<Limits>& limits);
    void finish(); // what comes after the last result; also where there was none

  private:
    void add_row(const Setup& setup, const Result& result);
    void add_footer(const Setup& setup, const Result& result, const std::optional<Limits>& limits);

    Format format_;
    bool begun_ = false;
    Json results_ = Json::array();
    std::vector<std::string> footer_; // lines, each once
};

// The kernels of a result as a table with shares of what the device can do.
std::string kernel_table(const Result& result, const std::optional<Limits>& limits);

// Rows of cells as a markdown table, padded so that it can be read as it is; columns from `first_number` on are aligned right.
std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t first_number);

} // namespace tq::bench
