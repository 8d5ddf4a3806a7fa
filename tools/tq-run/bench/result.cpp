// From a measurement to the JSON of a row. First the fields of llama-bench, then the machine, the model, the device and the
// check; a result of one sequence also has what it reads per token, its share of the measured bandwidth, energy and kernels. GB/s
// of generation is weights plus the cache's mean bytes over the test, by tokens per second; prompts have none, since a block
// reads the weights once for all its tokens.
#include "tools/tq-run/bench/result.h"
#include "base/environment.h"
#include "base/executable.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/cpu/instruction_sets.h"
#include "model/gpu/weights.h"
#include "model/weights/mixture.h"
#include "model/weights/synthetic/synthetic.h"
#include "tools/tq-run/bench/llama_bench.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/device_description.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

namespace tq::bench {
namespace {

// On Linux the system's name, with family and model if the name has no number ("AMD EPYC", of virtual machines); on Windows
// the system's name; "CPU" elsewhere.
std::string processor_name() {
    std::map<std::string, std::string> first; // processor's lines
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line) && !line.empty();) {
        const size_t colon = line.find(": "), end = line.find_last_not_of(" \t", std::min(colon, line.size()) - 1);
        if (colon != std::string::npos && end != std::string::npos) first[line.substr(0, end + 1)] = line.substr(colon + 2);
    }
    std::string name = first["model name"];
    if (name.empty()) name = environment_variable("PROCESSOR_IDENTIFIER").value_or(""); // Windows
    if (name.empty()) return "CPU";
    if (name.find_first_of("0123456789") == std::string::npos && !first["model"].empty())
        name += fmt::format(" (family {} model {})", first["cpu family"], first["model"]);
    return printable(name, 120);
}

std::string label_of(const ModelArguments& arguments, const Model& model) {
    if (arguments.synthetic.empty()) {
        const std::string type = weight_type(model.weights);
        return lowercase(model.name).find(lowercase(type)) != std::string::npos ? model.name : model.name + " " + type;
    }
    const SyntheticModel whole = parse_synthetic(arguments.synthetic);
    if (model.config.num_hidden_layers == whole.config.num_hidden_layers) return whole.name;
    return fmt::format("{}, {} layers", whole.name, model.config.num_hidden_layers);
}

// The device's index in tq-run devices: what --device chooses, if that was opened, and else the first that is alike.
uint32_t index_of(const std::string& selector, const Capabilities& c) {
    const std::vector<Capabilities> all = list_devices();
    const auto same = [&](const Capabilities& other) {
        return other.name == c.name && other.driver_name == c.driver_name && other.driver_info == c.driver_info;
    };
    if (const size_t chosen = find_device(all, selector); same(all[chosen])) return uint32_t(chosen);
    return uint32_t(std::ranges::find_if(all, same) - all.begin());
}

// The names in --device of the devices that were opened; empty if they are not as many.
// Fewer devices may be open than were named, if one failed its proof; which names are left is then not known.
std::vector<std::string> names_of(const std::string& selectors, size_t devices) {
    std::vector<std::string> names = device_names(selectors);
    std::erase_if(names, [](const std::string& name) { return !name.empty() && chooses_cpu(name); });
    return names.size() == devices ? names : std::vector<std::string>(devices);
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json ratio(double value, const std::optional<double>& of) { return of && *of > 0 ? Json(value / *of) : Json(nullptr); }

Json to_json(const ProfileRow& row, const std::optional<Limits>& limits) {
    const double ns = std::max(row.ns, 1e-9), gb_per_s = double(row.bytes) / ns, gflops = double(row.flops) / ns;
    return {{"kernel", row.kernel},
            {"calls", row.calls},
            {"ns", row.ns},
            {"bytes", row.bytes},
            {"flops", row.flops},
            {"gb_per_s", gb_per_s},
            {"gflops", gflops},
            {"bandwidth_share", ratio(gb_per_s, limits ? limits->read_gb_per_s : std::nullopt)},
            {"fp32_share", ratio(gflops, limits ? limits->fp32_gflops : std::nullopt)}};
}

Json to_json(const conformance::LogitsCheck& check) {
    return {{"error", check.error}, {"usual", check.bounds.usual}, {"limit", check.bounds.limit}, {"layers", check.layers}};
}

Json energy_json(const Result& result) {
    Json all = Json::array();
    const double tokens = double(result.samples.size()) * double(result.test.tokens());
    for (const Energy& energy : result.energy)
        all.push_back({{"source", energy.source}, {"joules", energy.joules}, {"joules_per_token", energy.joules / tokens}});
    return all;
}

} // namespace

std::vector<uint64_t> Result::times(uint64_t (*of)(const Sample&)) const {
    std::vector<uint64_t> out;
    for (const Sample& sample : samples) out.push_back(of(sample));
    return out;
}

std::vector<double> Result::rates() const {
    std::vector<double> rates;
    for (const Sample& sample : samples)
        rates.push_back(double(test.tokens()) * 1e9 / double(std::max<uint64_t>(sample.ns(), 1)));
    return rates;
}

uint32_t thread_count(uint32_t threads) { return threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency()); }

Subject open_subject(const ModelArguments& arguments, const Drafting& drafting, Console& console) {
    Setup setup = set_up(arguments, console, WithoutGpu::cpu, drafting);
    std::string file = printable(utf8_text(setup.file), 1000), label = printable(label_of(arguments, setup.model), 100);
    if (const auto split = setup.split()) setup.device_name = describe(setup.placing(), *split);
    Subject subject{std::move(setup), std::move(file), std::move(label), 0};
    if (!subject.setup.device) return subject;
    const auto& others = subject.setup.other_devices;
    const std::vector<std::string> names = names_of(arguments.device, 1 + others.size());
    subject.device_index = index_of(names[0], subject.setup.device->capabilities());
    for (size_t i = 0; i < others.size(); i++) subject.other_indices.push_back(index_of(names[i + 1], others[i]->capabilities()));
    return subject;
}

// A token reads only the experts that it uses (read_by_token), and one row of the embedding.
uint64_t weight_bytes_per_token(const Setup& setup) {
    const Weights read = read_by_token(setup.model.weights, setup.model.config);
    return setup.device ? gpu::device_bytes(read, 1) : read.bytes(); // as a device repacks them
}

int n_gpu_layers(const Setup& setup) {
    const auto split = setup.split();
    if (!split) return setup.device ? -1 : 0;
    int count = 0;
    for (uint32_t layer = 0; layer < split->layers(); layer++)
        count += split->device_of(attention_of(layer)) + 1 < split->devices();
    return count;
}

std::string weight_type(const Weights& weights) { return type_name(bytes_by_format(weights)[0].type); }

uint64_t parameters(const Weights& weights) {
    uint64_t count = 0;
    for_each_tensor(weights, [&](const Tensor& tensor) { count += uint64_t(tensor.rows) * tensor.cols; });
    return count;
}

std::string backend(const Setup& setup) { return setup.device ? "Vulkan" : "CPU"; }

Json describe_device(const Device* device) {
    if (device == nullptr)
        return {{"backend", "CPU"}, {"name", processor_name()}, {"type", "cpu"}, {"instructions", cpu::instruction_sets()}};
    const Json all = describe(device->capabilities());
    Json out{{"backend", "Vulkan"}};
    for (const char* key : {"name", "type", "driver_name", "driver_info", "driver_version", "api_version", "vendor_id",
                            "device_id", "memory_bytes", "subgroup_size", "profile", "tuned"})
        out[key] = all.at(key);
    return out;
}

Json describe_machine() {
    using namespace std::chrono;
    return {{"schema", schema_name},
            {"version", schema_version},
            {"build", build_description()},
            {"unix_time", duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count()},
            {"system", printable(system_name(), 160)},
            {"processor", processor_name()},
            {"processor_threads", std::thread::hardware_concurrency()}};
}

Json describe_model(const Setup& setup) {
    const Config& c = setup.model.config;
    return {{"name", setup.model.name},
            {"weights", weight_type(setup.model.weights)},
            {"bytes", setup.model.weights.bytes()},
            {"parameters", parameters(setup.model.weights)},
            {"layers", c.num_hidden_layers},
            {"hidden_size", c.hidden_size},
            {"heads", c.num_attention_heads},
            {"kv_heads", c.num_key_value_heads},
            {"head_dim", c.head_dim}};
}

Json to_json(const Check& check) {
    Json json = to_json(check.cache);
    json["exact"] = to_json(check.exact);
    return json;
}

Json to_json(const Limits& limits) {
    return {{"read_gb_per_s", or_null(limits.read_gb_per_s)},
            {"copy_gb_per_s", or_null(limits.copy_gb_per_s)},
            {"fp32_gflops", or_null(limits.fp32_gflops)},
            {"fp16_gflops", or_null(limits.fp16_gflops)},
            {"int8_dot_gops", or_null(limits.int8_dot_gops)},
            {"cooperative_matrix_gflops", or_null(limits.cooperative_matrix_gflops)}};
}

std::string type_of(const KvOptions& kv, KvSide side) {
    return kv.layer_count != 0 || !kv.layers.empty() ? "mix" : name(side == KvSide::key ? kv.k : kv.v);
}

// Adds the fields that only the result of a single sequence has: the bytes that it reads, and its kernels.
static void add_reads(Json& out, const Setup& setup, const Result& r, const std::optional<Limits>& limits) {
    const uint64_t weights = weight_bytes_per_token(setup);
    std::optional<double> gb_per_s; // of prompts there is none: they read weights once for a whole block
    if (r.test.prompt == 0) gb_per_s = (double(weights) + r.kv_bytes) * statistics(r.rates()).mean * 1e-9;
    out["weight_bytes_per_token"] = weights;
    out["kv_bytes_stored_per_token"] = kv_bytes_per_token(setup.model.config, r.kv);
    if (r.kv.window != 0) out["kv_window_bytes"] = kv_window_bytes(setup.model.config, r.kv);
    out["kv_bytes_read_per_token"] = r.kv_bytes;
    out["gb_per_s"] = or_null(gb_per_s);
    out["bandwidth_share"] = gb_per_s && limits ? ratio(*gb_per_s, limits->read_gb_per_s) : Json(nullptr);
    if (limits) out["limits"] = to_json(*limits);
    if (!r.energy.empty()) out["energy"] = energy_json(r);
    if (r.kernels.empty()) return;
    out["profiled_tokens"] = r.profiled_tokens;
    out["kernels"] = Json::array();
    for (const ProfileRow& row : r.kernels) out["kernels"].push_back(to_json(row, limits));
}

// The first fields have llama-bench's names and meanings, so that its tools read a row. Ours follow, and win if both have one
// of the same name (update).
Row row_of(const Subject& subject, const Result& r, const std::optional<Limits>& limits) {
    const Setup& setup = subject.setup;
    const bool together = r.test.sequences > 0;
    Json out = together ? llama_batched_bench_fields(subject, r) : llama_bench_fields(subject, r);
    out.update(describe_machine());
    if (together)
        out.update({{"schema", batched_schema_name},
                    {"version", batched_schema_version},
                    {"n_depth", r.test.depth},
                    {"samples_pp_ns", r.times([](const Sample& s) { return s.prompt_ns; })},
                    {"samples_tg_ns", r.times([](const Sample& s) { return s.generated_ns; })},
                    {"test_time", r.test_time},
                    {"cache", describe(r.kv)},
                    {"type_k", type_of(r.kv, KvSide::key)},
                    {"type_v", type_of(r.kv, KvSide::value)},
                    {"model_filename", subject.file.empty() ? setup.model.name : subject.file},
                    {"model_type", subject.label}});
    else
        out["test"] = r.test.name();
    out.update({{"cache", describe(r.kv)},
                {"model", describe_model(setup)},
                {"device", describe_device(setup.device.get())},
                {"checked", r.check.has_value()}});
    out["device"]["index"] = subject.device_index;
    if (const auto split = setup.split()) out["device"]["placement"] = describe(setup.placing(), *split);
    if (r.check) out["check"] = to_json(*r.check);
    if (!together) add_reads(out, setup, r, limits);
    if (r.company.sequences != 0)
        out["company"] = {{"n_prompt", r.company.prompt}, {"n_gen", r.company.generated}, {"sequences", r.company.sequences}};
    return {std::move(out), setup.device ? setup.device_name : ""};
}

} // namespace tq::bench
