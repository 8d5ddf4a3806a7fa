#include "tools/tq-run/engine.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace tq {
namespace {

namespace fs = std::filesystem;

// 8192 leaves room for a long thinking answer, and costs even Qwen3-14B only 330 MiB of tq4 cache.
constexpr uint32_t default_context = 8192;

#if defined(__clang__)
constexpr const char* compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* compiler = "gcc " __VERSION__;
#else
constexpr const char* compiler = "another compiler";
#endif
#ifdef NDEBUG
constexpr const char* build_type = "release";
#else
constexpr const char* build_type = "debug";
#endif

uint32_t choose_context(const ModelArguments& arguments, const Model& model) {
    const uint32_t most = model.config.max_position_embeddings;
    const uint32_t chosen = arguments.context_size.value_or(std::min(most, default_context));
    if (chosen > most)
        write_error(fmt::format("tq-run: the model was trained for {} tokens; beyond them its answers may be nonsense\n", most));
    return chosen == 0 ? most : chosen;
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20)); }

} // namespace

std::vector<bool> Engine::unsampled(bool ignore_end) const {
    auto excluded = unsampled_ids(model.tokenizer, model.config.vocab_size);
    for (uint32_t id = 0; ignore_end && id < model.tokenizer.size(); ++id)
        if (model.tokenizer.is_end_of_generation(id)) excluded[id] = true;
    return excluded;
}

std::filesystem::path find_model(const std::string& given) {
    if (!given.empty()) return given;
    const char* from_environment = std::getenv("TQ_DEMO_MODEL");
    if (from_environment && *from_environment) return from_environment;
    const fs::path name = "demo-q8_0.gguf";
    const fs::path places[]{executable_directory() / ".." / "share" / "tq-run" / name,
                            fs::path(TQ_SOURCE_DIR) / "tools/demo-model" / name};
    std::error_code ignored;
    for (const fs::path& place : places)
        if (fs::exists(place, ignored)) return place.lexically_normal();
    fail("the demo model is neither {} nor {}: name a model file with -m, or the demo in the environment variable TQ_DEMO_MODEL",
         places[0].lexically_normal().string(), places[1].string());
}

std::unique_ptr<Engine> start_engine(const ModelArguments& arguments, Console& console) {
    const bool on_cpu = arguments.device == "cpu";
    if (on_cpu && arguments.profile)
        throw UsageError("--profile times the kernels of a Vulkan device: it says nothing of --device cpu");
    const fs::path path = find_model(arguments.model);
    auto device = on_cpu ? nullptr : std::make_unique<Device>(arguments.device);
    auto engine = std::unique_ptr<Engine>(new Engine{load_model(path), std::move(device), "CPU", nullptr});
    const Model& model = engine->model;
    const ForwardOptions options{arguments.kv.options(), choose_context(arguments, model), arguments.threads,
                                 arguments.batch_size};
    check_kv_layers(options.kv, model.config.num_hidden_layers);
    if (on_cpu) {
        check_finite(model.weights);
        engine->forward = make_cpu_forward(model.config, model.weights, options);
        return engine;
    }
    const Capabilities& c = engine->device->capabilities();
    engine->device_name = printable(fmt::format("{}, {} {}", c.name, c.driver_name, c.driver_info), 160);
    engine->device->profile = arguments.profile;
    uint64_t shown = UINT64_MAX;
    engine->forward = make_gpu_forward(*engine->device, model.config, model.weights, options, [&](uint64_t done, uint64_t total) {
        const uint64_t percent = done * 100 / std::max<uint64_t>(total, 1);
        if (percent != std::exchange(shown, percent))
            console.status(fmt::format("loading {}: {} % of {}", model.name, percent, megabytes(total)));
    });
    console.clear_status();
    return engine;
}

std::string build_description() { return fmt::format("tq-run {} ({}, {})", TQ_VERSION, compiler, build_type); }

std::string kv_description(const Engine& engine) {
    const uint64_t bytes = engine.forward->kv_bytes_per_token();
    const uint64_t f16_bytes = kv_bytes_per_token(engine.model.config, KvOptions{KvType::f16, KvType::f16});
    const double ratio = double(f16_bytes) / double(bytes);
    const std::string against = ratio > 1   ? fmt::format(" ({:.2f}x smaller than f16)", ratio)
                                : ratio < 1 ? fmt::format(" ({:.2f}x larger than f16)", 1 / ratio)
                                            : "";
    return fmt::format("{} B/token {}{}", bytes, describe(engine.forward->kv()), against);
}

std::string sampling_description(const SamplerOptions& o) {
    std::string text = o.temperature == 0 || o.top_k == 1
                           ? "greedy"
                           : fmt::format("temperature {}, top-k {}, top-p {}", o.temperature, o.top_k, o.top_p);
    const auto add = [&](bool used, const char* name, auto value) {
        if (used) text += fmt::format(", {} {}", name, value);
    };
    add(o.min_p != 0, "min-p", o.min_p);
    add(o.repeat_penalty != 1, "repeat penalty", o.repeat_penalty);
    add(o.presence_penalty != 0, "presence penalty", o.presence_penalty);
    add(o.frequency_penalty != 0, "frequency penalty", o.frequency_penalty);
    add(o.temperature != 0 && o.top_k != 1, "seed", o.seed);
    return text;
}

std::string timing_line(const Engine& engine, const Timings& timings) {
    return fmt::format("[ Prompt: {:.1f} t/s | Generation: {:.1f} t/s | KV: {} ]", timings.prompt_per_second(),
                       timings.decoded_per_second(), kv_description(engine));
}

void report_profile(Engine& engine) {
    if (engine.device && engine.device->profile) write_error(profile_table(engine.device->take_profile()));
}

GenerateOptions interruptible(Console& console) {
    GenerateOptions options;
    options.interrupted = interrupted;
    options.on_prompt = [&console](uint32_t done, uint32_t total) {
        if (done < total) console.status(fmt::format("reading the prompt: {} of {} tokens", done, total));
    };
    return options;
}

} // namespace tq
