// Turns rows of results into tables for people. Columns are widths and functions of a row, fixed before all rows are known,
// because a table grows row by row while tests run; so the widths fit the longest values that the arguments allow. A column
// that has one value throughout is marked constant; Reporter moves it above the table if that would be wider than the terminal.
// Notes below the table say each thing once (Lines): devices, checks, energy, kernels.
#include "tools/tq-run/bench/tables.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/statistics.h"
#include "model/kv/options.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <map>

namespace tq::bench {
namespace {

std::string text(const Row& row, const char* key) { return row.fields.at(key).get<std::string>(); }
uint64_t count(const Row& row, const char* key) { return row.fields.at(key).get<uint64_t>(); }
double value(const Row& row, const char* key) { return row.fields.at(key).get<double>(); }

std::string count_text(uint64_t count) {
    return count < 1'000'000'000 ? fmt::format("{:.2f} M", double(count) * 1e-6) : fmt::format("{:.2f} B", double(count) * 1e-9);
}

std::string stem(const std::string& path) { return printable(utf8_text(utf8_path(path).stem()), 60); }

// Lines, each once.
struct Lines {
    std::vector<std::string> all;

    void add(std::string line) {
        if (std::ranges::find(all, line) == all.end()) all.push_back(std::move(line));
    }
};

// Different files may have the same model name.
std::string model_cell(const Arguments& arguments, const Row& row) {
    return arguments.model_count() > 1 && arguments.model.synthetic.empty() ? stem(text(row, "model_filename"))
                                                                            : text(row, "model_type");
}

std::string device_cell(const Arguments& arguments, const Row& row) {
    const bool several = arguments.device_list().size() > 1 && !row.place.empty();
    return several ? fmt::format("Vulkan{}", count(row, "main_gpu")) : text(row, "backends");
}

// Rows arrive one by one, before the rest is known: unknown widths fit common values.
// A negative width aligns to the left. A column is constant if the arguments allow one value only. A column is left out if its
// value is the default for all rows (threads, n_batch, cache), or if no test has it (GB/s, of generation alone).
std::vector<Column> test_columns(const Arguments& arguments, const Row& first) {
    const auto widest = [](const auto& all, auto text_of, size_t min) {
        for (const auto& one : all) min = std::max(min, shown_length(text_of(one)));
        return int(min);
    };
    const bool one_model = arguments.model_count() == 1, on_cpu = first.place.empty();
    const auto size = [](const Row& row) { return size_text(count(row, "model_size"), 2); };
    const auto parameters = [](const Row& row) { return count_text(count(row, "model_n_params")); };
    const auto name_width = [](const ModelArguments& m) { return m.synthetic.empty() ? stem(m.model.path) : m.synthetic; };
    const auto model_width = int(shown_length(model_cell(arguments, first)));
    const auto caches = arguments.caches();
    const auto cache = [](const KvOptions& kv) { return describe(kv); };
    const auto tests = arguments.tests();
    const std::span<const Row> known(&first, 1);

    std::vector<Column> out;
    const auto add = [&](std::string name, int width, auto cell, bool is_constant = false, bool shown = true) {
        const auto min = int(name.size());
        if (shown) out.push_back({std::move(name), width < 0 ? std::min(width, -min) : std::max(width, min), cell, is_constant});
    };
    const auto is_one = [](const std::string& list) { return list.find_first_of(",-") == list.npos; };
    const auto field = [](const char* key) { return [key](const Row& row) { return std::to_string(count(row, key)); }; };
    add(
        "model", -(one_model ? model_width : std::min(widest(arguments.model_list(), name_width, size_t(model_width)), 40)),
        [&arguments](const Row& row) { return model_cell(arguments, row); }, one_model);
    add("size", one_model ? widest(known, size, 0) : 10, size, one_model);
    add("params", one_model ? widest(known, parameters, 0) : 8, parameters, one_model);
    add(
        "backend", -7, [&arguments](const Row& row) { return device_cell(arguments, row); }, arguments.device_list().size() == 1);
    add(
        "threads", 7, [](const Row& row) { return row.place.empty() ? std::to_string(count(row, "n_threads")) : ""; },
        is_one(arguments.threads) && arguments.device_list().size() == 1, on_cpu || arguments.threads != "0");
    add("n_batch", 7, field("n_batch"), is_one(arguments.batch_sizes), arguments.batch_sizes != "0");
    add(
        "cache", -widest(caches, cache, 0), [](const Row& row) { return text(row, "cache"); }, caches.size() == 1,
        caches.size() > 1 || cache(caches[0]) != cache(KvArguments().options()));
    add("test",
        widest(
            tests, [](const Test& t) { return t.name(); }, 0),
        [](const Row& row) { return text(row, "test"); });
    add("t/s", 15, [](const Row& row) { return fmt::format("{:.2f} ± {:.2f}", value(row, "avg_ts"), value(row, "stddev_ts")); });
    add(
        "GB/s", 6,
        [](const Row& row) { return row.fields.at("gb_per_s").is_null() ? "" : fmt::format("{:.2f}", value(row, "gb_per_s")); },
        false, std::ranges::any_of(tests, [](const Test& t) { return t.prompt == 0; }));
    return out;
}

// The kernels of a row as a table with shares of the device's limits.
std::string kernel_table(const Json& kernels) {
    double total = 0;
    for (const Json& one : kernels) total += one.at("ns").get<double>();
    std::vector<std::vector<std::string>> cells{
        {"kernel", "calls", "us/call", "GB/s", "of read", "GFLOP/s", "of fp32", "of time"}};
    for (const Json& one : kernels) {
        const double ns = one.at("ns"), calls = one.at("calls");
        cells.push_back({one.at("kernel"), fmt::format("{:.0f}", calls), fmt::format("{:.1f}", ns / 1e3 / std::max(calls, 1.0)),
                         fmt::format("{:.2f}", one.at("gb_per_s").get<double>()), share_text(one.at("bandwidth_share")),
                         fmt::format("{:.2f}", one.at("gflops").get<double>()), share_text(one.at("fp32_share")),
                         fmt::format("{:.1f} %", 100 * ns / std::max(total, 1e-9))});
    }
    const std::string table = markdown(cells, 1);
    return table.find('*') == std::string::npos ? table : table + beyond_limit;
}

std::string test_notes(const Arguments& arguments, const std::vector<Row>& rows) {
    Lines lines;
    for (const Row& row : rows) {
        const Json& device = row.fields.at("device");
        const bool tuned = device.value("tuned", false);
        lines.add(fmt::format("{}: {}{}", device_cell(arguments, row),
                              row.place.empty() ? device.at("name").get<std::string>() : row.place,
                              tuned ? ", with the kernels that --tune has chosen" : ""));
        const std::string what =
            fmt::format("{}, {} on {}", model_cell(arguments, row), text(row, "cache"), device_cell(arguments, row));
        if (const auto check = row.fields.find("check"); check == row.fields.end())
            lines.add(what + ": unchecked");
        else
            lines.add(fmt::format("{}: logits of {} layers differ from the reference by {:.1e} (limit {:.0e}), and by {:.1e} "
                                  "with an f32 cache (limit {:.0e})",
                                  what, check->at("layers").get<uint32_t>(), check->at("error").get<double>(),
                                  check->at("limit").get<double>(), check->at("exact").at("error").get<double>(),
                                  check->at("exact").at("limit").get<double>()));
        for (const Json& energy : row.fields.value("energy", Json::array()))
            lines.add(fmt::format("{}, {}: {:.4f} J per token by {}", what, text(row, "test"),
                                  energy.at("joules_per_token").get<double>(), energy.at("source").get<std::string>()));
        if (row.fields.contains("kernels"))
            lines.add(fmt::format("\n{}, {}, {} tokens by kernel:\n\n{}", what, text(row, "test"), count(row, "profiled_tokens"),
                                  kernel_table(row.fields.at("kernels"))));
    }
    return fmt::format("\n{}\nbuild: {}\n", fmt::join(lines.all, "\n"), build_description());
}

// "tq-run demo Q8_0 on CPU, 2 threads, cache tq4/tq4, blocks of 64, each sequence after 300 tokens"
std::string batched_heading(const Row& row) {
    const uint64_t depth = count(row, "n_depth");
    return fmt::format("{} on {}, cache {}, blocks of {}{}", text(row, "model_type"),
                       row.place.empty() ? fmt::format("CPU, {} threads", count(row, "n_threads")) : row.place,
                       text(row, "cache"), count(row, "n_batch"),
                       depth > 0 ? fmt::format(", each sequence after {} tokens", depth) : "");
}

std::vector<Column> batched_columns(const Row&) {
    const auto number = [](const char* name, int width, const char* key, int digits) {
        return Column{name, width, [=](const Row& row) { return fmt::format("{:.{}f}", value(row, key), digits); }};
    };
    return {number("PP", 5, "pp", 0),       number("TG", 6, "tg", 0),
            number("B", 4, "pl", 0),        number("N_KV", 6, "n_kv", 0),
            number("T_PP s", 8, "t_pp", 3), number("S_PP t/s", 8, "speed_pp", 2),
            number("T_TG s", 8, "t_tg", 3), number("S_TG t/s", 8, "speed_tg", 2),
            number("T s", 8, "t", 3),       number("S t/s", 8, "speed", 2)};
}

// Returns the lines below the table, each once: the deviation of repeated times, the checks of logits, and which sequences were
// compared with the same alone.
std::string batched_notes(const std::vector<Row>& rows) {
    Lines lines;
    std::map<std::string, std::string> company; // by model, cache and device: the numbers of sequences that were compared
    double deviation = 0;                       // the greatest of a time, as a part of its mean
    size_t repetitions = 0;
    for (const Row& row : rows) {
        const std::string what = fmt::format("{}, {} on {}", text(row, "model_type"), text(row, "cache"),
                                             row.fields.at("device").at("backend").get<std::string>());
        if (const auto check = row.fields.find("check"); check == row.fields.end())
            lines.add(what + ": unchecked");
        else
            lines.add(fmt::format("{}: logits of {} layers differ from the reference by {:.1e} (limit {:.0e})", what,
                                  check->at("layers").get<uint32_t>(), check->at("error").get<double>(),
                                  check->at("limit").get<double>()));
        if (const auto together = row.fields.find("company"); together != row.fields.end()) {
            std::string& counts =
                company[fmt::format("{}: {} prompt tokens and {} sampled ones", what, together->at("n_prompt").get<uint32_t>(),
                                    together->at("n_gen").get<uint32_t>())];
            const uint64_t depth = count(row, "n_depth");
            counts += fmt::format("{}{}{}", counts.empty() ? "" : ", ", count(row, "pl"),
                                  depth > 0 ? fmt::format(" @ d{}", depth) : "");
        }
        for (const char* key : {"samples_pp_ns", "samples_tg_ns"}) {
            const std::vector<double> samples = row.fields.at(key);
            const Statistics ns = statistics(samples);
            deviation = std::max(deviation, ns.deviation / std::max(ns.mean, 1.0));
            repetitions = std::max(repetitions, samples.size());
        }
    }
    if (repetitions > 1)
        lines.all.insert(lines.all.begin(),
                         fmt::format("times are means of {} runs; their greatest standard deviation is {:.1f} %", repetitions,
                                     100 * deviation));
    for (const auto& [what, counts] : company)
        lines.add(fmt::format("{} of the first, the middle and the last of {} sequences have bit for bit the logits that they "
                              "have alone",
                              what, counts));
    return fmt::format("\n{}\nbuild: {}\n", fmt::join(lines.all, "\n"), build_description());
}

} // namespace

Layout test_layout(const Arguments& arguments) {
    return {.columns = [&arguments](const Row& first) { return test_columns(arguments, first); },
            .notes = [&arguments](const std::vector<Row>& rows) { return test_notes(arguments, rows); }};
}

Layout batched_layout() { return {.columns = batched_columns, .heading = batched_heading, .notes = batched_notes}; }

} // namespace tq::bench
