// The process that runs rows: a driver may kill it without ending the process that reports. It writes JSON, one object a line:
//   {"device": {...}, "rows": [[kernel, variant, shape], ...], "unmatched": [filters]}   once the device is open
//   {"begin": 7}                                                 before row 7, and each time that it is repeated, then
//   {"row": 7, "verdict": "passed", "error": ..., "limit": ..., "reason": "", "ms": 12.5, "dispatches": [...]}, or with
//   "no_memory": true if it failed for want of memory; "dispatches" as Evidence writes them
//   {"dump": "the folder"}                                       instead, if the row is recorded because it ended a worker
//   {"end": true}, or {"failed": "why the device cannot be used"}
// Any other output is that of a driver or a layer.
#pragma once
#include "runtime/capabilities.h"
#include "tools/check/conformance/selection.h"
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tq::conformance {

using Json = nlohmann::ordered_json;

struct WorkerOptions {
    std::string device; // as Device takes it
    Selection selection;
    std::filesystem::path model;
    uint64_t seed = 1;
    size_t first = 0;                                  // of the rows that are selected
    bool record = false;                               // run the first row alone, and write its data before each kernel
    uint32_t repeat = 1;                               // times that a row is run, unless it fails before
    std::filesystem::path dump;                        // the directory for the data of failed rows; empty: none
    std::function<Json(const Capabilities&)> describe; // returns the description of a device
    std::function<void(const Json&)> write;
};

// The environment variable TQ_CONFORMANCE_FAULT=crash:TEXT, hang:TEXT, lost:TEXT, third:TEXT or slow:TEXT makes every row with
// TEXT in its name end the process, never end, report a lost device, do so in the third run of such rows, or take 3 s more: for
// tests of the reporting process.
void run_worker(const WorkerOptions& options);

// The names of the rows that a worker with these options runs.
std::vector<std::string> row_names(const Capabilities& device, const Selection& selection);

// Writes {"devices": ["0", "2"], "all": [{...}, ...]}: the indices of the usable devices, and all as `describe` describes them;
// or
// {"failed": ...}, with the "reason" of a NoDriver.
void list_usable_devices(const std::function<void(const Json&)>& write, const std::function<Json(const Capabilities&)>& describe);

} // namespace tq::conformance
