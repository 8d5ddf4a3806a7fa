// The fields of llama-bench and llama-batched-bench, in their order and with their meanings, so that scripts and databases made
// for these read ours. If tq-run has nothing of the kind the field has the value that says so (no NUMA, no mask). Our own
// fields follow them (result.cpp).
#include "tools/tq-run/bench/llama_bench.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

// "Vulkan0/Vulkan1" of devices that share the model.
std::string devices_of(const Subject& subject) {
    if (!subject.setup.device) return "none";
    std::string text = fmt::format("Vulkan{}", subject.device_index);
    for (const uint32_t index : subject.other_indices) text += fmt::format("/Vulkan{}", index);
    return text;
}

// Returns the shares that -ts gives, "3.00/1.00", to the last share that is not 0; "0.00" if nothing was.
std::string tensor_split_of(const PlacementArguments& placement) {
    std::vector<double> shares = placement.shares();
    while (shares.size() > 1 && shares.back() == 0) shares.pop_back();
    return shares.empty() ? "0.00" : fmt::format("{:.2f}", fmt::join(shares, "/"));
}

// Returns the number of layers that --n-cpu-moe and --cpu-moe give.
uint32_t n_cpu_moe(const Setup& setup) {
    const PlacementArguments& placement = setup.placement;
    const uint32_t layers = setup.model.config.num_hidden_layers;
    return placement.cpu_moe ? layers : std::min(placement.cpu_moe_layers, layers);
}

} // namespace

Json llama_bench_fields(const Subject& subject, const Result& r) {
    const Setup& setup = subject.setup;
    const bool on_gpu = setup.device != nullptr;
    const std::vector<uint64_t> times = r.times([](const Sample& s) { return s.ns(); });
    const Statistics rate = statistics(r.rates()), ns = statistics(std::vector<double>(times.begin(), times.end()));
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
            {"samples_ns", times},
            {"samples_ts", r.rates()}};
}

Json llama_batched_bench_fields(const Subject& subject, const Result& r) {
    const auto seconds = [&](uint64_t (*of)(const Sample&)) {
        const std::vector<uint64_t> times = r.times(of);
        return std::max(statistics(std::vector<double>(times.begin(), times.end())).mean, 1.0) * 1e-9;
    };
    const double prompt = seconds([](const Sample& s) { return s.prompt_ns; }),
                 generated = seconds([](const Sample& s) { return s.generated_ns; });
    return {{"n_kv_max", r.max_tokens},
            {"n_batch", r.batch_size},
            {"n_ubatch", r.batch_size},
            {"flash_attn", 1},
            {"is_pp_shared", 0},
            {"is_tg_separate", 0},
            {"n_gpu_layers", n_gpu_layers(subject.setup)},
            {"n_threads", r.threads},
            {"n_threads_batch", r.threads},
            {"pp", r.test.prompt},
            {"tg", r.test.generated},
            {"pl", r.test.sequences},
            {"n_kv", uint64_t(r.test.sequences) * r.test.length()},
            {"t_pp", prompt},
            {"speed_pp", double(r.test.sequences) * r.test.prompt / prompt},
            {"t_tg", generated},
            {"speed_tg", double(r.test.sequences) * r.test.generated / generated},
            {"t", prompt + generated},
            {"speed", double(r.test.tokens()) / (prompt + generated)}};
}

} // namespace tq::bench
