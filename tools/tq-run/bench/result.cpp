#include "tools/tq-run/bench/result.h"
#include "base/executable.h"
#include "base/printable.h"
#include "model/gpu/weights.h"
#include "tools/tq-run/devices.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

namespace tq::bench {
namespace {

// As Linux names it; "CPU" elsewhere.
std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return printable(line.substr(colon + 2), 120);
    }
    return "CPU";
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

Json energy_json(const Result& result) {
    Json all = Json::array();
    const double tokens = double(result.samples_ns.size()) * result.test.tokens();
    for (const Energy& energy : result.energy)
        all.push_back({{"source", energy.source}, {"joules", energy.joules}, {"joules_per_token", energy.joules / tokens}});
    return all;
}

Json model_json(const Setup& setup) {
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

} // namespace

Statistics statistics(std::span<const double> values) {
    if (values.empty()) return {};
    const auto count = double(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return {mean, values.size() < 2 ? 0 : std::sqrt(squares / (count - 1))};
}

Statistics Result::tokens_per_second() const {
    std::vector<double> rates;
    for (const uint64_t ns : samples_ns) rates.push_back(test.tokens() * 1e9 / double(std::max<uint64_t>(ns, 1)));
    return statistics(rates);
}

std::optional<double> Result::gigabytes_per_second() const {
    if (test.prompt > 0) return std::nullopt;
    return (double(weight_bytes) + kv_bytes) * tokens_per_second().mean * 1e-9;
}

uint64_t weight_bytes_per_token(const Setup& setup) {
    const Weights& w = setup.model.weights;
    if (!setup.device) return w.bytes() - (w.tied ? 0 : w.token_embd.bytes() - w.token_embd.row_bytes());
    Weights read = w; // as a device repacks them
    if (!w.tied) read.token_embd.rows = 1;
    return gpu::device_bytes(read, 1);
}

std::string weight_type(const Weights& weights) {
    std::map<GgmlType, uint64_t> bytes;
    for_each_tensor(weights, [&](const Tensor& tensor) { bytes[tensor.type] += tensor.bytes(); });
    return type_name(std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; })->first);
}

uint64_t parameters(const Weights& weights) {
    uint64_t count = 0;
    for_each_tensor(weights, [&](const Tensor& tensor) { count += uint64_t(tensor.rows) * tensor.cols; });
    return count;
}

std::string backend(const Setup& setup) { return setup.device ? "Vulkan" : "CPU"; }

Json describe_device(const Device* device) {
    if (device == nullptr) return {{"backend", "CPU"}, {"name", processor_name()}, {"type", "cpu"}};
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
            {"unix_time", duration_cast<seconds>(system_clock::now().time_since_epoch()).count()},
            {"system", printable(system_name(), 160)},
            {"processor", processor_name()},
            {"processor_threads", std::thread::hardware_concurrency()}};
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
    return kv.layer_count != 0 ? "mix" : name(side == KvSide::key ? kv.k : kv.v);
}

Json to_json(const Setup& setup, const Result& r, const std::optional<Limits>& limits) {
    const Statistics rate = r.tokens_per_second();
    std::vector<double> times(r.samples_ns.begin(), r.samples_ns.end());
    const Statistics ns = statistics(times);
    const auto gb_per_s = r.gigabytes_per_second();
    Json out{{"test", r.test.name()},
             {"n_prompt", r.test.prompt},
             {"n_gen", r.test.generated},
             {"n_depth", r.test.depth},
             {"n_batch", r.batch_size},
             {"n_threads", r.threads},
             {"type_k", type_of(r.kv, KvSide::key)},
             {"type_v", type_of(r.kv, KvSide::value)},
             {"cache", describe(r.kv)},
             {"model", model_json(setup)},
             {"device", describe_device(setup.device.get())},
             {"samples_ns", r.samples_ns},
             {"avg_ns", ns.mean},
             {"stddev_ns", ns.deviation},
             {"avg_ts", rate.mean},
             {"stddev_ts", rate.deviation},
             {"checked", r.check.has_value()}};
    if (r.check) out["check"] = {{"error", r.check->error}, {"limit", r.check->limit}, {"layers", r.check->layers}};
    out["weight_bytes_per_token"] = r.weight_bytes;
    out["kv_bytes_stored_per_token"] = kv_bytes_per_token(setup.model.config, r.kv);
    if (r.kv.recent != 0) out["kv_recent_bytes"] = kv_recent_bytes(setup.model.config, r.kv);
    out["kv_bytes_read_per_token"] = r.kv_bytes;
    out["gb_per_s"] = or_null(gb_per_s);
    out["bandwidth_share"] = gb_per_s && limits ? ratio(*gb_per_s, limits->read_gb_per_s) : Json(nullptr);
    if (limits) out["limits"] = to_json(*limits);
    if (!r.energy.empty()) out["energy"] = energy_json(r);
    if (r.kernels.empty()) return out;
    out["profiled_tokens"] = r.profiled_tokens;
    out["kernels"] = Json::array();
    for (const ProfileRow& row : r.kernels) out["kernels"].push_back(to_json(row, limits));
    return out;
}

} // namespace tq::bench
