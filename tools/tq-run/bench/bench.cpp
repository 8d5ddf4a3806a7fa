// tq-run bench: tokens per second, in llama-bench's terms, of results that were checked first.
#include "base/interrupt.h"
#include "model/calibration.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning.h"
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/kernels.h"
#include "tools/tq-run/bench/measure.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/tune.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/progress.h"
#include <new>

namespace tq {
namespace {

using namespace bench;
using bench::Arguments;
using conformance::check_tokens, conformance::CutModel;

constexpr int failed = 1, stopped = 130;

// Everything on one model and one device.
class Run {
  public:
    Run(const Arguments& arguments, Setup& setup, Console& console, Reporter& reporter)
        : arguments_(arguments), setup_(setup), console_(console), reporter_(reporter), tests_(arguments.tests()),
          meter_(setup.device
                     ? std::optional(PciId{setup.device->capabilities().vendor_id, setup.device->capabilities().device_id})
                     : std::nullopt) {
        if (arguments.profile && !setup.device)
            write_error("tq-run: --profile times the kernels of Vulkan devices, not of the CPU; --kernels times some of both\n");
        if (arguments.console.verbose && !meter_.available()) write_error("energy: not available\n");
        const bool structured = arguments.output() == Format::json || arguments.output() == Format::jsonl;
        profiled_ = setup.device && (arguments.profile || structured);
        if ((profiled_ || structured) && !arguments.no_limits) limits_ = measure();
    }

    // Whether everything could be measured.
    bool all();

  private:
    Limits measure();
    std::unique_ptr<Forward> make_forward(const Config& config, const Weights& weights, const ForwardOptions& options);
    std::optional<Check> check(const KvOptions& kv);
    void measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check);
    std::vector<Test> fitting(const KvOptions& kv);
    void complain(const std::string& what);
    void report(const std::string& what);

    const Arguments& arguments_;
    Setup& setup_;
    Console& console_;
    Reporter& reporter_;
    const std::vector<Test> tests_;
    EnergyMeter meter_;
    bool profiled_ = false, good_ = true;
    std::optional<Limits> limits_;
};

void Run::report(const std::string& what) {
    const std::string line = fmt::format("{}, {}: {}", setup_.model.name, setup_.device_name, what);
    if (arguments_.console.verbose)
        write_error(line + "\n");
    else
        console_.status(line);
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

// Throws Error when the logits are wrong; nothing where it is not to be checked.
std::optional<Check> Run::check(const KvOptions& kv) {
    if (arguments_.unchecked) return std::nullopt;
    const CutModel cut = conformance::cut_model(setup_.model.config, setup_.model.weights);
    report(fmt::format("checking {} of {} layers", cut.config.num_hidden_layers, setup_.model.config.num_hidden_layers));
    const auto reference = conformance::reference_logits(cut, kv, [] { return !interrupted(); });
    if (reference.empty()) throw LoadStopped();
    const auto forward = make_forward(cut.config, cut.weights, {.kv = kv, .context_size = check_tokens});
    const bool halves = setup_.device && gpu::choose_tuning(setup_.device->capabilities()).rounds_to_halves();
    const Check check = conformance::compare_logits(*forward, reference, cut, halves);
    if (!check.passed())
        fail("{} with a cache of {} on {}: logits differ from the reference by {:.3g} of their length, and at most {:.0e} is "
             "right: "
             "nothing is timed. tq-run conformance finds the kernel; --no-check times all the same",
             setup_.model.name, describe(kv), setup_.device_name, check.error, check.limit);
    return check;
}

// The tests that fit the memory with this cache; complains of the others.
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

void Run::complain(const std::string& what) {
    console_.clear_status();
    write_error(fmt::format("tq-run: {}\n", what));
    good_ = false;
}

void Run::measure(ForwardOptions options, std::span<const Test> tests, const std::optional<Check>& check) {
    options.context_size = context_for(tests);
    const auto forward = make_forward(setup_.model.config, setup_.model.weights, options);
    const uint32_t vocab_size = setup_.model.config.vocab_size;
    for (const Test& test : tests) {
        const Timed timed = time_test(*forward, vocab_size, test, arguments_.repetitions, meter_, [&](const std::string& what) {
            report(fmt::format("{}, {}", describe(options.kv), what));
        });
        if (timed.ns.empty()) throw LoadStopped();
        Result result{test, options.kv,  options.batch_size, options.threads, timed.ns, check, weight_bytes_per_token(setup_),
                      0,    timed.energy};
        result.kv_bytes = double(forward->kv_bytes_per_token()) * (test.depth + (test.tokens() + 1) / 2.0);
        if (profiled_ && !interrupted()) {
            Profiled profiled = profile_test(*setup_.device, *forward, vocab_size, test);
            result.kernels = std::move(profiled.kernels);
            result.profiled_tokens = profiled.tokens;
        }
        console_.clear_status();
        reporter_.add(setup_, result, limits_);
        if (interrupted()) throw LoadStopped();
    }
}

bool Run::all() {
    std::vector<KvOptions> caches = arguments_.caches();
    for (KvOptions& kv : caches) try {
            load_conditioning(kv.conditioning, setup_.model.config, setup_.model.weights);
            check_kv(kv, setup_.model.config.num_hidden_layers);
            const std::vector<Test> tests = fitting(kv);
            if (tests.empty()) continue;
            const std::optional<Check> checked = check(kv);
            for (const uint32_t batch : arguments_.batch_list())
                for (const uint32_t threads : setup_.device ? std::vector<uint32_t>{0} : arguments_.thread_list())
                    measure({.kv = kv, .threads = threads, .batch_size = batch}, tests, checked);
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
    Reporter reporter(arguments.output());
    bool good = true;
    try {
        for (ModelArguments model : arguments.model_list()) {
            model.context_size = 1; // each run says what it needs; a warning of too long a context would be of no use
            Setup setup = set_up(model, console);
            catch_interrupts();
            good &= Run(arguments, setup, console, reporter).all();
        }
    } catch (const LoadStopped&) {
        console.clear_status();
        reporter.finish();
        return stopped;
    } catch (const Error&) {
        console.clear_status();
        reporter.finish();
        throw;
    }
    console.clear_status();
    reporter.finish();
    return good ? 0 : failed;
}

// What each device can do; no model is needed.
int run_limits(const Arguments& arguments) {
    Json all = describe_machine();
    all["limits"] = Json::array();
    const bool as_table = arguments.output() == Format::markdown;
    for (const std::string& selector : arguments.device_list()) {
        const auto device = selector == "cpu" ? nullptr : std::make_unique<Device>(selector);
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
    const Comparison comparison = read_results(arguments.compare);
    write_output(comparison_table(comparison));
    if (arguments.plots.empty()) return 0;
    for (const auto& path : write_plots(comparison, arguments.plots)) write_error(fmt::format("wrote {}\n", path.string()));
    return 0;
}

int run(const Arguments& arguments) {
    if ((arguments.limits || arguments.kernels || arguments.tune) && arguments.output() == Format::csv)
        throw UsageError("--limits, --kernels and --tune print md, json or jsonl, not csv");
    if (!arguments.compare.empty()) return compare(arguments);
    Console console = arguments.console.console();
    if (arguments.limits) return run_limits(arguments);
    if (arguments.kernels) return run_kernels(arguments, console);
    if (arguments.tune) return run_tune(arguments, console);
    return run_tests(arguments, console);
}

} // namespace

void add_bench(CLI::App& app, Action& action) {
    add_command<Arguments>(
        app, action, "bench", "Tokens per second, checked before they are timed; limits, kernels, comparisons",
        [](CLI::App& command, Arguments& a) { bench::add_flags(command, a); }, run);
}

} // namespace tq
