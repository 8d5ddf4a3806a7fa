// The report of a conformance run: a table for people, JSON for bug reports, JUnit for continuous integration.
#pragma once
#include "tools/check/conformance/runner.h"

namespace tq::conformance {

struct Report {
    std::string program; // "tq-run 0.1.0 (gcc 12.2.0, release)"
    std::vector<std::string> command_line;
    std::string profile;
    uint64_t seed = 1;
    bool every_row = true; // whether all rows were to be run: no filter, no shard
    std::vector<DeviceReport> devices;

    bool passed() const;
    bool nothing_tested() const; // on some device, and no other failed
};

// The table, line by line as rows come in: one for each kernel and variant, and one for each row that failed.
class Table {
  public:
    // `again`: the command that runs a row once more, without its name. `columns`: of the terminal; 0: it is none.
    Table(bool every_row, std::string again, uint32_t columns = 0)
        : every_row_(every_row), again_(std::move(again)), columns_(columns) {}

    static std::string header(uint32_t columns = 0); // of the columns, with the meaning of their words

    std::string add(size_t index, const std::vector<RowResult>& rows); // called when row `index` is done
    std::string finish(const std::vector<RowResult>& rows);            // called for a run that ended early

  private:
    bool every_row_;
    std::string again_;
    uint32_t columns_;
    size_t group_ = 0; // where the open group begins
};

// The environment variables that change the behaviour of a Vulkan loader, of a driver or of this program: an object,
// without passwords and keys, since people send it with their reports.
Json driver_environment();
std::string heading(const DeviceReport& device); // name, driver and version
std::string summary(const Report& report);       // counts, and the verdict
Json to_json(const Report& report);
std::string to_junit(const Report& report);

} // namespace tq::conformance
