// The child that runs rows on a device. Anything may happen here: the process may crash, hang or lose its device, and the parent
// sees only what was written before. So "begin" is written before each run. After an Error the device is made anew for the next
// row, since it may be lost. TQ_CONFORMANCE_FAULT makes a row crash, hang, or lose the device, for tests of the parent.
#include "tools/check/conformance/worker.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "runtime/device_state.h"
#include "tools/check/conformance/evidence.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include "tools/check/conformance/subject.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace tq::conformance {
namespace {

struct Selected {
    Rows rows;
    std::vector<std::string> unmatched; // filters that mean no row
};

// Shards take stretches of 16 rows in turn rather than every n-th row: neighbours use the same kernels, so a pipeline is built in
// one shard only. Names, filters and shards depend on nothing but the device, so that the numbers of rows are the same in each
// worker of a run. Shuffling comes after sharding: a shard has the same rows in any order.
Selected selected_rows(const Capabilities& device, const Selection& selection) {
    Rows rows = selection.subject.empty() ? all_rows(device) : subject_rows(device, parse_subject(selection.subject));
    std::vector<std::string> names;
    for (const Row& row : rows) names.push_back(row.name());
    const std::vector<bool> included = matches(names, selection.filters), excluded = matches(names, selection.excludes);
    const bool all = selection.full || !selection.subject.empty();
    constexpr size_t stretch = 16; // neighbours share kernels
    Selected out{{}, without_match(names, selection.filters)};
    size_t number = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        if (!selection.filters.empty() && !included[i]) continue;
        const bool named = std::ranges::find(selection.filters, names[i]) != selection.filters.end();
        if (excluded[i] || (rows[i].full_only && !all && !named)) continue;
        if (number++ / stretch % selection.shards == selection.shard - 1) out.rows.push_back(std::move(rows[i]));
    }
    if (selection.shuffle)
        std::ranges::stable_sort(out.rows, {}, [&](const Row& row) { return row_seed(*selection.shuffle, row.name()); });
    return out;
}

void inject_fault(const Row& row) {
    const std::string fault = environment_variable("TQ_CONFORMANCE_FAULT").value_or(""), kind = fault.substr(0, fault.find(':'));
    if (fault.size() <= kind.size() || row.name().find(fault.substr(kind.size() + 1)) == std::string::npos) return;
    if (kind == "crash") std::abort();
    static int runs = 0;
    if (kind == "lost" || (kind == "third" && ++runs == 3))
        throw DeviceLost("the GPU stopped answering while waiting for a test (VK_ERROR_DEVICE_LOST)");
    while (kind == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (kind == "slow") std::this_thread::sleep_for(std::chrono::seconds(3));
}

uint64_t free_bytes(const Capabilities& device) {
    return device.memory_budget_bytes - std::min(device.memory_used_bytes, device.memory_budget_bytes);
}

class Worker {
  public:
    explicit Worker(const WorkerOptions& options) : options_(options) {}

    void run() {
        open();
        const Selected selected = selected_rows(rig_->device.capabilities(), options_.selection);
        const Rows& rows = selected.rows;
        Json names = Json::array();
        for (const Row& row : rows) names.push_back({row.kernel, row.variant, row.shape});
        options_.write(
            {{"device", options_.describe(rig_->device.capabilities())}, {"rows", names}, {"unmatched", selected.unmatched}});
        if (options_.record) {
            options_.write({{"dump", utf8_text(folder_of(rows.at(options_.first)))}});
            dump(rows[options_.first]);
            return;
        }
        for (size_t i = options_.first; i < rows.size(); i++) {
            Json line{{"row", i}};
            line.update(run_repeatedly(rows[i], i));
            options_.write(line);
        }
        options_.write({{"end", true}});
    }

  private:
    void open() {
        rig_.reset(); // before the next is made, so that the device's memory is free
        rig_.emplace(options_.device, options_.model);
    }

    // Runs a row until it has failed, options_.repeat times at most. Returns the last result.
    // Repeating finds faults that come and go. The reason says in which run it failed.
    Json run_repeatedly(const Row& row, size_t number) {
        Json result;
        double ms = 0;
        for (uint32_t n = 1; n <= options_.repeat; n++) {
            options_.write({{"begin", number}}); // which gives each run the time that a row may take
            result = run(row);
            ms += result.at("ms").get<double>();
            const Verdict verdict = parse_verdict(result.at("verdict").get<std::string>()).value();
            if (is_failure(verdict) && n > 1)
                result["reason"] = fmt::format("run {} of {}: {}", n, options_.repeat, result.at("reason").get<std::string>());
            if (verdict != Verdict::passed) break;
        }
        result["ms"] = ms;
        return result;
    }

    Json run(const Row& row) {
        const Stopwatch stopwatch;
        Json result = guarded(row);
        result["ms"] = std::round(stopwatch.seconds() * 10000) / 10;
        return result;
    }

    // After an Error the device is created again: it may be lost.
    Json guarded(const Row& row) {
        std::string reason;
        bool no_memory = false;
        Verdict verdict = Verdict::error;
        try {
            Json result = run_now(row);
            if (!options_.dump.empty() && result.at("verdict") == name(Verdict::wrong)) result["dump"] = dump(row);
            return result;
        } catch (const DeviceLost& error) {
            reason = error.what();
            verdict = rig_ && is_stuck(rig_->device) ? Verdict::hung : Verdict::device_lost;
        } catch (const OutOfMemory& error) {
            reason = error.what();
            no_memory = true;
        } catch (const Error& error) {
            reason = error.what();
        } catch (const std::bad_alloc&) {
            reason = "this machine ran out of memory";
            no_memory = true;
        }
        rig_.reset();
        return {{"verdict", name(verdict)}, {"error", INFINITY}, {"limit", 0}, {"reason", reason}, {"no_memory", no_memory}};
    }

    Json run_now(const Row& row) {
        if (!row.lacks.empty()) return {{"verdict", name(Verdict::not_supported)}, {"reason", row.lacks}};
        if (!rig_) open();
        const uint64_t available = free_bytes(rig_->device.capabilities());
        if (row.device_bytes > available)
            return {{"verdict", name(Verdict::not_supported)},
                    {"reason",
                     fmt::format("it needs {} MiB, and the device has {} MiB free", row.device_bytes >> 20, available >> 20)}};
        inject_fault(row);
        rig_->random = {row_seed(options_.seed, row.name())};
        const Evidence evidence(*rig_, false);
        const Outcome outcome = row.run(*rig_);
        Json result{{"verdict", name(outcome.passed ? Verdict::passed : Verdict::wrong)},
                    {"error", outcome.error},
                    {"limit", outcome.limit},
                    {"reason", outcome.reason}};
        result["dispatches"] = evidence.dispatches();
        return result;
    }

    std::filesystem::path folder_of(const Row& row) const {
        std::string name = row.name();
        for (char& c : name)
            if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
        return options_.dump / name;
    }

    // Runs a failed row once more, and writes its data; if it has ended a worker, before each kernel as well. Returns where.
    // The random numbers are seeded by the row's name, so the second run has the same inputs. It may pass this time, if the fault
    // comes and goes; the report says so.
    std::string dump(const Row& row) {
        const std::filesystem::path folder = folder_of(row);
        const auto write = [&](const Evidence& evidence, const Outcome& outcome) {
            evidence.write(
                folder, {{"row", row.name()}, {"seed", options_.seed}, {"passed", outcome.passed}, {"reason", outcome.reason}});
        };
        std::function<void(const Evidence&)> on_new_kernel;
        if (options_.record)
            on_new_kernel = [&](const Evidence& evidence) { write(evidence, {.passed = false, .reason = "it did not end"}); };
        rig_->random = {row_seed(options_.seed, row.name())};
        const Evidence evidence(*rig_, true, on_new_kernel);
        write(evidence, row.run(*rig_));
        return utf8_text(folder);
    }

    const WorkerOptions& options_;
    std::optional<Rig> rig_;
};

} // namespace

void run_worker(const WorkerOptions& options) {
    try {
        Worker(options).run();
    } catch (const Error& error) {
        options.write({{"failed", error.what()}});
    }
}

std::vector<std::string> row_names(const Capabilities& device, const Selection& selection) {
    std::vector<std::string> names;
    for (const Row& row : selected_rows(device, selection).rows) names.push_back(row.name());
    return names;
}

void list_usable_devices(const std::function<void(const Json&)>& write,
                         const std::function<Json(const Capabilities&)>& describe) {
    try {
        Json usable = Json::array(), described = Json::array();
        const std::vector<Capabilities> all = list_devices();
        for (size_t i = 0; i < all.size(); i++)
            if (all[i].unusable.empty()) usable.push_back(std::to_string(i));
        for (const Capabilities& one : all) described.push_back(describe(one));
        write({{"devices", usable}, {"all", described}});
    } catch (const NoDriver& none) {
        write({{"failed", none.what()}, {"reason", none.reason}});
    } catch (const Error& error) {
        write({{"failed", error.what()}});
    }
}

} // namespace tq::conformance
