// tq-run bench: tokens per second, in llama-bench's terms, of results that were checked first.
// One command has six measurements: tests (the default), --limits, --kernels, --tune, --spec and --compare. run() first refuses
// what cannot go together, then does what needs no device (--compare), then enters an MPI job if there is one, and only then
// opens devices, so a wrong command line fails at once.
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/kernels.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/run.h"
#include "tools/tq-run/bench/speculation.h"
#include "tools/tq-run/bench/tune.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/proof.h"
#include "tools/tq-run/engine/ranks.h"

namespace tq::bench {
namespace {

// The limits of each device; no model is needed.
int run_limits(const Arguments& arguments) {
    const auto text = [](const Row& row) {
        return fmt::format("{}\n{}", row.fields.at("device").at("name").get<std::string>(), limits_table(row.fields));
    };
    Reporters reporters(arguments, {.heading = text, .list = "limits"});
    for (const std::string& selector : arguments.device_list()) {
        const auto found = find_devices(selector);
        require_chosen(selector, found, found.size());
        const auto device = found.empty() ? nullptr : open_tried(found[0]);
        Json json{{"device", describe_device(device.get())}};
        ThreadPool pool(arguments.thread_list()[0]);
        json.update(to_json(device ? measure_limits(*device) : measure_cpu_limits(pool)));
        reporters.add({std::move(json)});
    }
    reporters.finish();
    return 0;
}

int compare(const Arguments& arguments) {
    const Comparison all = compare_results(read_files(arguments.compare));
    if (arguments.output() == Format::markdown) {
        write_text(comparison_table(all));
        return 0;
    }
    Reporter reporter({}, arguments.output(), write_output);
    for (Json& row : comparison_rows(all)) reporter.add({std::move(row)});
    reporter.finish();
    return 0;
}

// Ranks share one model, whose tests rank 0 runs.
std::optional<int> run_as_rank_of(const Arguments& arguments) {
    if (arguments.model.placement.layers_per_rank.empty()) return std::nullopt;
    const bool other =
        arguments.limits || arguments.kernels || arguments.tune || arguments.speculation.on() || !arguments.compare.empty();
    std::vector<ModelArguments> models = arguments.model_list();
    if (other || models.size() != 1)
        throw UsageError("--layers-per-rank measures one model, without --limits, --kernels, --tune, --spec and --compare");
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
    if (arguments.together() && (format == Format::sql || arguments.error_output() == Format::sql))
        throw UsageError("-np prints md, json, jsonl or csv, not sql: llama-bench's table has no such results");
    if (!arguments.compare.empty() && format == Format::sql)
        throw UsageError("--compare prints md, csv, json or jsonl, not sql: llama-bench's table has single results");
    if (!arguments.compare.empty()) return compare(arguments);
    if (const auto status = run_as_rank_of(arguments)) return *status;
    Console console = arguments.console.console();
    if (arguments.limits) return run_limits(arguments);
    if (arguments.kernels) return run_kernels(arguments, console);
    if (arguments.tune) return run_tune(arguments, console);
    arguments.speculation.check();
    return arguments.speculation.on() ? run_speculation(arguments, console) : run_tests(arguments, console);
}

} // namespace
} // namespace tq::bench

void tq::add_bench(ArgumentParser& app, Action& action) {
    add_command<bench::Arguments>(
        app, action, "bench", "Measure tokens per second, after checking the results; limits, kernels, comparisons, tuning",
        [](ArgumentParser& command, bench::Arguments& a) { bench::add_flags(command, a); }, bench::run);
}
