#include "tools/tq-run/bench/llama_bench.h"
#include "tools/tq-run/build.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

struct Field {
    const char *name, *sql_type;
};

constexpr std::array fields{
    Field{"build_commit", "TEXT"},
    Field{"build_number", "INTEGER"},
    Field{"cpu_info", "TEXT"},
    Field{"gpu_info", "TEXT"},
    Field{"backends", "TEXT"},
    Field{"model_filename", "TEXT"},
    Field{"model_type", "TEXT"},
    Field{"model_size", "INTEGER"},
    Field{"model_n_params", "INTEGER"},
    Field{"n_batch", "INTEGER"},
    Field{"n_ubatch", "INTEGER"},
    Field{"n_threads", "INTEGER"},
    Field{"cpu_mask", "TEXT"},
    Field{"cpu_strict", "INTEGER"},
    Field{"poll", "INTEGER"},
    Field{"type_k", "TEXT"},
    Field{"type_v", "TEXT"},
    Field{"n_gpu_layers", "INTEGER"},
    Field{"n_cpu_moe", "INTEGER"},
    Field{"split_mode", "TEXT"},
    Field{"main_gpu", "INTEGER"},
    Field{"no_kv_offload", "INTEGER"},
    Field{"flash_attn", "INTEGER"},
    Field{"devices", "TEXT"},
    Field{"tensor_split", "TEXT"},
    Field{"tensor_buft_overrides", "TEXT"},
    Field{"use_mmap", "INTEGER"},
    Field{"embeddings", "INTEGER"},
    Field{"no_op_offload", "INTEGER"},
    Field{"no_host", "INTEGER"},
    Field{"n_prompt", "INTEGER"},
    Field{"n_gen", "INTEGER"},
    Field{"n_depth", "INTEGER"},
    Field{"test_time", "TEXT"},
    Field{"avg_ns", "INTEGER"},
    Field{"stddev_ns", "INTEGER"},
    Field{"avg_ts", "REAL"},
    Field{"stddev_ts", "REAL"},
};

// "" for null; a truth value is 1 or 0, as in llama-bench.
std::string plain(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string quoted(const std::string& text, char quote) {
    std::string out(1, quote);
    for (const char c : text) out += c == quote ? std::string(2, quote) : std::string(1, c);
    return out + quote;
}

std::vector<std::pair<std::string, std::string>> flat(const Json& result) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& [key, value] : result.items()) {
        if (!value.is_structured()) out.emplace_back(key, plain(value));
        if (key != "model" && key != "device") continue;
        for (const auto& [inner, part] : value.items()) out.emplace_back(key + "_" + inner, plain(part));
    }
    const bool checked = result.at("checked").get<bool>();
    out.emplace_back("check_error", checked ? plain(result.at("check").at("error")) : "");
    return out;
}

// "Vulkan0/Vulkan1" of devices that share the model.
std::string devices_of(const Subject& subject) {
    if (!subject.setup.device) return "none";
    std::string text = fmt::format("Vulkan{}", subject.device_index);
    for (const uint32_t index : subject.other_indices) text += fmt::format("/Vulkan{}", index);
    return text;
}

// As asked for by -ts: "3.00/1.00", to the last share that is not 0; "0.00" where nothing was.
std::string tensor_split_of(const PlacementArguments& placement) {
    std::vector<double> shares = placement.shares();
    while (shares.size() > 1 && shares.back() == 0) shares.pop_back();
    return shares.empty() ? "0.00" : fmt::format("{:.2f}", fmt::join(shares, "/"));
}

// As asked for by --n-cpu-moe and --cpu-moe.
uint32_t n_cpu_moe(const Setup& setup) {
    const PlacementArguments& placement = setup.placement;
    const uint32_t layers = setup.model.config.num_hidden_layers;
    return placement.cpu_moe ? layers : std::min(placement.cpu_moe_layers, layers);
}

} // namespace

Json llama_bench_fields(const Subject& subject, const Result& r) {
    const Setup& setup = subject.setup;
    const bool on_gpu = setup.device != nullptr;
    const Statistics rate = r.tokens_per_second(), ns = r.nanoseconds();
    return {{"build_commit", build_commit()},
            {"build_number", 0}, // builds are identified by their commit alone
            {"cpu_info", describe_device(nullptr).at("name")},
            {"gpu_info", on_gpu ? setup.device->capabilities().name : ""},
            {"backends", backend(setup)},
            {"model_filename", subject.file.empty() ? setup.model.name : subject.file},
            {"model_type", subject.label},
            {"model_size", setup.model.weights.bytes()},
            {"model_n_params", parameters(setup.model.weights)},
            {"n_batch", r.batch_size},
            {"n_ubatch", r.batch_size},
            {"n_threads", r.threads},
            {"cpu_mask", "0x0"},
            {"cpu_strict", false},
            {"poll", 0},
            {"type_k", type_of(r.kv, KvSide::key)},
            {"type_v", type_of(r.kv, KvSide::value)},
            {"n_gpu_layers", n_gpu_layers(setup)},
            {"n_cpu_moe", n_cpu_moe(setup)},
            {"split_mode", subject.other_indices.empty() ? "none" : "layer"},
            {"main_gpu", subject.device_index},
            {"no_kv_offload", false},
            {"flash_attn", 1},
            {"devices", devices_of(subject)},
            {"tensor_split", tensor_split_of(setup.placement)},
            {"tensor_buft_overrides", "none"},
            {"use_mmap", true},
            {"embeddings", false},
            {"no_op_offload", setup.placement.no_op_offload ? 1 : 0},
            {"no_host", false},
            {"n_prompt", r.test.prompt},
            {"n_gen", r.test.generated},
            {"n_depth", r.test.depth},
            {"test_time", r.test_time},
            {"avg_ns", uint64_t(ns.mean)},
            {"stddev_ns", uint64_t(ns.deviation)},
            {"avg_ts", rate.mean},
            {"stddev_ts", rate.deviation},
            {"samples_ns", r.samples_ns},
            {"samples_ts", r.rates()}};
}

std::string sql_header() {
    std::vector<std::string> lines;
    for (const Field& field : fields) lines.push_back(fmt::format("  {} {}", field.name, field.sql_type));
    return fmt::format("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", fmt::join(lines, ",\n"));
}

std::string sql_row(const Json& result) {
    std::vector<std::string> names, values;
    for (const Field& field : fields) {
        names.emplace_back(field.name);
        values.push_back(quoted(plain(result.at(field.name)), '\''));
    }
    return fmt::format("INSERT INTO llama_bench ({}) VALUES ({});\n", fmt::join(names, ", "), fmt::join(values, ", "));
}

std::string csv_header(const Json& result) {
    std::vector<std::string> names;
    for (const auto& [name, value] : flat(result)) names.push_back(name);
    return fmt::format("{}\n", fmt::join(names, ","));
}

std::string csv_of(const Json& list) {
    std::string text;
    for (const Json& one : list) {
        std::vector<std::string> names, values;
        for (const auto& [name, value] : one.items()) {
            names.push_back(name);
            values.push_back(quoted(plain(value), '"'));
        }
        if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
        text += fmt::format("{}\n", fmt::join(values, ","));
    }
    return text;
}

std::string csv_row(const Json& result) {
    std::vector<std::string> values;
    for (const auto& [name, value] : flat(result)) values.push_back(quoted(value, '"'));
    return fmt::format("{}\n", fmt::join(values, ","));
}

} // namespace tq::bench
