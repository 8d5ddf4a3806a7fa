// tq-run bench: tokens per second, in llama-bench's terms, of results that were checked first.
#include "base/interrupt.h"
#include "model/cpu/forward.h"
#include "model/files/calibration.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "tools/quality/ablation_record.h"
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/kernels.h"
#include "tools/tq-run/bench/measure.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/speculation.h"
#include "tools/tq-run/bench/tune.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/progress.h"
#include "tools/tq-run/time_left.h"
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

namespace tq {
namespace {

using namespace bench;
using bench::Arguments;

constexpr int failed = 1, stopped = 130;

// The number of the test, the number of tests, and the time that the rest may take.
class Schedule {
  public:
    explicit Schedule(const Arguments& arguments) : repetitions_(arguments.repetitions + 1) {
        for (const ModelArguments& model : arguments.model_list()) {
            const size_t threads = chooses_cpu(model.device) ? arguments.thread_list().size() : 1;
            for (const Test& test : arguments.tests()) {
                const size_t times = arguments.caches().size() * arguments.batch_list().size() * threads;
                count_ += times;
                work_ += double(times) * work(test);
            }
        }
    }

    void begin() { number_++; }
    void end(const Test& test) { done_ += work(test); }
    // "test 3 of 12, about 2:10 left"
    std::string text() const { return fmt::format("test {} of {}{}", number_, count_, left_.after(done_, work_)); }

  private:
    // In units of one generated token: the tokens of a prompt share the weights that are read.
    double work(const Test& test) const { return repetitions_ * (test.generated + test.prompt * 0.1); }

    const double repetitions_;
    size_t number_ = 0, count_ = 0;
    double done_ = 0, work_ = 0;
    TimeLeft left_;
};

// Forwards to all of them.
struct Reporters {
    std::vector<Reporter> all;

    void add(const Subject& subject, const Result& result, const std::optional<Limits>& limits) {
        for (Reporter& reporter : all) reporter.add(subject, result, limits);
    }
    void finish() {
        for (Reporter& reporter : all) reporter.finish();
    }
};

// Runs all tests on one model and one device.
class Run {
  public:
    Run(const Arguments& arguments, Subject& subject, Console& console, Reporters& reporters, Schedule& schedule)
        : arguments_(arguments), subject_(subject), setup_(subject.setup), console_(console), reporters_(reporters),
          schedule_(schedule), tests_(arguments.tests()),
          meter_(setup_.device
                     ? std::optional(PciId{setup_.device->capabilities().vendor_id, setup_.device->capabilities().device_id})
                     : std::nullopt),
          checker_(
              setup_,
              [this](const conformance::CutModel& model, const ForwardOptions& options) {
                  return make_forward(model.config, model.weights, options);
              },
              [this](const std::string& what) { warn(what); }) {
        if (arguments.profile && !setup_.device)
            write_error("tq-run: --profile times the kernels of Vulkan devices, not of the CPU; --kernels times some of both\n");
        if (arguments.console.verbose && !meter_.available()) write_error("energy: not available\n");
        const auto is_json = [](std::optional<Format> format) { return format == Format::json || format == Format::jsonl; };
        const bool structured = is_json(arguments.output()) || is_json(arguments.error_output());
        profiled_ = setup_.device && (arguments.profile || structured);
        if ((profiled_ || structured) && !arguments.no_limits) limits_ = measure();
    }

    // Returns whether everything could be measured.
    bool all();

  private:
    Limits measure();
    std::unique_ptr<Forward> make_forward(const Config& config, const Weights& weights, const ForwardOptions& options);
    std::optional<Check> check(const KvOptions& kv);
    void measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check);
    std::vector<Test> fitting(const KvOptions& kv);
    void warn(const std::string& what);
    void complain(const std::string& what); // reports that a requested test is not measured
    uint32_t usual_batch() const {
        return setup_.device ? gpu::tuning_for(setup_.device->capabilities()).batch_size : cpu_batch_size;
    }
    void report(const std::string& what);

    void wait();

    const Arguments& arguments_;
    const Subject& subject_;
    Setup& setup_;
    Console& console_;
    Reporters& reporters_;
    Schedule& schedule_;
    const std::vector<Test> tests_;
    EnergyMeter meter_;
    Checker checker_;
    bool profiled_ = false, good_ = true;
    std::optional<Limits> limits_;
};

void Run::report(const std::string& what) {
    if (arguments_.console.verbose || arguments_.progress)
        write_error(fmt::format("tq-run bench: {}, {}: {}\n", subject_.label, setup_.device_name, what));
    else
        console_.status(fmt::format("{}, {}", what, subject_.label));
}

// Waits as --delay requests.
void Run::wait() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(arguments_.delay_seconds);
    if (arguments_.delay_seconds > 0) report(fmt::format("{}: waiting for {} s", schedule_.text(), arguments_.delay_seconds));
    while (!interrupted() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

Limits Run::measure() {
    report("measuring what the device can do");
    if (setup_.device) return measure_limits(*setup_.device);
    ThreadPool pool(arguments_.thread_list()[0]);
    return measure_cpu_limits(pool);
}

std::unique_ptr<Forward> Run::make_forward(const Config& config, const Weights& weights, const ForwardOptions& options) {
    TransferStatus status(console_);
    const auto on_load = [&](uint64_t done, uint64_t total) {
        status.update(fmt::format("loading {}", setup_.model.name), done, total, done);
        return !interrupted();
    };
    return setup_.device ? make_gpu_forward(*setup_.device, config, weights, options, on_load)
                         : make_cpu_forward(config, weights, options, on_load);
}

// Throws Error when the logits are wrong; returns nothing where the check is turned off.
std::optional<Check> Run::check(const KvOptions& kv) {
    if (arguments_.unchecked) return std::nullopt;
    report(fmt::format("checking {} of {} layers", checker_.layers(), setup_.model.config.num_hidden_layers));
    return checker_(kv);
}

// The tests that fit the memory with this cache; reports the others.
std::vector<Test> Run::fitting(const KvOptions& kv) {
    std::vector<Test> out;
    for (const Test& test : tests_) {
        const MemoryPlan plan = setup_.plan(context_for({&test, 1}), kv);
        if (plan.fits())
            out.push_back(test);
        else
            complain(fmt::format("{}: {} with a cache of {} does not fit the memory of {}: {}", test.name(), setup_.model.name,
                                 describe(kv), setup_.device_name, describe(plan)));
    }
    return out;
}

void Run::warn(const std::string& what) {
    console_.clear_status();
    write_error(fmt::format("tq-run: {}\n", what));
}

void Run::complain(const std::string& what) {
    warn(what);
    good_ = false;
}

void Run::measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check) {
    options.context_size = context_for(tests);
    const auto forward = make_forward(setup_.model.config, setup_.model.weights, options);
    const uint32_t vocab_size = setup_.model.config.vocab_size;
    for (const Test& test : tests) {
        schedule_.begin();
        wait();
        const std::string started = quality::time_stamp();
        const Timed timed = time_test(*forward, vocab_size, test, arguments_.repetitions, meter_, [&](const std::string& what) {
            report(fmt::format("{}: {}, {}", schedule_.text(), describe(options.kv), what));
        });
        if (timed.ns.empty()) throw LoadStopped();
        Result result{.test = test,
                      .kv = options.kv,
                      .batch_size = options.batch_size,
                      .threads = options.threads,
                      .samples_ns = timed.ns,
                      .test_time = started,
                      .check = check,
                      .weight_bytes = weight_bytes_per_token(setup_),
                      .energy = timed.energy};
        result.kv_bytes = double(forward->kv_bytes_per_token()) * (test.depth + (test.tokens() + 1) / 2.0);
        if (profiled_ && !interrupted()) {
            Profiled profiled = profile_test(*setup_.device, *forward, vocab_size, test);
            result.kernels = std::move(profiled.kernels);
            result.profiled_tokens = profiled.tokens;
        }
        console_.clear_status();
        schedule_.end(test);
        reporters_.add(subject_, result, limits_);
        if (interrupted()) throw LoadStopped();
    }
}

bool Run::all() {
    std::vector<KvOptions> caches = arguments_.caches();
    for (KvOptions& kv : caches) try {
            load_conditioning(kv.conditioning, setup_.model, console_);
            check_kv(kv, setup_.model.config.num_hidden_layers);
            const std::vector<Test> tests = fitting(kv);
            if (tests.empty()) continue;
            const std::optional<Check> checked = check(kv);
            for (const uint32_t batch : arguments_.batch_list())
                for (const uint32_t threads : setup_.device ? std::vector<uint32_t>{0} : arguments_.thread_list())
                    measure({.kv = kv, .threads = thread_count(threads), .batch_size = batch == 0 ? usual_batch() : batch}, tests,
                            checked);
        } catch (const Error& error) { // the rest can still be measured
            complain(error.what());
        } catch (const std::bad_alloc&) {
            complain(fmt::format("out of memory for {} with a cache of {}", setup_.model.name, describe(kv)));
        }
    return good_;
}

int run_tests(const Arguments& arguments, Console& console) {
    const std::vector<Test> tests = arguments.tests();
    if (tests.empty()) throw UsageError("bench has nothing to measure: every -p and -n is 0");
    Reporters reporters;
    reporters.all.emplace_back(arguments, arguments.output(), write_output);
    if (const auto format = arguments.error_output()) reporters.all.emplace_back(arguments, *format, write_error);
    Schedule schedule(arguments);
    bool good = true;
    try {
        for (ModelArguments model : arguments.model_list()) {
            model.context_size = 1; // each run sets its own context; a warning of too long a context would be of no use
            Subject subject = open_subject(model, console);
            catch_interrupts();
            good &= Run(arguments, subject, console, reporters, schedule).all();
        }
    } catch (const LoadStopped&) {
        console.clear_status();
        reporters.finish();
        return stopped;
    } catch (const Error&) {
        console.clear_status();
        reporters.finish();
        throw;
    }
    console.clear_status();
    reporters.finish();
    return good ? 0 : failed;
}

// The limits of each device; no model is needed.
int run_limits(const Arguments& arguments) {
    Json all = describe_machine();
    all["limits"] = Json::array();
    const bool as_table = arguments.output() == Format::markdown;
    for (const std::string& selector : arguments.device_list()) {
        const auto device = choose_device(selector);
        Json json{{"device", describe_device(device.get())}};
        ThreadPool pool(arguments.thread_list()[0]);
        const Limits limits = device ? measure_limits(*device) : measure_cpu_limits(pool);
        json.update(to_json(limits));
        all["limits"].push_back(json);
        if (as_table) write_output(fmt::format("{}\n{}", json["device"]["name"].get<std::string>(), limits_table(limits)));
    }
    if (!as_table) write_output(all.dump(arguments.output() == Format::json ? 1 : -1) + "\n");
    return 0;
}

int compare(const Arguments& arguments) {
    write_output(comparison_table(read_results(arguments.compare)));
    return 0;
}

int run(const Arguments& arguments) {
    const Format format = arguments.output();
    const bool other = arguments.limits || arguments.kernels || arguments.tune || arguments.speculation.on();
    if (other && (format == Format::csv || format == Format::sql))
        throw UsageError("--limits, --kernels, --tune and --spec print md, json or jsonl, not csv or sql");
    if (!arguments.spec_text.empty() && !arguments.speculation.on())
        throw UsageError("--spec-text is a text for --spec: give --spec ngram, or --spec draft with -md");
    if (!arguments.compare.empty() && format != Format::markdown)
        throw UsageError("--compare prints a table only: leave -o out, or give -o md");
    if (!arguments.compare.empty()) return compare(arguments);
    Console console = arguments.console.console();
    if (arguments.limits) return run_limits(arguments);
    if (arguments.kernels) return run_kernels(arguments, console);
    if (arguments.tune) return run_tune(arguments, console);
    arguments.speculation.check();
    return arguments.speculation.on() ? run_speculation(arguments, console) : run_tests(arguments, console);
}

} // namespace

void add_bench(ArgumentParser& app, Action& action) {
    add_command<Arguments>(
        app, action, "bench", "Measure tokens per second, after checking the results; limits, kernels, comparisons, tuning",
        [](ArgumentParser& command, Arguments& a) { bench::add_flags(command, a); }, run);
}

} // namespace tq
