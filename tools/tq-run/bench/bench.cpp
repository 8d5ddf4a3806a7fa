// tq-run bench: tokens per second, in llama-bench's terms, of results that were checked first.
#include "base/interrupt.h"
#include "model/load.h"
#include "tools/quality/ablation_record.h"
#include "tools/tq-run/bench/batched.h"
#include "tools/tq-run/bench/batched_compare.h"
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/kernels.h"
#include "tools/tq-run/bench/llama_bench.h"
#include "tools/tq-run/bench/measure.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/speculation.h"
#include "tools/tq-run/bench/subject_run.h"
#include "tools/tq-run/bench/tune.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/ranks.h"
#include <chrono>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using namespace bench;
using bench::Arguments;

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
class Run final : public SubjectRun {
  public:
    Run(const Arguments& arguments, Subject& subject, Console& console, Reporters& reporters, Schedule& schedule)
        : SubjectRun(arguments, subject, console, schedule), reporters_(reporters), tests_(arguments.tests()),
          meter_(setup_.device
                     ? std::optional(PciId{setup_.device->capabilities().vendor_id, setup_.device->capabilities().device_id})
                     : std::nullopt) {
        if (arguments.profile && !setup_.device)
            write_error("tq-run: --profile times the kernels of Vulkan devices, not of the CPU; --kernels times some of both\n");
        if (arguments.console.verbose && !meter_.available()) write_error("energy: not available\n");
        const auto is_json = [](std::optional<Format> format) { return format == Format::json || format == Format::jsonl; };
        const bool structured = is_json(arguments.output()) || is_json(arguments.error_output());
        profiled_ = setup_.device && (arguments.profile || structured);
        if ((profiled_ || structured) && !arguments.no_limits) limits_ = measure_limits();
    }

  private:
    bool choose_tests(const KvOptions& kv) override;
    void measure(ForwardOptions options, const std::optional<Check>& check) override;
    Limits measure_limits();

    Reporters& reporters_;
    const std::vector<Test> tests_;
    std::vector<Test> fitting_; // with the cache of the moment
    EnergyMeter meter_;
    bool profiled_ = false;
    std::optional<Limits> limits_;
};

// What ranks that share a model have done since.
class RankMeter {
  public:
    explicit RankMeter(const RankGroup* ranks) : ranks_(ranks) {
        if (ranks_) before_ = ranks_->use();
    }
    void read(Result& result) const {
        if (!ranks_) return;
        result.rank_ns = uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began_).count());
        const std::vector<RankUse> now = ranks_->use();
        for (size_t i = 0; i < now.size(); i++) result.ranks.push_back(now[i].since(before_[i]));
    }

  private:
    const RankGroup* const ranks_;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::vector<RankUse> before_;
};

// In units of one generated token: the tokens of a prompt share the weights that are read.
double work(const Arguments& arguments, const Test& test) {
    return (arguments.repetitions + 1) * (test.generated + test.prompt * 0.1);
}

Limits Run::measure_limits() {
    report("measuring what the device can do");
    if (setup_.device) return bench::measure_limits(*setup_.device);
    ThreadPool pool(arguments_.thread_list()[0]);
    return measure_cpu_limits(pool);
}

bool Run::choose_tests(const KvOptions& kv) {
    fitting_.clear();
    for (const Test& test : tests_) {
        const MemoryPlan plan = setup_.plan(context_for({&test, 1}), kv);
        if (plan.runs())
            fitting_.push_back(test);
        else
            complain(fmt::format("{}: {} with a cache of {} does not fit the memory of {}: {}", test.name(), setup_.model.name,
                                 describe(kv), setup_.device_name, describe(plan)));
    }
    return !fitting_.empty();
}

void Run::measure(ForwardOptions options, const std::optional<Check>& check) {
    options.context_size = context_for(fitting_);
    const auto forward = make_forward(setup_.model.config, setup_.model.weights, options);
    const uint32_t vocab_size = setup_.model.config.vocab_size;
    for (const Test& test : fitting_) {
        schedule_.begin();
        wait();
        const std::string started = quality::time_stamp();
        const RankMeter ranks(setup_.ranks);
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
        ranks.read(result);
        result.kv_bytes = double(forward->kv_bytes_per_token()) * (test.depth + (test.tokens() + 1) / 2.0);
        if (profiled_ && !interrupted()) {
            Profiled profiled = profile_test(*setup_.device, *forward, vocab_size, test);
            result.kernels = std::move(profiled.kernels);
            result.profiled_tokens = profiled.tokens;
        }
        console_.clear_status();
        schedule_.end(work(arguments_, test));
        reporters_.add(subject_, result, limits_);
        if (interrupted()) throw LoadStopped();
    }
}

int run_tests(const Arguments& arguments, Console& console) {
    const std::vector<Test> tests = arguments.tests();
    if (tests.empty()) throw UsageError("bench has nothing to measure: every -p and -n is 0");
    Reporters reporters;
    reporters.all.emplace_back(arguments, arguments.output(), write_output);
    if (const auto format = arguments.error_output()) reporters.all.emplace_back(arguments, *format, write_error);
    std::vector<double> each;
    for (const Test& test : tests) each.push_back(work(arguments, test));
    Schedule schedule(arguments, each);
    return run_subjects(
        arguments, console, [&](Subject& subject) { return Run(arguments, subject, console, reporters, schedule).all(); },
        [&] { reporters.finish(); });
}

// The limits of each device; no model is needed.
int run_limits(const Arguments& arguments) {
    Json all = describe_machine();
    all["limits"] = Json::array();
    const bool as_table = arguments.output() == Format::markdown;
    for (const std::string& selector : arguments.device_list()) {
        const auto found = find_devices(selector);
        require_chosen(selector, found, found.size());
        const auto device = found.empty() ? nullptr : open_tried(found[0]);
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
    const std::vector<ResultFile> files = read_files(arguments.compare);
    if (const Format format = arguments.output(); format != Format::markdown) {
        const Json all = has_batched_results(files) ? batched_comparison_json(files) : comparison_json(compare_results(files));
        if (format == Format::csv) write_output(csv_of(all));
        if (format == Format::json) write_output(all.dump(1) + "\n");
        if (format == Format::jsonl)
            for (const Json& one : all) write_output(one.dump() + "\n");
        return 0;
    }
    write_output(has_batched_results(files) ? batched_comparison(files) : comparison_table(compare_results(files)));
    return 0;
}

// Ranks share one model, whose tests rank 0 runs.
std::optional<int> run_as_rank_of(const Arguments& arguments) {
    if (arguments.placement.layers_per_rank.empty()) return std::nullopt;
    const bool other =
        arguments.limits || arguments.kernels || arguments.tune || arguments.speculation.on() || !arguments.compare.empty();
    std::vector<ModelArguments> models = arguments.model_list();
    if (other || models.size() != 1)
        throw UsageError("--layers-per-rank measures one model, without --limits, --kernels, --tune, --spec and --compare");
    models[0].context_size = 1;
    models[0].threads = arguments.thread_list()[0];
    return run_as_rank(models[0]);
}

int run(const Arguments& arguments) {
    const Format format = arguments.output();
    const bool other = arguments.limits || arguments.kernels || arguments.tune || arguments.speculation.on();
    if (other && (format == Format::csv || format == Format::sql))
        throw UsageError("--limits, --kernels, --tune and --spec print md, json or jsonl, not csv or sql");
    if (!arguments.spec_text.empty() && !arguments.speculation.on())
        throw UsageError("--spec-text is a text for --spec: give --spec ngram, or --spec draft with -md");
    if (!arguments.parallel.empty() && (format == Format::sql || arguments.error_output() == Format::sql))
        throw UsageError("-np prints md, json, jsonl or csv, not sql: llama-bench's table has no such results");
    if (!arguments.compare.empty() && format == Format::sql)
        throw UsageError("--compare prints md, csv, json or jsonl, not sql: llama-bench's table has single results");
    if (!arguments.compare.empty()) return compare(arguments);
    if (const auto status = run_as_rank_of(arguments)) return *status;
    Console console = arguments.console.console();
    if (arguments.limits) return run_limits(arguments);
    if (arguments.kernels) return run_kernels(arguments, console);
    if (arguments.tune) return run_tune(arguments, console);
    if (!arguments.parallel.empty()) return run_batched(arguments, console);
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
