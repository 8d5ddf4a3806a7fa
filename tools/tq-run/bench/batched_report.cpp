#include "tools/tq-run/bench/batched_report.h"
#include "tools/tq-run/bench/llama_bench.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/console.h"
#include "tools/tq-run/table.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tq::bench {
namespace {

const std::vector<std::string> column_names{"PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"};
const std::vector<int> column_widths{5, 6, 4, 6, 8, 8, 8, 8, 8, 8};

// Of one run: seconds, and tokens per second of all sequences.
struct Speeds {
    double prompt_seconds, generated_seconds, prompt, generated, all;

    explicit Speeds(const BatchedResult& r)
        : prompt_seconds(std::max(r.prompt_ns().mean, 1.0) * 1e-9),
          generated_seconds(std::max(r.generated_ns().mean, 1.0) * 1e-9),
          prompt(double(r.test.sequences) * r.test.prompt / prompt_seconds),
          generated(double(r.test.sequences) * r.test.generated / generated_seconds), all(double(r.test.tokens()) / seconds()) {}
    double seconds() const { return prompt_seconds + generated_seconds; }
};

std::string heading(const Subject& subject, const BatchedResult& r) {
    const Setup& setup = subject.setup;
    const std::string where = setup.device ? setup.device_name : fmt::format("CPU, {} threads", r.threads);
    return fmt::format("{} on {}, cache {}, blocks of {}{}", subject.label, where, describe(r.kv), r.batch_size,
                       r.test.depth > 0 ? fmt::format(", each sequence after {} tokens", r.test.depth) : "");
}

template <class T> std::vector<T> part_of(const std::vector<BatchedTime>& samples, uint64_t BatchedTime::*part) {
    std::vector<T> out;
    for (const BatchedTime& time : samples) out.push_back(T(time.*part));
    return out;
}

} // namespace

Statistics BatchedResult::prompt_ns() const { return statistics(part_of<double>(samples, &BatchedTime::prompt_ns)); }
Statistics BatchedResult::generated_ns() const { return statistics(part_of<double>(samples, &BatchedTime::generated_ns)); }

Json to_json(const Subject& subject, const BatchedResult& r) {
    const Setup& setup = subject.setup;
    const Speeds speeds(r);
    Json out{{"n_kv_max", r.max_tokens},
             {"n_batch", r.batch_size},
             {"n_ubatch", r.batch_size},
             {"flash_attn", 1},
             {"is_pp_shared", 0},
             {"is_tg_separate", 0},
             {"n_gpu_layers", n_gpu_layers(setup)},
             {"n_threads", r.threads},
             {"n_threads_batch", r.threads},
             {"pp", r.test.prompt},
             {"tg", r.test.generated},
             {"pl", r.test.sequences},
             {"n_kv", r.test.cached_tokens()},
             {"t_pp", speeds.prompt_seconds},
             {"speed_pp", speeds.prompt},
             {"t_tg", speeds.generated_seconds},
             {"speed_tg", speeds.generated},
             {"t", speeds.seconds()},
             {"speed", speeds.all}};
    out.update(describe_machine());
    out["schema"] = batched_schema_name;
    out["version"] = 1;
    out.update({{"n_depth", r.test.depth},
                {"samples_pp_ns", part_of<uint64_t>(r.samples, &BatchedTime::prompt_ns)},
                {"samples_tg_ns", part_of<uint64_t>(r.samples, &BatchedTime::generated_ns)},
                {"test_time", r.test_time},
                {"cache", describe(r.kv)},
                {"type_k", type_of(r.kv, KvSide::key)},
                {"type_v", type_of(r.kv, KvSide::value)},
                {"model_filename", subject.file.empty() ? setup.model.name : subject.file},
                {"model_type", subject.label},
                {"model", describe_model(setup)},
                {"device", describe_device(setup.device.get())},
                {"checked", r.check.has_value()}});
    out["device"]["index"] = subject.device_index;
    if (r.check) out["check"] = to_json(*r.check);
    if (r.company.sequences != 0)
        out["company"] = {{"n_prompt", r.company.prompt}, {"n_gen", r.company.generated}, {"sequences", r.company.sequences}};
    return out;
}

void BatchedReporter::add_row(const Subject& subject, const BatchedResult& r) {
    if (const std::string now = heading(subject, r); now != heading_) {
        write_(fmt::format("{}{}\n\n{}{}", begun_ ? "\n" : "", now, table_row(column_names, column_widths),
                           table_rule(column_widths)));
        heading_ = now;
    }
    const Speeds speeds(r);
    const auto text = [](auto value) { return fmt::format("{}", value); };
    const auto seconds = [](double value) { return fmt::format("{:.3f}", value); };
    const auto rate = [](double value) { return fmt::format("{:.2f}", value); };
    write_(table_row({text(r.test.prompt), text(r.test.generated), text(r.test.sequences), text(r.test.cached_tokens()),
                      seconds(speeds.prompt_seconds), rate(speeds.prompt), seconds(speeds.generated_seconds),
                      rate(speeds.generated), seconds(speeds.seconds()), rate(speeds.all)},
                     column_widths));
}

void BatchedReporter::add_footer(const Subject& subject, const BatchedResult& r) {
    const auto add = [&](std::string line) {
        if (std::ranges::find(footer_, line) == footer_.end()) footer_.push_back(std::move(line));
    };
    const std::string what = fmt::format("{}, {} on {}", subject.label, describe(r.kv), backend(subject.setup));
    if (!r.check) add(fmt::format("{}: unchecked", what));
    if (r.check)
        add(fmt::format("{}: logits of {} layers differ from the reference by {:.1e} (limit {:.0e})", what, r.check->cache.layers,
                        r.check->cache.error, r.check->cache.bounds.limit));
    if (r.company.sequences != 0) {
        std::string& counts =
            company_[fmt::format("{}: {} prompt tokens and {} sampled ones", what, r.company.prompt, r.company.generated)];
        counts += fmt::format("{}{}{}", counts.empty() ? "" : ", ", r.test.sequences,
                              r.test.depth > 0 ? fmt::format(" @ d{}", r.test.depth) : "");
    }
    repetitions_ = std::max(repetitions_, r.samples.size());
    for (const Statistics& ns : {r.prompt_ns(), r.generated_ns()})
        deviation_ = std::max(deviation_, ns.deviation / std::max(ns.mean, 1.0));
}

void BatchedReporter::add(const Subject& subject, const BatchedResult& result) {
    if (format_ == Format::markdown) {
        add_row(subject, result);
        add_footer(subject, result);
    } else {
        const Json json = to_json(subject, result);
        if (format_ == Format::csv)
            write_((begun_ ? "" : csv_header(json)) + csv_row(json));
        else if (format_ == Format::jsonl)
            write_(json.dump() + "\n");
        else
            results_.push_back(json);
    }
    begun_ = true;
}

void BatchedReporter::finish() {
    if (format_ == Format::json) write_(results_.dump(1) + "\n");
    if (format_ != Format::markdown || !begun_) return;
    if (repetitions_ > 1)
        footer_.insert(footer_.begin(), fmt::format("times are means of {} runs; their greatest standard deviation is {:.1f} %",
                                                    repetitions_, 100 * deviation_));
    for (const auto& [what, counts] : company_)
        footer_.push_back(fmt::format("{} of the first, the middle and the last of {} sequences have bit for bit the logits that "
                                      "they have alone",
                                      what, counts));
    write_(fmt::format("\n{}\nbuild: {}\n", fmt::join(footer_, "\n"), build_description()));
}

BatchedReporters::BatchedReporters(const Arguments& arguments) {
    all_.emplace_back(arguments.output(), write_output);
    if (const auto format = arguments.error_output()) all_.emplace_back(*format, write_error);
}

void BatchedReporters::add(const Subject& subject, const BatchedResult& result) {
    for (BatchedReporter& reporter : all_) reporter.add(subject, result);
}

void BatchedReporters::finish() {
    for (BatchedReporter& reporter : all_) reporter.finish();
}

} // namespace tq::bench
