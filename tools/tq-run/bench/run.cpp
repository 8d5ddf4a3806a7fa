// Runs the tests: for each model and device, each cache, each block size and number of threads, all tests. Models are outermost,
// since loading takes longest; a test that does not fit the memory is named and left out, and the rest is measured (exit status
// 1). Before a cache is timed the logits of a few layers are compared with the reference (Checker), and with -np also the
// sequences in company against the same alone.
// A row is written as soon as its test is done, so Ctrl-C loses one test only. Profiles are made in a run of their own after the
// timed ones, because timestamps serialise the kernels.
#include "tools/tq-run/bench/run.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "model/cpu/forward.h"
#include "model/files/calibration.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "model/load.h"
#include "model/stages/ranks/rank_group.h"
#include "tools/tq-run/bench/tables.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine_conditioning.h"
#include "tools/tq-run/engine/memory_table.h"
#include "tools/tq-run/engine/setup.h"
#include <chrono>
#include <new>
#include <numeric>
#include <thread>

namespace tq::bench {
namespace {

// Returns the work in units of a pass that generates a token of one sequence.
// It only weighs the tests in the estimate of the time left (Schedule), so rough factors do. A prompt's token costs a tenth,
// because the tokens of a block share the weights that are read. A pass of n sequences costs 0.8 + 0.2 n: the weights are read
// once, and each sequence adds its attention. One sequence has a warm-up beside its repetitions.
double work(const Arguments& arguments, const Test& test) {
    const double sequences = test.sequences;
    if (test.sequences == 0) return (arguments.repetitions + 1) * (test.generated + test.prompt * 0.1);
    return arguments.repetitions * (0.1 * sequences * test.prompt + (0.8 + 0.2 * sequences) * test.generated);
}

// The options with slots and a cache for each of the tests.
// All tests of a cache share one forward, so it has room for the greatest of them. Passes read the pages of their own tokens
// only.
ForwardOptions with_room(ForwardOptions options, std::span<const Test> tests) {
    uint32_t pages = 0;
    options.context_size = conformance::check_tokens; // at least
    for (const Test& test : tests) {
        options.context_size = std::max(options.context_size, test.length());
        options.slots = std::max(options.slots, test.slots());
        pages = std::max(pages, test.slots() * pages_of(test.length()));
    }
    if (tests[0].sequences > 0) options.cache_tokens = pages * page_tokens;
    return options;
}

// The number of the test that is run, of how many, and the time that the rest may take.
class Schedule {
  public:
    // work: of each test, in any unit; all of them are run with every model, device, cache, batch size and number of threads.
    Schedule(const Arguments& arguments, const std::vector<double>& work) {
        for (const ModelArguments& model : arguments.model_list()) {
            const size_t threads = chooses_cpu(model.device) ? arguments.thread_list().size() : 1;
            const size_t times = arguments.caches().size() * arguments.batch_list().size() * threads;
            count_ += times * work.size();
            work_ += double(times) * std::accumulate(work.begin(), work.end(), 0.0);
        }
    }

    void begin() { number_++; }
    void end(double work) { done_ += work; }
    // Returns "test 3 of 12, about 2:10 left".
    std::string text() const { return fmt::format("test {} of {}{}", number_, count_, left_.after(done_, work_)); }

  private:
    size_t number_ = 0, count_ = 0;
    double done_ = 0, work_ = 0;
    TimeLeft left_;
};

// All tests on one model and one device.
class TestRun {
  public:
    TestRun(const Arguments& arguments, Subject& subject, Console& console, Reporters& reporters, Schedule& schedule);

    bool all(); // whether everything could be measured; throws LoadStopped on Ctrl-C

  private:
    void run_cache(KvOptions kv);
    std::optional<std::string> problem(const Test& test, const KvOptions& kv) const;
    std::vector<Test> choose_tests(const KvOptions& kv);
    void measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check);
    Result measure(Sequences& sequences, const Test& test, const ForwardOptions& options);

    std::unique_ptr<Forward> make_forward(const Config& config, const Weights& weights, ForwardOptions options);
    std::optional<Check> check(const KvOptions& kv);
    Limits measure_limits();
    uint32_t usual_batch() const;
    void report(const std::string& what); // as status
    void wait();                          // as --delay requests

    const Arguments& arguments_;
    const Subject& subject_;
    Setup& setup_;
    Console& console_;
    Reporters& reporters_;
    Schedule& schedule_;
    Checker checker_;
    EnergyMeter meter_;
    bool profiled_ = false, good_ = true;
    std::optional<Limits> limits_;
};

std::optional<PciId> pci_id(const Setup& setup) {
    if (!setup.device) return std::nullopt;
    return PciId{setup.device->capabilities().vendor_id, setup.device->capabilities().device_id};
}

TestRun::TestRun(const Arguments& arguments, Subject& subject, Console& console, Reporters& reporters, Schedule& schedule)
    : arguments_(arguments), subject_(subject), setup_(subject.setup), console_(console), reporters_(reporters),
      schedule_(schedule), checker_(
                               setup_,
                               [this](const conformance::CutModel& model, const ForwardOptions& options) {
                                   return make_forward(model.config, model.weights, options);
                               },
                               [this](const std::string& what) { console_.say(what); }),
      meter_(pci_id(setup_)) {
    if (arguments.together()) return;
    if (arguments.profile && !setup_.device)
        write_error("tq-run: --profile times the kernels of Vulkan devices, not of the CPU; --kernels times some of both\n");
    if (arguments.console.verbose && !meter_.available()) write_error("energy: not available\n");
    const auto is_json = [](std::optional<Format> format) { return format == Format::json || format == Format::jsonl; };
    const bool structured = is_json(arguments.output()) || is_json(arguments.error_output());
    profiled_ = setup_.device && (arguments.profile || structured);
    if ((profiled_ || structured) && !arguments.no_limits) limits_ = measure_limits();
}

Limits TestRun::measure_limits() {
    report("measuring what the device can do");
    if (setup_.device) return bench::measure_limits(*setup_.device);
    ThreadPool pool(arguments_.thread_list()[0]);
    return measure_cpu_limits(pool);
}

void TestRun::report(const std::string& what) {
    if (arguments_.console.verbose || arguments_.progress)
        write_error(fmt::format("tq-run bench: {}, {}: {}\n", subject_.label, setup_.device_name, what));
    else
        console_.status(fmt::format("{}, {}", what, subject_.label));
}

void TestRun::wait() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(arguments_.delay_seconds);
    if (arguments_.delay_seconds > 0) report(fmt::format("{}: waiting for {} s", schedule_.text(), arguments_.delay_seconds));
    while (!interrupted() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

std::unique_ptr<Forward> TestRun::make_forward(const Config& config, const Weights& weights, ForwardOptions options) {
    options.memory_bytes = setup_.options.memory_bytes;
    TransferStatus status(console_);
    const LoadProgress on_load = status.loading(fmt::format("loading {}", setup_.model.name));
    Placing placing = setup_.placing();
    if (&weights != &setup_.model.weights) placing.ranks = nullptr; // a part of the model, for a check of this rank's device
    return placing.open(config, weights, options, on_load, {});
}

// Throws Error when the logits are wrong; returns nothing if the check is turned off.
std::optional<Check> TestRun::check(const KvOptions& kv) {
    if (arguments_.unchecked) return std::nullopt;
    report(fmt::format("checking {} of {} layers", checker_.layers(), setup_.model.config.num_hidden_layers));
    return checker_(kv);
}

uint32_t TestRun::usual_batch() const {
    if (setup_.ranks) return setup_.ranks->batch_size();
    return setup_.device ? gpu::tuning_for(setup_.device->capabilities()).batch_size : cpu_batch_size;
}

bool TestRun::all() {
    warn_of_reading(setup_);
    const bool ran = run_caches(arguments_, setup_, console_, [this](KvOptions kv) { run_cache(std::move(kv)); });
    return ran && good_;
}

// Tests that do not fit are left out before the check, so that a cache without any test costs nothing. Block sizes and numbers of
// threads each need a forward of their own; the check does not depend on them and is done once.
void TestRun::run_cache(KvOptions kv) {
    if (!setup_.ranks && wants_measured_keys(kv, setup_.model)) {
        const auto open = [this](const ForwardOptions& exact) {
            return make_forward(setup_.model.config, setup_.model.weights, exact);
        };
        kv.conditioning.calibration = measured_keys(setup_.model, setup_.options, console_, open);
    }
    const std::vector<Test> tests = choose_tests(kv);
    if (tests.empty()) return;
    const std::optional<Check> checked = check(kv);
    for (const uint32_t batch : arguments_.batch_list())
        for (const uint32_t threads : setup_.device ? std::vector<uint32_t>{0} : arguments_.thread_list())
            measure({.kv = kv, .threads = thread_count(threads), .batch_size = batch == 0 ? usual_batch() : batch}, tests,
                    checked);
}

// Returns why a test does not fit, if it does not.
std::optional<std::string> TestRun::problem(const Test& test, const KvOptions& kv) const {
    constexpr uint64_t max = UINT32_MAX / page_tokens * page_tokens;
    const uint64_t tokens = uint64_t(pages_of(test.length())) * page_tokens * test.slots();
    if (tokens > max) return fmt::format("its sequences take {} tokens, and a cache has at most {}", tokens, max);
    ForwardOptions options = setup_.options;
    options.kv = kv;
    const MemoryPlan plan = setup_.plan(with_room(std::move(options), {&test, 1}));
    if (plan.runs()) return std::nullopt;
    return fmt::format("{} with a cache of {} does not fit the memory of {}: {}{}", setup_.model.name, describe(kv),
                       setup_.device_name, describe(plan),
                       test.sequences > 0 ? ". Choose fewer sequences, shorter ones or smaller cache types (-ctk, -ctv)" : "");
}

// Leaves out tests that do not fit the memory with this cache, and reports them.
std::vector<Test> TestRun::choose_tests(const KvOptions& kv) {
    std::vector<Test> fitting;
    for (const Test& test : arguments_.tests())
        if (const auto why = problem(test, kv)) {
            console_.say(fmt::format("{}: {}", test.name(), *why));
            good_ = false;
        } else {
            fitting.push_back(test);
        }
    return fitting;
}

// Runs the tests of one cache, block size and number of threads on a single Forward. kv_bytes: bytes of the cache that a token
// reads on average, with the tokens at `depth` and half of the test's own before it.
void TestRun::measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check) {
    options = with_room(std::move(options), tests);
    const auto forward = make_forward(setup_.model.config, setup_.model.weights, options);
    Sequences sequences(*forward, setup_.model.config.vocab_size);
    for (const Test& test : tests) {
        schedule_.begin();
        wait();
        Result result = measure(sequences, test, options);
        console_.clear_status();
        if (result.samples.empty()) throw LoadStopped();
        result.check = check;
        result.max_tokens = forward->cache().shape().pages * page_tokens;
        result.kv_bytes = double(forward->kv_bytes_per_token()) * (test.depth + (double(test.tokens()) + 1) / 2.0);
        schedule_.end(work(arguments_, test));
        reporters_.add(row_of(subject_, result, limits_));
        if (interrupted()) throw LoadStopped();
    }
}

// The result has no samples after Ctrl-C.
// Energy counts only if all repetitions were run: the meter runs over them all, and a stopped one would be in the joules but not
// in the tokens. The profile comes last, in passes of its own.
Result TestRun::measure(Sequences& sequences, const Test& test, const ForwardOptions& options) {
    Result result{
        .test = test, .kv = options.kv, .batch_size = options.batch_size, .threads = options.threads, .test_time = utc_text()};
    const auto step = [&](const std::string& what) {
        report(fmt::format("{}: {}, {}: {}", schedule_.text(), describe(options.kv), test.name(), what));
    };
    const bool compares = test.sequences > 0 && !arguments_.unchecked;
    step(compares ? "checking the sequences together against the same alone" : "warming up");
    const auto company = sequences.begin(test, compares);
    if (!company) return result;
    result.company = *company;
    meter_.start();
    result.samples = repeat(arguments_, step, [&] { return sequences.time(test); });
    result.energy = meter_.stop();
    if (result.samples.size() < arguments_.repetitions) result.energy.clear(); // the stopped run used part of it
    if (profiled_ && !result.samples.empty() && !interrupted()) {
        Profiled profiled = sequences.profile(*setup_.device, test);
        result.kernels = std::move(profiled.kernels);
        result.profiled_tokens = profiled.tokens;
    }
    return result;
}

} // namespace

int run_subjects(const Arguments& arguments, Console& console, const std::function<bool(Subject&)>& run,
                 const std::function<void()>& finish) {
    bool good = true;
    const auto end = [&] {
        console.clear_status();
        finish();
    };
    try {
        for (const ModelArguments& model : arguments.model_list()) {
            Subject subject =
                open_subject(model, arguments.speculation.on() ? arguments.speculation.drafting() : Drafting{}, console);
            catch_interrupts();
            good &= run(subject);
        }
    } catch (const LoadStopped&) {
        end();
        return 130;
    } catch (const Error&) {
        end();
        throw;
    }
    end();
    return good ? 0 : 1;
}

bool run_caches(const Arguments& arguments, const Setup& setup, Console& console, const std::function<void(KvOptions)>& run) {
    bool good = true;
    const auto fail_with = [&](const std::string& what) {
        console.say(what);
        good = false;
    };
    for (KvOptions& kv : arguments.caches()) try {
            load_conditioning(kv.conditioning, setup.model, console);
            check_kv(kv, setup.model.config);
            run(kv);
        } catch (const Error& error) { // the rest can still be measured
            fail_with(error.what());
        } catch (const std::bad_alloc&) {
            fail_with(fmt::format("out of memory for {} with a cache of {}", setup.model.name, describe(kv)));
        }
    return good;
}

int run_tests(const Arguments& arguments, Console& console) {
    const std::vector<Test> tests = arguments.tests();
    if (tests.empty()) throw UsageError("bench has nothing to measure: every -p and -n is 0");
    Reporters reporters(arguments, arguments.together() ? batched_layout() : test_layout(arguments));
    std::vector<double> each;
    for (const Test& test : tests) each.push_back(work(arguments, test));
    Schedule schedule(arguments, each);
    return run_subjects(
        arguments, console, [&](Subject& subject) { return TestRun(arguments, subject, console, reporters, schedule).all(); },
        [&] { reporters.finish(); });
}

} // namespace tq::bench
