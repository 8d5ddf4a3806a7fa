// The parent of workers. A worker prints a JSON object on a line of its own for each step: {"device", "rows"} once, {"begin":
// i}, {"row": i, ...}, {"end"} or {"failed"}. Any other output is a driver's or a layer's, also an object with other members,
// or with the number of a row that is over; the last three lines are kept, since they often say why it died. A driver may also
// write into the middle of a message, which then counts as such other output: the row is an error when a later one is begun. If
// a worker ends or says nothing for the timeout, the row that it had begun is crashed or hung, and a new worker goes on after
// it. Five workers in a row that end before a row has passed are enough: the device is given up.
#include "tools/check/conformance/runner.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/path_text.h"
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

    // `handle` takes each object, and returns whether it is a message; it changes nothing before it has read all members that it
    // needs, as Json's exceptions mean that it is none. Returns why the worker no longer runs; nothing when interrupted.
    // Waiting in steps of 100 ms lets an interrupt through. The output is read to its end before the exit status is asked for,
    // since the last words of a crash lie there.
    template <class Handle> std::optional<std::string> follow(Handle handle) {
        restart_clock();
        while (!options_.interrupted()) {
            const auto line = child_.read_line(std::chrono::milliseconds(100));
            if (line && take(*line, handle)) continue;
            if (!line && child_.output_ended()) return ended();
            if (Clock::now() > deadline_) return hung();
        }
        child_.kill();
        return std::nullopt;
    }

    bool is_hung() const { return hung_; }                        // it gave no answer in time
    std::string last_words() const { return last_words_.text(); } // since the last "begin"

  private:
    static std::vector<std::string> arguments(const RunnerOptions& options, const std::string& device, size_t first) {
        std::vector<std::string> out = options.worker;
        out.insert(out.end(), {"--first", std::to_string(first)});
        if (!device.empty()) out.insert(out.end(), {"--device", device});
        return out;
    }

    template <class Handle> bool take(const std::string& line, Handle handle) {
        const Json message = Json::parse(line, nullptr, false);
        if (!is_handled(message, handle)) {
            last_words_.add(line);
            return false;
        }
        restart_clock();
        if (message.contains("begin")) last_words_.clear();
        return true;
    }

    template <class Handle> static bool is_handled(const Json& message, Handle handle) {
        try {
            return message.is_object() && handle(message);
        } catch (const Json::exception&) { // a member is missing or of another type
            return false;
        }
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

bool are_numbers(const Json& list) {
    return list.is_array() && std::ranges::all_of(list, [](const Json& one) { return one.is_number_unsigned(); });
}

// Whether they are as Evidence writes them. Throws Json's exceptions, too.
bool are_dispatches(const Json& list) {
    return list.is_array() && std::ranges::all_of(list, [](const Json& one) {
               const Json &constants = one.at("constants"), &workgroup = one.at("workgroup"), &groups = one.at("groups");
               return one.at("spirv").is_string() && are_numbers(workgroup) && workgroup.size() == 3 && are_numbers(groups) &&
                      groups.size() == 3 && are_numbers(one.at("push_constants")) && constants.is_object() &&
                      std::ranges::all_of(constants, [](const Json& value) { return value.is_number_unsigned(); });
           });
}

// A device, with as many workers as it takes. `next_` is the row that a new worker begins with: after the last finished one, and
// a row that was begun when its worker ended counts as finished. A worker that ends between rows leaves `next_` as it was. A
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
            const auto end = watch.follow([&](const Json& message) { return take(message, watch); });
            if (done_) break;
            if (!end) {
                report_.failure = "interrupted";
                break;
            }
            const Verdict how = watch.is_hung() ? Verdict::hung : Verdict::crashed;
            if (current_) {
                RowResult row = failed_row(*current_, how, *end);
                if (options_.dumps) row.dump = record(*current_);
                finish_row(*current_, std::move(row));
            }
            barren = passed_rows_ > 0 ? 0 : barren + 1;
            report_.died = report_.rows.empty();
            if (report_.rows.empty() || barren == max_barren_workers) {
                report_.failure = report_.rows.empty()
                                      ? "the device could not be opened: " + *end
                                      : fmt::format("given up: {} workers in a row ended before a row passed", barren);
                break;
            }
        }
        if (report_.rows.empty() && report_.failure.empty()) report_.failure = no_row_selected;
        report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return std::move(report_);
    }

  private:
    // Lets another worker run a row that has ended one, and write its data as far as it comes. Returns where.
    std::string record(size_t index) const {
        RunnerOptions recording = options_;
        recording.worker.push_back("--record");
        std::string folder;
        Watch(recording, report_.selector, index).follow([&](const Json& message) {
            folder = message.value("dump", folder);
            return true;
        });
        return std::filesystem::exists(utf8_path(folder)) ? folder : "";
    }

    // Returns whether it is a message of a worker, in the order of its messages.
    bool take(const Json& message, const Watch& watch) {
        if (message.contains("rows")) return take_rows(message);
        if (message.contains("begin")) return begin_row(message.at("begin"), watch);
        if (message.contains("row")) return take_result(message.at("row"), message, watch);
        if (message.contains("end")) return message.at("end") == true && take_end(watch);
        if (!message.contains("failed")) return false;
        report_.failure = message.at("failed").get<std::string>();
        return done_ = true;
    }

    // The list of rows comes from the first worker only. Later workers make the same list (selected_rows), and their row numbers
    // refer to the first.
    bool take_rows(const Json& message) {
        if (is_open()) return true;
        std::vector<RowResult> rows;
        for (const Json& row : message.at("rows")) {
            RowResult& added = rows.emplace_back();
            added.kernel = row.at(0);
            added.variant = row.at(1);
            added.shape = row.at(2);
            added.expected = options_.expected(added.name());
        }
        const Json& device = message.at("device");
        auto unmatched = message.value("unmatched", std::vector<std::string>());
        if (!device.is_object()) return false;
        report_.device = device;
        report_.rows = std::move(rows);
        report_.unmatched = std::move(unmatched);
        return true;
    }

    bool is_ahead(const Json& index) const { return index.is_number_unsigned() && index >= next_ && index < report_.rows.size(); }

    bool begin_row(const Json& index, const Watch& watch) {
        if (!is_ahead(index)) return false;
        lose_rows(index, watch);
        current_ = index;
        options_.on_begin(index, report_.rows);
        return true;
    }

    bool take_result(const Json& index, const Json& message, const Watch& watch) {
        if (!is_ahead(index)) return false;
        const auto number = [&](const char* key) { // JSON has no infinity: null
            const auto found = message.find(key);
            return found == message.end() ? 0.0 : found->is_number() ? found->get<double>() : INFINITY;
        };
        const auto verdict = parse_verdict(message.at("verdict").get<std::string>());
        RowResult row = failed_row(index, verdict.value_or(Verdict::error), message.value("reason", ""));
        row.error = number("error");
        row.limit = number("limit");
        row.ms = number("ms");
        row.no_memory = message.value("no_memory", false);
        row.dispatches = message.value("dispatches", row.dispatches);
        row.dump = message.value("dump", "");
        if (!verdict || !are_dispatches(row.dispatches)) return false;
        lose_rows(index, watch);
        finish_row(index, std::move(row));
        return true;
    }

    bool take_end(const Watch& watch) {
        if (!is_open())
            report_.failure = "the list of rows did not arrive" + watch.last_words();
        else
            lose_rows(report_.rows.size(), watch);
        return done_ = true;
    }

    // The rows before `end` whose results did not arrive, though the worker has gone on.
    void lose_rows(size_t end, const Watch& watch) {
        while (next_ < end)
            finish_row(next_, failed_row(next_, Verdict::error, "its result did not arrive" + watch.last_words()));
    }

    RowResult failed_row(size_t index, Verdict verdict, std::string reason) const {
        RowResult row = report_.rows[index];
        row.verdict = verdict;
        row.dispatches = Json::array();
        row.error = INFINITY;
        row.reason = std::move(reason);
        return row;
    }

    void finish_row(size_t index, RowResult result) {
        const RowResult& row = report_.rows[index] = std::move(result);
        passed_rows_ += row.verdict == Verdict::passed || row.as_expected() ? 1 : 0;
        next_ = index + 1;
        current_.reset();
        options_.on_result(index, report_.rows);
    }

    bool is_open() const { return !report_.device.is_null(); } // and its rows are known

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
        Listing read;
        if (message.contains("failed")) {
            read.failure = message.at("failed").get<std::string>();
            read.reason = message.value("reason", "");
        } else {
            read.usable = message.at("devices").get<std::vector<std::string>>();
            read.all = message.at("all");
            if (!read.all.is_array() || !std::ranges::all_of(read.all, &Json::is_object)) return false;
        }
        out = std::move(read);
        return answered = true;
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
