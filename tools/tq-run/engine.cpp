#include "tools/tq-run/engine.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/calibration.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/tuning_file.h"
#include "model/synthetic.h"
#include "tools/tq-run/download.h"
#include "tools/tq-run/plan.h"
#include "tools/tq-run/progress.h"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

namespace tq {
namespace {

namespace fs = std::filesystem;

// 8192 leaves room for a long thinking answer, and costs even Qwen3-14B only 330 MiB of tq4 cache.
constexpr uint32_t default_context = 8192;
constexpr uint32_t least_context = 512; // below it a conversation makes no sense

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
    const uint32_t most = model.config.max_position_embeddings, trained = model.config.rope_scaling.original_context_length;
    const uint32_t chosen = arguments.context_size.value_or(std::min(most, default_context));
    const uint64_t factor = std::min((std::max(chosen, 1u) - 1) / trained + 1, 1024u); // the least that holds it all
    if (chosen > most)
        write_error(
            fmt::format("tq-run: the model was {} {} tokens; beyond them its answers may be nonsense: --rope-scaling yarn "
                        "--rope-scale {} stretches it to {}\n",
                        most == trained ? "trained for" : "stretched to", most, factor, uint64_t(trained) * factor));
    return chosen == 0 ? most : chosen;
}

} // namespace

std::vector<bool> Engine::unsampled(bool ignore_end) const {
    auto excluded = unsampled_ids(model.tokenizer, model.config.vocab_size);
    for (uint32_t id = 0; ignore_end && id < model.tokenizer.size(); ++id)
        if (model.tokenizer.is_end_of_generation(id)) excluded[id] = true;
    return excluded;
}

std::filesystem::path find_model(const ModelSource& source, Console& console) {
    if (!source.repository.empty()) return download_model(source, console);
    return source.path.empty() ? find_demo_model() : fs::path(source.path);
}

std::filesystem::path find_demo_model() {
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

// Nobody asked for so many tokens: takes what fits, if that is enough to talk.
static void shrink_context(Setup& setup) {
    if (setup.plan().fits()) return;
    const uint32_t most =
        largest_context(setup.options.context_size, [&](uint32_t n) { return setup.plan(n, setup.options.kv); });
    if (most < least_context) return;
    setup.options.context_size = most;
    write_error(
        fmt::format("tq-run: the context is {} tokens, for more do not fit the memory of {}; tq-run plan shows what does\n", most,
                    setup.device ? setup.device_name : "this machine"));
}

static void quantise_weights(Model& model, GgmlType format) {
    if (quantise(model.weights, format) != 0 || model.weights.token_embd.type == format) return;
    write_error(fmt::format("tq-run: --weights changes nothing: the weights of {} are {} already\n", model.name,
                            type_name(model.weights.token_embd.type)));
}

MemoryPlan Setup::plan(uint32_t context_size, const KvOptions& kv) const {
    ForwardOptions changed = options;
    changed.context_size = context_size;
    changed.kv = kv;
    MemoryPlan plan = device ? gpu::plan_memory(*device, model.config, model.weights, changed)
                             : plan_cpu_memory(model.config, model.weights, changed);
    if (memory_limit_bytes != 0) plan.available = std::min(plan.available, memory_limit_bytes);
    return plan;
}

Setup set_up(const ModelArguments& arguments, Console& console) {
    const bool on_cpu = arguments.device == "cpu";
    if (on_cpu && arguments.profile)
        throw UsageError("--profile times the kernels of a Vulkan device: it says nothing of --device cpu");
    auto device = on_cpu ? nullptr : std::make_unique<Device>(arguments.device); // before a download that it would make useless
    std::string device_name = "CPU";
    if (device) {
        const Capabilities& c = device->capabilities();
        device_name = printable(fmt::format("{}, {} {}", c.name, c.driver_name, c.driver_info), 160);
        device->profile = arguments.profile;
        const std::string problem = gpu::stored_tuning(c).problem;
        if (!problem.empty()) write_error(fmt::format("tq-run: {}\n", problem));
    }
    Model model = arguments.synthetic.empty() ? load_model(find_model(arguments.model, console))
                                              : make_synthetic(parse_synthetic(arguments.synthetic, arguments.layers));
    if (const auto format = weight_format(arguments)) quantise_weights(model, *format);
    model.config = with_rope(model.config, arguments.rope.overrides());
    ForwardOptions options{arguments.kv.options(), choose_context(arguments, model), arguments.threads, arguments.batch_size};
    check_kv(options.kv, model.config.num_hidden_layers);
    load_conditioning(options.kv.conditioning, model.config, model.weights);
    const uint64_t limit = arguments.memory_limit_mib << 20;
    if (device) device->memory_limit_bytes = limit;
    Setup setup{std::move(model), std::move(device), std::move(device_name), options, limit};
    if (!arguments.context_size) shrink_context(setup);
    return setup;
}

std::unique_ptr<Engine> start_engine(const ModelArguments& arguments, Console& console) {
    Setup setup = set_up(arguments, console);
    if (!setup.plan().fits()) {
        write_error(memory_table(setup));
        fail("{} does not fit the memory of {}", setup.model.name, setup.device ? setup.device_name : "this machine");
    }
    const ForwardOptions options = setup.options;
    auto engine = std::unique_ptr<Engine>(
        new Engine{std::move(setup.model), std::move(setup.device), std::move(setup.device_name), nullptr, 0});
    const Model& model = engine->model;
    TransferStatus status(console);
    const auto started = std::chrono::steady_clock::now();
    const auto on_load = [&, what = fmt::format("loading {}", model.name)](uint64_t done, uint64_t total) {
        status.update(what, done, total, done);
        engine->load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
        return !interrupted();
    };
    catch_interrupts();
    engine->forward = engine->device ? make_gpu_forward(*engine->device, model.config, model.weights, options, on_load)
                                     : make_cpu_forward(model.config, model.weights, options, on_load);
    return engine;
}

std::string build_description() { return fmt::format("tq-run {} ({}, {})", TQ_VERSION, compiler, build_type); }

std::string load_description(const Engine& engine) {
    const auto bytes = double(engine.model.weights.bytes());
    return fmt::format("{:.1f} MiB of weights loaded in {:.2f} s, {:.2f} GB/s", bytes / (1 << 20), engine.load_seconds,
                       bytes * 1e-9 / std::max(engine.load_seconds, 1e-6));
}

std::string kv_description(const Engine& engine) {
    const uint64_t bytes = engine.forward->kv_bytes_per_token();
    const uint64_t f16_bytes = kv_bytes_per_token(engine.model.config, KvOptions{KvType::f16, KvType::f16});
    const double ratio = double(f16_bytes) / double(bytes);
    const std::string against = ratio > 1   ? fmt::format(" ({:.2f}x smaller than f16)", ratio)
                                : ratio < 1 ? fmt::format(" ({:.2f}x larger than f16)", 1 / ratio)
                                            : "";
    const uint64_t recent = kv_recent_bytes(engine.model.config, engine.forward->kv());
    const std::string beside = recent == 0 ? "" : fmt::format(" and {:.1f} MiB", double(recent) / (1 << 20));
    return fmt::format("{} B/token{} {}{}", bytes, beside, describe(engine.forward->kv()), against);
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
    if (!engine.device || !engine.device->profile) return;
    write_error(profile_table(engine.device->take_profile()));
    write_error(engine.device->kernels_built().text() + "\n");
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
