// Tries a device by running rows of conformance. They run in a child (conformance's worker), because a driver may crash, hang
// or lose the device, and nothing of that can be caught here. Profiles are tried from all that the device has to the least that
// Vulkan promises; a profile with the kernels of an earlier one is left out. After a failure, the next profile must pass the
// row that failed before it gets the whole set, so that a device that is wrong throughout is known to be so in seconds.
// A device that is right but slow is not refused: after the time of two answers what has passed is enough (out_of_time).
// A verdict is kept by a hash of all that it depends on besides device and driver: the shaders, the profile, the tuning, what
// the model needs, the environment variables that change drivers, and the layers (key_of). It is not kept if the failure may be
// temporary, such as too little memory: the next start tries again (Attempt::lasting).
#include "tools/tq-run/engine/proof.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/gpu/shaders_hash.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include "model/load.h"
#include "runtime/device.h"
#include "runtime/device_files.h"
#include "runtime/device_profile.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/engine/drivers.h"
#include "tools/tq-run/engine/verdict_file.h"
#include <algorithm>
#include <chrono>
#include <cmath>

namespace tq {
namespace {

using conformance::DeviceReport;
using conformance::RowResult;
using Clock = std::chrono::steady_clock;

constexpr const char* not_opened = "the device could not be opened"; // how the runner says that the child ended meanwhile
constexpr auto silence = std::chrono::seconds(1);                    // before progress is shown

// From all that the device has to the least that Vulkan promises. A profile that the user asked for is the only one.
std::vector<std::string> profiles_to_try(const Capabilities& device) {
    if (device.profile != "none") return {device.profile};
    std::vector<std::string> names;
    std::vector<std::pair<gpu::Tuning, bool>> tried;
    for (const char* name : {"none", "untuned", "full-barriers", "no-matrix", "no-fp16", "no-subgroup", "spec-minimum"}) {
        Capabilities clamped = device;
        find_device_profile(name).clamp(clamped);
        clamped.profile = name;
        const std::pair kernels(gpu::tuning_for(clamped), clamped.narrow_barriers);
        if (std::ranges::find(tried, kernels) != tried.end()) continue; // the same kernels
        names.push_back(name);
        tried.push_back(kernels);
    }
    return names;
}

struct Attempt {
    bool passed = false, lasting = true; // lasting: it would be so another time
    std::string row, why;                // that failed
    size_t rows = 0;
};

// A row that had too little memory proves nothing, in either direction: it is no failure, and the verdict is not kept. A report
// without rows means that the child died before the first, which is the device's fault only if it died while opening it.
Attempt judge(const DeviceReport& report, bool out_of_time) {
    Attempt attempt{.rows = report.count(conformance::Verdict::passed)};
    for (const RowResult& row : report.rows) {
        if (row.no_memory) attempt.lasting = false;
        if (!is_failure(row.verdict) || row.no_memory) continue;
        attempt.row = fmt::format("{} | {} | {}", row.kernel, row.variant, row.shape);
        attempt.why = row.reason.empty() ? "a wrong result" : row.reason;
        return attempt;
    }
    attempt.passed = report.failure.empty() || (out_of_time && !report.rows.empty());
    attempt.why = report.failure;
    if (!attempt.passed && report.rows.empty()) // it crashed when it was opened; another error may be of the moment
        attempt.lasting = report.failure.starts_with(not_opened);
    return attempt;
}

class Proof {
  public:
    Proof(const ChosenDevice& chosen, const conformance::Subject& subject, Console& console)
        : chosen_(chosen), text_(subject.text()), console_(console) {}
    ~Proof() { console_.clear_status(); }

    Verdict run() {
        Verdict verdict;
        std::string suspect; // the row that failed: the next profile must pass it first
        for (const std::string& profile : profiles_to_try(chosen_.capabilities)) {
            if (!suspect.empty() && !try_profile(profile, suspect).row.empty()) continue;
            const Attempt attempt = try_profile(profile, "");
            lasting_ = lasting_ && attempt.lasting;
            if (attempt.passed) {
                verdict.profile = profile;
                verdict.rows = attempt.rows;
                break;
            }
            suspect = attempt.row;
            if (verdict.failure.empty())
                verdict.failure = attempt.row.empty() ? attempt.why : fmt::format("\"{}\": {}", attempt.row, attempt.why);
        }
        verdict.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        return verdict;
    }
    bool lasting() const { return lasting_ && !interrupted(); }

  private:
    // A run ends at the first failure: one is enough to refuse a profile, and each further one of a hanging driver would cost a
    // timeout.
    Attempt try_profile(const std::string& profile, const std::string& filter) {
        std::vector<std::string> flags{"--subject", text_};
        if (!filter.empty()) flags.insert(flags.end(), {"--filter", filter});
        auto options = worker_options(flags, {"TQ_DEVICE_PROFILE=" + profile});
        // If a device is right but slow, the rows that passed within the time of two answers are enough.
        const auto end = Clock::now() + 2 * options.timeout;
        bool out_of_time = false, failed = false;
        options.interrupted = [&] { return interrupted() || out_of_time || failed; };
        options.on_begin = [&](size_t index, const std::vector<RowResult>& rows) {
            out_of_time = Clock::now() > end;
            if (Clock::now() - start_ < silence) return;
            console_.status(fmt::format("checking {} for the first time", printable(chosen_.capabilities.name)),
                            fmt::format("{} of {}, {}", index + 1, rows.size(), rows[index].kernel));
        };
        options.on_result = [&](size_t index, const std::vector<RowResult>& rows) {
            failed = is_failure(rows[index].verdict) && !rows[index].no_memory;
        };
        const DeviceReport report = test_device(options, chosen_.selector);
        return judge(report, out_of_time);
    }

    const ChosenDevice& chosen_;
    const std::string text_;
    Console& console_;
    const Clock::time_point start_ = Clock::now();
    bool lasting_ = true;
};

// Returns a hash of all that the verdict depends on besides the device and its driver.
// The tuning is in it field by field: a tuning that was stored later makes other kernels, which have proved nothing.
std::string key_of(const Capabilities& device, const std::string& subject) {
    std::string text = fmt::format("{:016x} {} {}\n", gpu::shaders_hash(), device.profile, subject);
    const gpu::Tuning tuning = gpu::tuning_for(device);
    for (const gpu::TuningField& field : gpu::tuning_fields()) text += fmt::format("{} {}\n", field.name, field.get(tuning));
    text += driver_surroundings();
    return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

bool is_profile(const std::string& name) {
    return name.empty() || std::ranges::any_of(device_profiles(), [&](const DeviceProfile& one) { return name == one.name; });
}

void report(const ChosenDevice& chosen, const Verdict& verdict) {
    if (verdict.failure.empty()) return;
    const std::string what = !verdict.usable()                    ? "it is not used"
                             : verdict.profile == "full-barriers" ? "it runs with full barriers"
                             : verdict.profile == "untuned"
                                 ? "it runs with the default tuning"
                                 : fmt::format("it runs with the limits of the profile {}", verdict.profile);
    write_error(
        fmt::format("tq-run: {} fails the check of its kernels, so {}: {}; tq-run doctor checks it again, and for a report: "
                    "{}\n",
                    printable(chosen.capabilities.name), what, printable(verdict.failure, 240), report_command(chosen.selector)));
}

} // namespace

std::filesystem::path verdicts_path(const Capabilities& device) { return device_file(device, ".verdicts.json"); }

// The file is a cache and may be from anywhere, so that an unknown profile in it counts as no verdict.
Verdict prove(const ChosenDevice& chosen, const conformance::Subject& subject, Console& console, Believe believe) {
    const std::filesystem::path file = verdicts_path(chosen.capabilities);
    const std::string key = key_of(chosen.capabilities, subject.text());
    if (const auto found = recall(file, key)) {
        const Verdict known{.profile = text_of(*found, "profile"), .failure = text_of(*found, "failure"), .known = true};
        if (is_profile(known.profile) && (known.failure.empty() || believe == Believe::everything)) return known;
    }
    Proof proof(chosen, subject, console);
    const Verdict verdict = proof.run();
    if (!proof.lasting()) return verdict;
    const std::string problem = remember(file, key,
                                         {{"device", printable(chosen.capabilities.name, 256)},
                                          {"subject", subject.text()},
                                          {"program", build_description()},
                                          {"profile", verdict.profile},
                                          {"failure", verdict.failure},
                                          {"rows", verdict.rows},
                                          {"seconds", verdict.seconds}});
    if (!problem.empty())
        write_error(
            fmt::format("tq-run: the check of {} will be repeated, since its result cannot be kept: {}; TQ_CACHE_DIR names "
                        "another directory\n",
                        printable(chosen.capabilities.name), printable(problem, 300)));
    return verdict;
}

std::unique_ptr<Device> open_proven(const ChosenDevice& chosen, const conformance::Subject& subject, Console& console) {
    if (proving_seconds() == 0) return std::make_unique<Device>(chosen.selector);
    const Verdict verdict = prove(chosen, subject, console);
    if (interrupted()) throw LoadStopped();
    report(chosen, verdict);
    return verdict.usable() ? std::make_unique<Device>(chosen.selector, verdict.profile) : nullptr;
}

// Returns why the child did not survive; empty if it did, even if its result was wrong.
static std::string death_of(const DeviceReport& report) {
    if (report.rows.empty()) return report.failure.starts_with(not_opened) ? report.failure : "";
    for (const RowResult& row : report.rows)
        if (is_failure(row.verdict) && !row.no_memory && !std::isfinite(row.error)) return row.reason;
    return "";
}

std::unique_ptr<Device> open_tried(const ChosenDevice& chosen) {
    if (proving_seconds() == 0) return std::make_unique<Device>(chosen.selector);
    const std::string death = death_of(test_device(worker_options({"--filter", "integers | + | "}), chosen.selector));
    if (interrupted()) throw LoadStopped();
    if (!death.empty())
        fail("{} does not run a small kernel in a child process ({}), so it is not opened: tq-run doctor tells more, and "
             "TQ_PROVE=0 opens it all the same",
             printable(chosen.capabilities.name), printable(death, 300));
    return std::make_unique<Device>(chosen.selector);
}

} // namespace tq
