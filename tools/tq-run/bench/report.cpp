#include "tools/tq-run/bench/report.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/tq-run/bench/llama_bench.h"
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>

namespace tq::bench {
namespace {

std::string count_text(uint64_t count) {
    return count < 1'000'000'000 ? fmt::format("{:.2f} M", double(count) * 1e-6) : fmt::format("{:.2f} B", double(count) * 1e-9);
}

std::string share(double value, const std::optional<double>& of) { return of && *of > 0 ? share_text(value / *of) : ""; }

std::string stem(const std::string& path) { return printable(utf8_text(utf8_path(path).stem()), 60); }

} // namespace

// Different files may have the same model name.
std::string Reporter::model_cell(const Subject& subject) const {
    const bool several = arguments_.model_count() > 1 && !subject.file.empty();
    return several ? stem(subject.file) : subject.label;
}

std::string Reporter::device_cell(const Subject& subject) const {
    const bool several = arguments_.device_list().size() > 1 && subject.setup.device;
    return several ? fmt::format("Vulkan{}", subject.device_index) : backend(subject.setup);
}

std::vector<Reporter::Column> Reporter::columns(const Subject& first) const {
    const auto widest = [](const auto& all, auto text, size_t least) {
        for (const auto& one : all) least = std::max(least, shown_length(text(one)));
        return int(least);
    };
    const auto as_list = [](const std::string& list) { return list != "0"; };
    const bool one_model = arguments_.model_count() == 1;
    const std::vector<KvOptions> caches = arguments_.caches();
    const auto cache = [](const KvOptions& kv) { return describe(kv); };
    const auto size = [](const Subject& s) { return size_text(s.setup.model.weights.bytes(), 2); };
    const auto count = [](const Subject& s) { return count_text(parameters(s.setup.model.weights)); };
    const std::span<const Subject> known(&first, 1);
    const auto model_width = widest(
        arguments_.model_list(), [](const ModelArguments& m) { return m.synthetic.empty() ? stem(m.model.path) : m.synthetic; },
        shown_length(model_cell(first)));
    const auto tests = arguments_.tests();

    std::vector<Column> out;
    const auto add = [&](const char* name, int width, auto cell, bool shown = true) {
        const auto least = int(std::string_view(name).size());
        if (shown) out.push_back({name, width < 0 ? std::min(width, -least) : std::max(width, least), cell});
    };
    add("model", -(one_model ? int(shown_length(model_cell(first))) : std::min(model_width, 40)),
        [this](const Subject& s, const Result&) { return model_cell(s); });
    add("size", one_model ? widest(known, size, 0) : 10, [=](const Subject& s, const Result&) { return size(s); });
    add("params", one_model ? widest(known, count, 0) : 8, [=](const Subject& s, const Result&) { return count(s); });
    add("backend", -7, [this](const Subject& s, const Result&) { return device_cell(s); });
    add(
        "threads", 7, [](const Subject& s, const Result& r) { return s.setup.device ? "" : std::to_string(r.threads); },
        !first.setup.device || as_list(arguments_.threads));
    add(
        "n_batch", 7, [](const Subject&, const Result& r) { return std::to_string(r.batch_size); },
        as_list(arguments_.batch_sizes));
    add(
        "cache", -widest(caches, cache, 0), [=](const Subject&, const Result& r) { return cache(r.kv); },
        caches.size() > 1 || cache(caches[0]) != cache(KvOptions()));
    add("test",
        widest(
            tests, [](const Test& t) { return t.name(); }, 0),
        [](const Subject&, const Result& r) { return r.test.name(); });
    add("t/s", 15, [](const Subject&, const Result& r) {
        const Statistics rate = r.tokens_per_second();
        return fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.deviation);
    });
    add(
        "GB/s", 6,
        [](const Subject&, const Result& r) {
            const auto gb_per_s = r.gigabytes_per_second();
            return gb_per_s ? fmt::format("{:.2f}", *gb_per_s) : "";
        },
        std::ranges::any_of(tests, [](const Test& t) { return t.prompt == 0; }));
    return out;
}

void Reporter::add_row(const Subject& subject, const Result& r) {
    if (!begun_) {
        columns_ = columns(subject);
        std::vector<std::string> names;
        for (const Column& column : columns_) {
            names.emplace_back(column.name);
            widths_.push_back(column.width);
        }
        write_(table_row(names, widths_) + table_rule(widths_));
    }
    std::vector<std::string> cells;
    for (const Column& column : columns_) cells.push_back(column.cell(subject, r));
    write_(table_row(cells, widths_));
}

void Reporter::add_footer(const Subject& subject, const Result& r, const std::optional<Limits>& limits) {
    const Setup& setup = subject.setup;
    const auto add = [&](std::string line) {
        if (std::ranges::find(footer_, line) == footer_.end()) footer_.push_back(std::move(line));
    };
    const std::string where = setup.device ? setup.device_name : describe_device(nullptr).at("name").get<std::string>();
    const bool tuned = setup.device && describe_device(setup.device.get()).at("tuned").get<bool>();
    add(fmt::format("{}: {}{}", device_cell(subject), where, tuned ? ", with the kernels that --tune has chosen" : ""));
    const std::string what = fmt::format("{}, {} on {}", model_cell(subject), describe(r.kv), device_cell(subject));
    add(r.check ? fmt::format("{}: logits of {} layers differ from the reference by {:.1e} (limit {:.0e}), and by {:.1e} with an "
                              "f32 cache (limit {:.0e})",
                              what, r.check->cache.layers, r.check->cache.error, r.check->cache.bounds.limit,
                              r.check->exact.error, r.check->exact.bounds.limit)
                : fmt::format("{}: unchecked", what));
    for (const Energy& energy : r.energy)
        add(fmt::format("{}, {}: {:.4f} J per token by {}", what, r.test.name(),
                        energy.joules / (double(r.samples_ns.size()) * r.test.tokens()), energy.source));
    if (!r.ranks.empty()) footer_.push_back(fmt::format("\n{}, {}:\n{}", what, r.test.name(), ranks_text(setup, r)));
    if (!r.kernels.empty())
        footer_.push_back(
            fmt::format("\n{}, {}, {} tokens by kernel:\n\n{}", what, r.test.name(), r.profiled_tokens, kernel_table(r, limits)));
}

void Reporter::add(const Subject& subject, const Result& result, const std::optional<Limits>& limits) {
    if (format_ == Format::markdown) {
        add_row(subject, result);
        add_footer(subject, result, limits);
        begun_ = true;
        return;
    }
    const Json json = to_json(subject, result, limits);
    switch (format_) {
    case Format::csv: write_((begun_ ? "" : csv_header(json)) + csv_row(json)); break;
    case Format::jsonl: write_(json.dump() + "\n"); break;
    case Format::sql: write_((begun_ ? "" : sql_header()) + sql_row(json)); break;
    default: results_.push_back(json);
    }
    begun_ = true;
}

void Reporter::finish() {
    if (format_ == Format::json) write_(results_.dump(1) + "\n");
    if (format_ != Format::markdown || !begun_) return;
    write_(fmt::format("\n{}\n", fmt::join(footer_, "\n")));
    write_(fmt::format("build: {}\n", build_description()));
}

std::string kernel_table(const Result& result, const std::optional<Limits>& limits) {
    double total = 0;
    for (const ProfileRow& row : result.kernels) total += row.ns;
    std::vector<std::vector<std::string>> rows{
        {"kernel", "calls", "us/call", "GB/s", "of read", "GFLOP/s", "of fp32", "of time"}};
    for (const ProfileRow& row : result.kernels) {
        const double ns = std::max(row.ns, 1e-9), gb_per_s = double(row.bytes) / ns, gflops = double(row.flops) / ns;
        rows.push_back(
            {row.kernel, std::to_string(row.calls), fmt::format("{:.1f}", ns / 1e3 / double(std::max<uint64_t>(row.calls, 1))),
             fmt::format("{:.2f}", gb_per_s), limits ? share(gb_per_s, limits->read_gb_per_s) : "", fmt::format("{:.2f}", gflops),
             limits ? share(gflops, limits->fp32_gflops) : "", fmt::format("{:.1f} %", 100 * row.ns / std::max(total, 1e-9))});
    }
    std::string text = markdown(rows, 1);
    if (text.find('*') != std::string::npos) text += beyond_limit;
    return text;
}

std::string share_text(double share) { return share > 1 ? "> 100 % *" : fmt::format("{:.1f} %", 100 * share); }

} // namespace tq::bench
