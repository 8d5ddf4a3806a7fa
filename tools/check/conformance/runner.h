// The process that reports: it starts a worker for each device, watches it, and continues after a row that ended or hung it.
#pragma once
#include "tools/check/conformance/verdict.h"
#include "tools/check/conformance/worker.h"
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace tq::conformance {

struct RowResult {
    std::string kernel, variant, shape;
    Verdict verdict = Verdict::not_run;
    double error = 0, limit = 0, ms = 0;
    std::string reason;
    bool no_memory = false;          // it failed for want of memory
    Json dispatches;                 // the dispatches that it ran (worker.h)
    std::string dump;                // where its data is, after a failure with --dump
    std::optional<Verdict> expected; // the failure that it is known for

    std::string name() const { return kernel + " | " + variant + " | " + shape; }
    bool as_expected() const { return expected == verdict; }
    // Whether it fails in a way that was not expected, or passes though a failure was.
    bool is_bad() const {
        return expected ? !as_expected() && verdict != Verdict::not_supported && verdict != Verdict::not_run
                        : is_failure(verdict);
    }
};

struct DeviceReport {
    std::string selector;
    Json device; // null if it was never opened
    std::vector<RowResult> rows;
    std::string failure;                // why not every row was run
    bool died = false;                  // the worker crashed or hung while it opened the device
    std::vector<std::string> unmatched; // filters that mean no row of it
    double seconds = 0;

    size_t count(Verdict verdict) const;
    size_t bad() const;          // rows (RowResult::is_bad)
    size_t as_expected() const;  // rows that fail as expected
    bool passed() const;         // there were rows that passed or failed as expected, and none is bad or was not run
    bool nothing_tested() const; // no row passed or failed, and the device did not make a worker crash or hang
};

struct RunnerOptions {
    std::vector<std::string> worker;      // program and arguments, which --device and --first are added to
    std::vector<std::string> environment; // NAME=value, for the worker
    std::chrono::seconds timeout{60};     // for a row, and for opening the device
    bool dumps = false;                   // the worker writes the data of failed rows; of one that ends it, a second worker does
    std::function<bool()> interrupted;
    std::function<std::optional<Verdict>(const std::string& row)> expected = [](const std::string&) { return std::nullopt; };
    std::function<void(size_t index, const std::vector<RowResult>& rows)> on_begin, on_result;
};

constexpr const char* no_row_selected = "no row is selected by --filter, --exclude and --shard: --list prints all names";
DeviceReport test_device(const RunnerOptions& options, const std::string& selector);

// A worker's report about the devices.
struct Listing {
    std::vector<std::string> usable; // their indices
    Json all = Json::array();        // as the worker describes them
    std::string failure;             // why there is none
    std::string reason;              // why the loader can load no driver, if it says so (NoDriver)
    std::string death;               // how the worker ended without an answer
};
Listing list_devices_apart(const RunnerOptions& options);

// Returns the usable devices. Throws Error if there is none, or the worker does not report them.
std::vector<std::string> usable_devices(const RunnerOptions& options);

} // namespace tq::conformance
