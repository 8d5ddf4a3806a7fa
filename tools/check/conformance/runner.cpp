// The parent of workers. A worker prints a JSON object on a line of its own for each step: {"device", "rows"} once, {"begin": i},
// {"row": i, ...}, {"end"} or {"failed"}. Any other output is a driver's or a layer's; the last three lines are kept, since they
// often say why it died. If a worker ends or says nothing for the timeout, the row that it had begun is crashed or hung, and a
// new worker goes on after it. Five workers in a row that end before a row has passed are enough: the device is given up.
#include "tools/check/conformance/runner.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>
#include <cmath>

namespace tq::conformance {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int max_barren_workers = 5; // consecutive workers that end before a row has passed

// The last few lines that a driver, a layer or a broken assertion of this program printed.
class LastWords {
  public:
    void clear() { lines_.clear(); }
    void add(const std::string& line) {
        if (line.empty()) return;
        lines_.push_back(line);
        if (lines_.size() > 3) lines_.erase(lines_.begin());
    }
    std::string text() const {
        std::string all;
        for (const std::string& line : lines_) all += (all.empty() ? "" : " / ") + line;
        return all.empty() ? "" : "; it last said: " + printable(all, 600);
    }

  private:
    std::vector<std::string> lines_;
};

// Reads a worker's messages until it has ended, hangs or is interrupted.
// The clock starts anew with each message, and a worker writes one at the beginning of each row: the timeout is that of a row,
// not of the run. Lines that are no message do not restart it, as a driver may print forever.
class Watch {
  public:
    Watch(const RunnerOptions& options, const std::string& device, size_t first)
        : options_(options), child_(arguments(options, device, first), options.environment) {}

    // `handle` takes each message. Returns why the worker no longer runs; nothing when interrupted.
    // Waiting in steps of 100 ms lets an interrupt through. The output is read to its end before the exit status is asked for,
    // since the last words of a crash lie there.
    template <class Handle> std::optional<std::string> follow(Handle handle) {
        restart_clock();
        while (!options_.interrupted()) {
            const auto line = child_.read_line(std::chrono::milliseconds(100));
            if (line && line->starts_with('{'))
                take(Json::parse(*line, nullptr, false), *line, handle);
            else if (line)
                last_words_.add(*line);
            else if (child_.output_ended())
                return ended();
            else if (Clock::now() > deadline_)
                return hung();
        }
        child_.kill();
        return std::nullopt;
    }

    bool is_hung() const { return hung_; } // it gave no answer in time

  private:
    static std::vector<std::string> arguments(const RunnerOptions& options, const std::string& device, size_t first) {
        std::vector<std::string> out = options.worker;
        out.insert(out.end(), {"--first", std::to_string(first)});
        if (!device.empty()) out.insert(out.end(), {"--device", device});
        return out;
    }

    template <class Handle> void take(const Json& message, const std::string& line, Handle handle) {
        if (!message.is_object()) return last_words_.add(line);
        restart_clock();
        if (message.contains("begin")) last_words_.clear();
        handle(message);
    }

    std::string ended() {
        const auto status = child_.wait(std::chrono::seconds(10));
        const std::string how = status ? describe_exit(*status) : "its output closed, and it did not end";
        return fmt::format("the process that ran it ended: {}{}", how, last_words_.text());
    }

    std::string hung() {
        hung_ = true;
        child_.kill();
        return fmt::format("no answer within {} s{}", options_.timeout.count(), last_words_.text());
    }

    void restart_clock() { deadline_ = Clock::now() + options_.timeout; }

    const RunnerOptions& options_;
    ChildProcess child_;
    LastWords last_words_;
    Clock::time_point deadline_;
    bool hung_ = false;
};

// One device, with as many workers as it takes. `next_` is the row that a new worker begins with: after the last finished one,
// and a row that was begun when its worker ended counts as finished. A worker that ends between rows leaves `next_` as it was. A
// worker in which no row has passed is barren: if five in a row are, a device that cannot run anything is not asked once for each
// row.
class Run {
  public:
    Run(const RunnerOptions& options, const std::string& selector) : options_(options) { report_.selector = selector; }

    DeviceReport run() {
        const auto start = Clock::now();
        int barren = 0;
        while (!done_) {
            passed_rows_ = 0;
            current_.reset();
            Watch watch(options_, report_.selector, next_);
            const auto end = watch.follow([&](const Json& message) { take(message); });
            if (done_) break;
            if (!end) {
                report_.failure = "interrupted";
                break;
            }
            const Verdict how = watch.is_hung() ? Verdict::hung : Verdict::crashed;
            if (current_) finish_row(*current_, {{"verdict", name(how)}, {"error", INFINITY}, {"reason", *end}});
            barren = passed_rows_ > 0 ? 0 : barren + 1;
            report_.died = report_.rows.empty();
            if (report_.rows.empty() || barren == max_barren_workers) {
                report_.failure = report_.rows.empty()
                                      ? "the device could not be opened: " + *end
                                      : fmt::format("given up: {} workers in a row ended before a row passed", barren);
                break;
            }
        }
        if (report_.rows.empty() && report_.failure.empty())
            report_.failure = "no row is selected by --filter, --exclude and --shard: --list prints all names";
        report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return std::move(report_);
    }

  private:
    // The list of rows comes from the first worker only. Later workers make the same list (selected_rows), and their row numbers
    // refer to the first.
    void take(const Json& message) {
        if (message.contains("rows") && report_.rows.empty()) {
            report_.device = message.at("device");
            for (const Json& row : message.at("rows")) {
                RowResult& added = report_.rows.emplace_back(RowResult{row.at(0), row.at(1), row.at(2)});
                added.expected = options_.expected(added.name());
            }
            report_.unmatched = message.value("unmatched", std::vector<std::string>());
        } else if (message.contains("begin")) {
            current_ = message.at("begin").get<size_t>();
            options_.on_begin(*current_, report_.rows);
        } else if (message.contains("row")) {
            finish_row(message.at("row"), message);
        } else if (message.contains("end")) {
            done_ = true;
        } else if (message.contains("failed")) {
            report_.failure = message.at("failed");
            done_ = true;
        }
    }

    void finish_row(size_t index, const Json& message) {
        const auto number = [&](const char* key) { // JSON has no infinity: null
            const auto found = message.find(key);
            return found == message.end() ? 0.0 : found->is_number() ? found->get<double>() : INFINITY;
        };
        RowResult& row = report_.rows.at(index);
        row.verdict = parse_verdict(message.value("verdict", "")).value_or(Verdict::error);
        row.error = number("error");
        row.limit = number("limit");
        row.ms = number("ms");
        row.reason = message.value("reason", "");
        row.no_memory = message.value("no_memory", false);
        row.dispatches = message.value("dispatches", Json::array());
        row.dump = message.value("dump", "");
        passed_rows_ += row.verdict == Verdict::passed || row.as_expected() ? 1 : 0;
        next_ = index + 1;
        current_.reset();
        options_.on_result(index, report_.rows);
    }

    const RunnerOptions& options_;
    DeviceReport report_;
    size_t next_ = 0, passed_rows_ = 0; // passed_rows_: by this worker
    std::optional<size_t> current_;     // the row that the worker is running
    bool done_ = false;
};

} // namespace

size_t DeviceReport::count(Verdict verdict) const { return size_t(std::ranges::count(rows, verdict, &RowResult::verdict)); }
size_t DeviceReport::bad() const { return size_t(std::ranges::count_if(rows, &RowResult::is_bad)); }
size_t DeviceReport::as_expected() const { return size_t(std::ranges::count_if(rows, &RowResult::as_expected)); }

bool DeviceReport::passed() const {
    return failure.empty() && count(Verdict::passed) + as_expected() > 0 && bad() == 0 && count(Verdict::not_run) == 0;
}

bool DeviceReport::nothing_tested() const {
    return !died && std::ranges::all_of(rows, [](const RowResult& row) {
        return row.verdict == Verdict::not_supported || row.verdict == Verdict::not_run;
    });
}

DeviceReport test_device(const RunnerOptions& options, const std::string& selector) { return Run(options, selector).run(); }

Listing list_devices_apart(const RunnerOptions& options) {
    RunnerOptions listing = options;
    listing.worker.push_back("--list-devices");
    Listing out;
    bool answered = false;
    const auto end = Watch(listing, "", 0).follow([&](const Json& message) {
        answered = true;
        if (message.contains("devices")) out.usable = message.at("devices").get<std::vector<std::string>>();
        if (message.contains("all")) out.all = message.at("all");
        if (message.contains("failed")) out.failure = message.at("failed");
        out.reason = message.value("reason", "");
    });
    if (!answered) out.death = end.value_or("interrupted");
    return out;
}

std::vector<std::string> usable_devices(const RunnerOptions& options) {
    const Listing listing = list_devices_apart(options);
    if (!listing.failure.empty()) fail("{}", listing.failure);
    if (listing.usable.empty()) fail("no device could be listed: {}", listing.death.empty() ? "none is usable" : listing.death);
    return listing.usable;
}

} // namespace tq::conformance
