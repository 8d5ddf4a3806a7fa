#include "tools/tq-run/bench/batched.h"
#include "base/interrupt.h"
#include "model/load.h"
#include "tools/quality/ablation_record.h"
#include "tools/tq-run/bench/batched_report.h"
#include "tools/tq-run/bench/subject_run.h"
#include <algorithm>

namespace tq::bench {
namespace {

// In units of one pass that generates a token of one sequence.
double batched_work(const Arguments& arguments, const BatchedTest& test) {
    const double sequences = test.sequences;
    return arguments.repetitions * (0.1 * sequences * test.prompt + (0.8 + 0.2 * sequences) * test.generated);
}

// The options with slots and a cache for each of the tests.
ForwardOptions with_slots(ForwardOptions options, std::span<const BatchedTest> tests) {
    uint32_t pages = 0;
    for (const BatchedTest& test : tests) {
        const uint32_t each = test.depth + test.prompt + test.generated; // parts below 2^24, and at most 1024 sequences
        options.context_size = std::max(options.context_size, each);
        options.slots = std::max(options.slots, test.sequences);
        pages = std::max(pages, test.sequences * pages_of(each));
    }
    options.cache_tokens = pages * page_tokens;
    return options;
}

class BatchedRun final : public SubjectRun {
  public:
    BatchedRun(const Arguments& arguments, Subject& subject, Console& console, BatchedReporters& reporters, Schedule& schedule)
        : SubjectRun(arguments, subject, console, schedule), reporters_(reporters), tests_(arguments.batched_tests()) {}

  private:
    bool choose_tests(const KvOptions& kv) override;
    void measure(ForwardOptions options, const std::optional<Check>& check) override;
    std::optional<std::string> problem(const BatchedTest& test, const KvOptions& kv) const;
    BatchedResult measure(Sequences& sequences, const BatchedTest& test, const ForwardOptions& options);

    BatchedReporters& reporters_;
    const std::vector<BatchedTest> tests_;
    std::vector<BatchedTest> fitting_; // with the cache of the moment
};

// Returns why a test does not fit, if it does not.
std::optional<std::string> BatchedRun::problem(const BatchedTest& test, const KvOptions& kv) const {
    constexpr uint64_t most = UINT32_MAX / page_tokens * page_tokens;
    const uint64_t tokens =
        uint64_t(pages_of(uint64_t(test.depth) + test.prompt + test.generated)) * page_tokens * test.sequences;
    if (tokens > most) return fmt::format("its sequences take {} tokens, and a cache has at most {}", tokens, most);
    const MemoryPlan plan = setup_.plan(with_slots({.kv = kv}, {&test, 1}));
    if (plan.runs()) return std::nullopt;
    return fmt::format("{} with a cache of {} does not fit the memory of {}: {}. Choose fewer sequences, shorter ones or smaller "
                       "cache types (-ctk, -ctv)",
                       setup_.model.name, describe(kv), setup_.device_name, describe(plan));
}

bool BatchedRun::choose_tests(const KvOptions& kv) {
    fitting_.clear();
    for (const BatchedTest& test : tests_)
        if (const auto why = problem(test, kv))
            complain(fmt::format("{}: {}", test.name(), *why));
        else
            fitting_.push_back(test);
    return !fitting_.empty();
}

void BatchedRun::measure(ForwardOptions options, const std::optional<Check>& check) {
    options = with_slots(options, fitting_);
    const auto forward = make_forward(setup_.model.config, setup_.model.weights, options);
    Sequences sequences(*forward, setup_.model.config.vocab_size);
    for (const BatchedTest& test : fitting_) {
        schedule_.begin();
        wait();
        BatchedResult result = measure(sequences, test, options);
        console_.clear_status();
        if (result.samples.empty()) throw LoadStopped();
        result.check = check;
        result.max_tokens = forward->cache().shape().pages * page_tokens;
        schedule_.end(batched_work(arguments_, test));
        reporters_.add(subject_, result);
        if (interrupted()) throw LoadStopped();
    }
}

// Without samples after Ctrl-C.
BatchedResult BatchedRun::measure(Sequences& sequences, const BatchedTest& test, const ForwardOptions& options) {
    BatchedResult result{.test = test,
                         .kv = options.kv,
                         .batch_size = options.batch_size,
                         .threads = options.threads,
                         .test_time = quality::time_stamp()};
    const auto step = [&](const std::string& what) {
        report(fmt::format("{}: {}, {}: {}", schedule_.text(), describe(options.kv), test.name(), what));
    };
    step(arguments_.unchecked ? "warming up" : "checking the sequences together against the same alone");
    const auto company = sequences.check(test, !arguments_.unchecked);
    if (!company) return result;
    result.company = *company;
    for (uint32_t i = 0; i < arguments_.repetitions; i++) {
        step(fmt::format("{} of {}", i + 1, arguments_.repetitions));
        const auto time = sequences.time(test);
        if (!time) break;
        result.samples.push_back(*time);
    }
    return result;
}

} // namespace

int run_batched(const Arguments& arguments, Console& console) {
    BatchedReporters reporters(arguments);
    std::vector<double> work;
    for (const BatchedTest& test : arguments.batched_tests()) work.push_back(batched_work(arguments, test));
    Schedule schedule(arguments, work);
    return run_subjects(
        arguments, console, [&](Subject& subject) { return BatchedRun(arguments, subject, console, reporters, schedule).all(); },
        [&] { reporters.finish(); });
}

} // namespace tq::bench
