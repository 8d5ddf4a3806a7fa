#include "tools/tq-run/bench/report.h"
#include "base/printable.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tq::bench {
namespace {

constexpr std::array<const char*, 11> columns{"model",  "size",   "params", "backend", "threads", "n_batch",
                                              "type_k", "type_v", "test",   "t/s",     "GB/s"};
// As wide as common values are: rows come one by one, before the rest is known.
constexpr std::array<int, 11> widths{-30, 10, 8, -7, 7, 7, -6, -6, -16, 19, 8};

// A bar in a name would begin another cell.
std::string without_bars(std::string text) {
    std::ranges::replace(text, '|', '/');
    return text;
}

std::string row(std::span<const std::string> cells) {
    std::string text = "|";
    for (size_t i = 0; i < cells.size(); i++)
        text += widths[i] < 0 ? fmt::format(" {:<{}} |", cells[i], -widths[i]) : fmt::format(" {:>{}} |", cells[i], widths[i]);
    return text + "\n";
}

std::string header() {
    std::string rule = "|";
    for (const int width : widths) rule += std::string(size_t(std::abs(width)) + 1, '-') + (width < 0 ? "-|" : ":|");
    return row(std::vector<std::string>(columns.begin(), columns.end())) + rule + "\n";
}

std::string number_or_default(uint32_t value, const char* otherwise) { return value == 0 ? otherwise : std::to_string(value); }

std::string size_text(uint64_t bytes) {
    const double mib = double(bytes) / (1 << 20);
    return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

std::string count_text(uint64_t count) {
    return count < 1'000'000'000 ? fmt::format("{:.2f} M", double(count) * 1e-6) : fmt::format("{:.2f} B", double(count) * 1e-9);
}

std::string cell(const Json& value) {
    if (value.is_null()) return "";
    if (!value.is_string()) return value.dump();
    std::string text;
    for (const char c : value.get<std::string>()) text += c == '"' ? "\"\"" : std::string(1, c);
    return '"' + text + '"';
}

// What spreadsheets want of a result: its plain fields, and the most useful of the others.
std::vector<std::pair<std::string, Json>> flat(const Json& json) {
    std::vector<std::pair<std::string, Json>> out;
    for (const auto& [key, value] : json.items()) {
        if (!value.is_structured()) out.emplace_back(key, value);
        if (key != "model" && key != "device") continue;
        for (const auto& [inner, part] : value.items()) out.emplace_back(key + "_" + inner, part);
    }
    const bool checked = json.at("checked").get<bool>();
    out.emplace_back("check_error", checked ? json.at("check").at("error") : Json(nullptr));
    return out;
}

Json with_machine(const Json& result) {
    Json out = describe_machine();
    out.update(result);
    return out;
}

std::string csv(const Json& json, bool with_header) {
    std::vector<std::string> names, values;
    for (const auto& [key, value] : flat(with_machine(json))) {
        names.push_back(key);
        values.push_back(cell(value));
    }
    return (with_header ? fmt::format("{}\n", fmt::join(names, ",")) : "") + fmt::format("{}\n", fmt::join(values, ","));
}

// In characters of UTF-8.
size_t length(const std::string& text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string share(double value, const std::optional<double>& of) {
    return of && *of > 0 ? fmt::format("{:.1f} %", 100 * value / *of) : "";
}

} // namespace

void Reporter::add_row(const Setup& setup, const Result& r) {
    if (!begun_) write_output(header());
    const Statistics rate = r.tokens_per_second();
    const auto gb_per_s = r.gigabytes_per_second();
    write_output(row(std::vector<std::string>{
        without_bars(fmt::format("{} {}", setup.model.name, weight_type(setup.model.weights))),
        size_text(setup.model.weights.bytes()), count_text(parameters(setup.model.weights)), backend(setup),
        setup.device ? "" : number_or_default(r.threads, "all"), number_or_default(r.batch_size, "default"), type_of(r.kv, KvSide::key),
        type_of(r.kv, KvSide::value), r.test.name(), fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.deviation),
        gb_per_s ? fmt::format("{:.2f}", *gb_per_s) : ""}));
}

void Reporter::add_footer(const Setup& setup, const Result& r, const std::optional<Limits>& limits) {
    const auto add = [&](std::string line) {
        if (std::ranges::find(footer_, line) == footer_.end()) footer_.push_back(std::move(line));
    };
    const std::string where = setup.device ? setup.device_name : describe_device(nullptr).at("name").get<std::string>();
    const bool tuned = setup.device && describe_device(setup.device.get()).at("tuned").get<bool>();
    add(fmt::format("{}: {}{}", backend(setup), where, tuned ? ", with the kernels that --tune has chosen" : ""));
    const std::string what = fmt::format("{} {} on {}", setup.model.name, describe(r.kv), where);
    add(r.check ? fmt::format("{}: logits of {} layers differ from the reference by {:.1e} (limit {:.0e})", what, r.check->layers,
                              r.check->error, r.check->limit)
                : fmt::format("{}: unchecked", what));
    for (const Energy& energy : r.energy)
        add(fmt::format("{}, {}: {:.4f} J per token by {}", what, r.test.name(),
                        energy.joules / (double(r.samples_ns.size()) * r.test.tokens()), energy.source));
    if (!r.kernels.empty())
        footer_.push_back(
            fmt::format("\n{}, {}, {} tokens by kernel:\n\n{}", what, r.test.name(), r.profiled_tokens, kernel_table(r, limits)));
}

void Reporter::add(const Setup& setup, const Result& result, const std::optional<Limits>& limits) {
    const Json json = to_json(setup, result, limits);
    switch (format_) {
    case Format::markdown:
        add_row(setup, result);
        add_footer(setup, result, limits);
        break;
    case Format::csv: write_output(csv(json, !begun_)); break;
    case Format::jsonl: write_output(with_machine(json).dump() + "\n"); break;
    case Format::json: results_.push_back(json); break;
    }
    begun_ = true;
}

void Reporter::finish() {
    if (format_ == Format::json) {
        Json out = describe_machine();
        out["results"] = results_;
        write_output(out.dump(1) + "\n");
    }
    if (format_ != Format::markdown || !begun_) return;
    write_output(fmt::format("\n{}\n", fmt::join(footer_, "\n")));
    write_output(fmt::format("build: {}\n", build_description()));
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
    return markdown(rows, 1);
}

std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t first) {
    std::vector<size_t> width;
    for (const auto& cells : rows)
        for (size_t i = 0; i < cells.size(); i++) {
            if (i == width.size()) width.push_back(3);
            width[i] = std::max(width[i], length(cells[i]));
        }
    std::string text;
    for (size_t r = 0; r < rows.size(); r++) {
        text += '|';
        for (size_t i = 0; i < width.size(); i++) {
            const std::string cell = i < rows[r].size() ? without_bars(rows[r][i]) : "";
            text += i < first ? fmt::format(" {:<{}} |", cell, width[i]) : fmt::format(" {:>{}} |", cell, width[i]);
        }
        text += '\n';
        if (r > 0) continue;
        text += '|';
        for (size_t i = 0; i < width.size(); i++) text += std::string(width[i] + 1, '-') + (i < first ? "-|" : ":|");
        text += '\n';
    }
    return text;
}

} // namespace tq::bench
