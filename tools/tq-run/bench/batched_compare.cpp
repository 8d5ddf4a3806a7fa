#include "tools/tq-run/bench/batched_compare.h"
#include "base/error.h"
#include "tools/tq-run/bench/batched_report.h"
#include "tools/tq-run/table.h"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <map>

namespace tq::bench {
namespace {

// Tokens per second of all samples of a test.
struct Rates {
    std::vector<double> prompt, generated, all;
};

struct BatchedColumn {
    std::string name;
    std::map<std::array<uint32_t, 4>, Rates> tests; // by depth, PP, TG and B
};

struct BatchedComparison {
    std::vector<BatchedColumn> columns;
    std::vector<std::array<uint32_t, 4>> tests; // in the order of the files
    std::vector<std::string> footnotes;
};

template <class T> void add_once(std::vector<T>& all, const T& one) {
    if (std::ranges::find(all, one) == all.end()) all.push_back(one);
}

// The seconds of each sample; llama-batched-bench has one, and writes it alone.
std::vector<double> seconds(const ResultFields& fields, const char* samples_ns, const char* alone) {
    std::vector<double> out = fields.maybe_numbers(samples_ns);
    for (double& value : out) value *= 1e-9;
    if (out.empty()) out.push_back(fields.number(alone));
    if (std::ranges::find(out, 0.0) != out.end()) fail("{} has a time of 0", fields.what());
    return out;
}

void add_rates(Rates& rates, const ResultFields& fields) {
    const double sequences = fields.count("pl"), prompt = sequences * fields.count("pp"),
                 generated = sequences * fields.count("tg");
    const std::vector<double> pp = seconds(fields, "samples_pp_ns", "t_pp"), tg = seconds(fields, "samples_tg_ns", "t_tg");
    if (pp.size() != tg.size()) fail("{} has {} times of prompts and {} of generation", fields.what(), pp.size(), tg.size());
    for (size_t i = 0; i < pp.size(); i++) {
        rates.prompt.push_back(prompt / pp[i]);
        rates.generated.push_back(generated / tg[i]);
        rates.all.push_back((prompt + generated) / (pp[i] + tg[i]));
    }
}

// Adds a result to its column; those of tq-run name their cache and build.
void add_result(BatchedComparison& out, const ResultFile& file, size_t number) {
    const ResultFields fields(file.results[number], file.describe(number));
    const bool ours = fields.json().contains("schema");
    std::string name = fmt::format("{}: {}, {} threads", file.stem(), ours ? fields.text("cache") : "llama-batched-bench",
                                   fields.count("n_threads"));
    if (ours) {
        if (fields.text("schema") != batched_schema_name || fields.number("version") != 1)
            fail("{} is not a result of tq-run bench -np that this program reads: measure again, and compare -np with -np",
                 fields.what());
        const ResultFields device = fields.object("device");
        if (device.text("backend") != "CPU")
            name = fmt::format("{}: {}, {}", file.stem(), fields.text("cache"), device.text("name"));
        add_once(out.footnotes, fmt::format("{}: {}, {}{}", name, fields.text("model_type"), fields.text("build"),
                                            fields.yes("checked") ? "" : ", unchecked"));
    }
    auto column = std::ranges::find(out.columns, name, &BatchedColumn::name);
    if (column == out.columns.end()) column = out.columns.insert(out.columns.end(), BatchedColumn{name, {}});
    const std::array test{ours ? fields.count("n_depth") : 0, fields.count("pp"), fields.count("tg"), fields.count("pl")};
    add_once(out.tests, test);
    add_rates(column->tests[test], fields);
}

// "83.30 ± 1.02 (~ 1.01x)"; the ratio over the first column, within the noise below two of its standard errors.
std::string rate_cell(const std::vector<double>& rates, const std::vector<double>* first) {
    const Statistics rate = statistics(rates);
    std::string text = fmt::format("{:.2f}", rate.mean);
    if (rates.size() > 1) text += fmt::format(" ± {:.2f}", rate.deviation);
    if (first == nullptr) return text;
    const Statistics over = statistics(*first);
    const auto relative = [](const Statistics& s, size_t count) { return s.deviation / s.mean / std::sqrt(double(count)); };
    const double ratio = rate.mean / over.mean,
                 error = ratio * std::hypot(relative(rate, rates.size()), relative(over, first->size()));
    return fmt::format("{} ({}{:.2f}x)", text, error > 0 && std::fabs(ratio - 1) < 2 * error ? "~ " : "", ratio);
}

std::string rate_table(const BatchedComparison& all, const char* title, std::vector<double> Rates::*part) {
    const bool deep = std::ranges::any_of(all.tests, [](const auto& test) { return test[0] > 0; });
    std::vector<std::vector<std::string>> rows{{"PP", "TG", "B"}};
    if (deep) rows[0].emplace_back("depth");
    for (const BatchedColumn& column : all.columns) rows[0].push_back(column.name);
    for (const auto& test : all.tests) {
        const auto& [depth, prompt, generated, sequences] = test;
        auto& row = rows.emplace_back(std::vector{std::to_string(prompt), std::to_string(generated), std::to_string(sequences)});
        if (deep) row.push_back(std::to_string(depth));
        const auto first = all.columns[0].tests.find(test);
        for (const BatchedColumn& column : all.columns) {
            const auto found = column.tests.find(test);
            const bool compared = &column != &all.columns[0] && first != all.columns[0].tests.end();
            row.push_back(
                found == column.tests.end() ? "" : rate_cell(found->second.*part, compared ? &(first->second.*part) : nullptr));
        }
    }
    return fmt::format(
        "{}, tokens per second of all sequences, ± standard deviation of the samples (and over the first column)\n\n{}\n", title,
        markdown(rows, 0));
}

BatchedComparison read_batched(const std::vector<ResultFile>& files) {
    BatchedComparison all;
    for (const ResultFile& file : files)
        for (size_t i = 0; i < file.results.size(); i++) add_result(all, file, i);
    return all;
}

} // namespace

bool has_batched_results(const std::vector<ResultFile>& files) {
    return std::ranges::any_of(files, [](const ResultFile& file) {
        return std::ranges::any_of(file.results, [](const auto& result) { return result.is_object() && result.contains("pl"); });
    });
}

nlohmann::ordered_json batched_comparison_json(const std::vector<ResultFile>& files) {
    auto json = nlohmann::ordered_json::array();
    const BatchedComparison all = read_batched(files);
    for (const BatchedColumn& column : all.columns)
        for (const auto& [test, rates] : column.tests) {
            const auto& [depth, prompt, generated, sequences] = test;
            json.push_back({{"column", column.name},
                            {"pp", prompt},
                            {"tg", generated},
                            {"pl", sequences},
                            {"n_depth", depth},
                            {"speed_tg", statistics(rates.generated).mean},
                            {"speed_pp", statistics(rates.prompt).mean},
                            {"speed", statistics(rates.all).mean}});
        }
    return json;
}

std::string batched_comparison(const std::vector<ResultFile>& files) {
    const BatchedComparison all = read_batched(files);
    std::string text = rate_table(all, "Generation (S_TG)", &Rates::generated) +
                       rate_table(all, "Prompts (S_PP)", &Rates::prompt) + rate_table(all, "Both (S)", &Rates::all);
    if (text.find("(~ ") != std::string::npos) text += "~ within the noise: less than two standard errors apart\n\n";
    return text + fmt::format("{}\n", fmt::join(all.footnotes, "\n"));
}

} // namespace tq::bench
