// A model before it is loaded: the first two of the steps from flags to a model that runs (engine.cpp has the third).
// 1. set_up: the device is chosen (not opened) before a download that an error would make useless; the model's file is found or
//    downloaded and its headers are read; the device proves itself for this model and is opened; the context is reduced if none
//    was asked for and the usual one does not fit.
// 2. Setup::plan: memory by arithmetic alone. `plan`, the choice of the context and the refusal of what does not fit ask here, so
//    they agree.
// set_up_plan is set_up for a machine that need not be this one: --memory is then all the memory there is.
#include "tools/tq-run/engine/setup.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "model/cpu/forward.h"
#include "model/gpu/plan.h"
#include "model/hub/names.h"
#include "model/stages/split.h"
#include "model/weights/synthetic/synthetic.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/download.h"
#include "tools/tq-run/engine/engine_devices.h"
#include "tools/tq-run/engine/memory_table.h"
#include "tools/tq-run/engine/ranks.h"
#include <algorithm>
#include <system_error>

namespace tq {
namespace {

namespace fs = std::filesystem;

// 8192 tokens are enough for a long thinking answer, and cost even Qwen3-14B only 330 MiB of tq4 cache.
constexpr uint32_t default_context = 8192;
constexpr uint32_t min_context = 512;         // too few for a conversation below that
constexpr uint32_t min_shared_context = 4096; // below that, a model rather shares its layers with the CPU

// A request for more than the model was trained for is granted with a warning, since it was asked for. 0 means all that the model
// allows.
uint32_t choose_context(const ModelArguments& arguments, const Model& model) {
    const uint32_t max = model.config.max_position_embeddings, trained = model.config.rope_scaling.original_context_length;
    const uint32_t chosen = arguments.context_size.value_or(std::min(max, default_context));
    const uint64_t factor = std::min((std::max(chosen, 1u) - 1) / trained + 1, 1024u); // the smallest that covers it all
    if (chosen > max)
        write_error(fmt::format("tq-run: the model was {} {} tokens, and beyond them its answers may be nonsense: --rope-scaling "
                                "yarn --rope-scale {} extends it to {}\n",
                                max == trained ? "trained for" : "extended to", max, factor, uint64_t(trained) * factor));
    return chosen == 0 ? max : chosen;
}

} // namespace

// Suggests -hf if a repository was named as a file.
static void require_file(const std::string& path) {
    std::error_code ignored;
    const std::string repository = path.substr(0, path.find(':'));
    if (fs::exists(utf8_path(path), ignored) || !is_repository_name(repository) || repository.ends_with(".gguf")) return;
    fail("cannot open {}: there is no such file or directory; for a repository on Hugging Face give -hf {}", printable(path),
         printable(path));
}

std::filesystem::path find_model(const ModelSource& source, Console& console) {
    if (!source.repository.empty()) return download_model(source, console);
    require_file(source.path);
    return source.path.empty() ? find_demo_model() : utf8_path(source.path);
}

std::filesystem::path find_demo_model() {
    if (const auto from_environment = environment_variable("TQ_DEMO_MODEL")) return utf8_path(*from_environment);
    const fs::path name = "demo-q8_0.gguf";
    // The places of an installed program, and of one in a build directory, or on Windows.
    const fs::path shared = fs::path("share") / "tq-run" / name;
    const fs::path places[]{(executable_directory() / ".." / shared).lexically_normal(), executable_directory() / shared};
    std::error_code ignored;
    for (const fs::path& place : places)
        if (fs::exists(place, ignored)) return place;
    fail("the demo model is neither at {} nor at {}: name a model file with -m, or set the environment variable TQ_DEMO_MODEL to "
         "the demo model",
         utf8_text(places[0]), utf8_text(places[1]));
}

// For a context that was not requested: reduces it to what fits, if that is enough for a conversation. If the device could
// share the model with the CPU, which is slow, that is worth a shorter conversation, but not too short a one.
static void shrink_context(Setup& setup) {
    ForwardOptions options = setup.options;
    const auto max_of = [&](auto plan) {
        return largest_context(setup.options.context_size, [&](uint32_t n) {
            options.context_size = n;
            return plan(options);
        });
    };
    const auto alone = [&](const ForwardOptions& o) { return setup.plan_alone(o); };
    if ((setup.placement.given() && setup.split()) || alone(options).fits()) return;
    uint32_t max = max_of(alone);
    if (max < min_shared_context && setup.split()) {
        if (setup.plan().runs()) return;
        max = max_of([&](const ForwardOptions& o) { return setup.plan(o); });
    }
    if (max < min_context || max == setup.options.context_size) return;
    setup.options.context_size = max;
    write_error(fmt::format("tq-run: the context is reduced to {} tokens, as more do not fit {}; tq-run plan shows what fits\n",
                            max, memory_name(setup)));
}

static void quantise_weights(Model& model, GgmlType format) {
    if (quantise(model.weights, format) != 0 || model.weights.token_embd.type == format) return;
    write_error(fmt::format("tq-run: --weights has no effect: the weights of {} are already {}\n", model.name,
                            type_name(model.weights.token_embd.type)));
}

MemoryPlan Setup::plan(uint32_t context_size, const KvOptions& kv) const {
    ForwardOptions changed = options;
    changed.context_size = context_size;
    changed.kv = kv;
    return plan(changed);
}

// Returns the devices as the placement counts them: the opened ones; with `plan --memory` an imagined one takes the place of
// the first.
Placing Setup::placing() const {
    Placing out{.memory_limit_bytes = memory_limit_bytes, .limit_is_all = imagined, .asked = placement};
    out.ranks = ranks;
    if (imagined_device) out.imagined.push_back(*imagined_device);
    if (device && !imagined_device) out.devices.push_back(device.get());
    for (const auto& other : other_devices) out.devices.push_back(other.get());
    return out;
}

MemoryPlan Setup::plan(const ForwardOptions& changed) const {
    const Placing where = placing();
    if (ranks) return where.plan_of_ranks(model.config, model.weights, changed);
    if (const auto split = where.choose(model.config, model.weights, changed))
        return where.plan(model.config, model.weights, changed, *split);
    return plan_alone(changed);
}

std::optional<Split> Setup::split() const {
    return ranks ? std::nullopt : placing().choose(model.config, model.weights, options);
}

// --memory is all there is if the device is imagined, and else a limit below what the driver reports.
MemoryPlan Setup::plan_alone(const ForwardOptions& changed) const {
    MemoryPlan plan = imagined_device ? gpu::plan_memory(*imagined_device, model.config, model.weights, changed)
                      : device        ? gpu::plan_memory(*device, model.config, model.weights, changed)
                                      : plan_cpu_memory(model.config, model.weights, changed);
    if (imagined)
        plan.available = memory_limit_bytes;
    else if (memory_limit_bytes != 0)
        plan.available = std::min(plan.available, memory_limit_bytes);
    return plan;
}

// Sets up everything but the device.
// The order matters. Weights are quantised before anything counts their bytes. The rotary table's extension comes before the
// context is chosen, which it may lengthen. Conditioning is read last, since it may need a fingerprint of all weights, which
// takes time on a large file.
static Setup set_up_model(const ModelArguments& arguments, Console& console, const Drafting& drafting = {}) {
    const fs::path file = arguments.synthetic.empty() ? find_model(arguments.model, console) : fs::path();
    Model model = file.empty() ? make_synthetic(parse_synthetic(arguments.synthetic, arguments.layers))
                               : load_model(file, {.mtp = drafting.head});
    for (const std::string& note : model.notes) write_error(fmt::format("tq-run: {}\n", note));
    if (const auto format = weight_format(arguments)) quantise_weights(model, *format);
    model.config = with_rope(model.config, arguments.rope.overrides());
    const bool drafts = drafting.on || (drafting.head != MtpHead::left_out && model.config.mtp);
    const ForwardOptions given{.kv = arguments.kv.options(),
                               .context_size = choose_context(arguments, model),
                               .threads = arguments.threads,
                               .batch_size = arguments.batch_size,
                               .deterministic = arguments.deterministic,
                               .pending = model.config.has_states() && drafts ? drafting.pending : 0,
                               .speculative = drafts,
                               .checkpoint_bytes = std::min(Cache::Shape{}.checkpoint_bytes, physical_memory_bytes() / 16),
                               .memory_bytes = arguments.memory_limit_bytes == 0 ? UINT64_MAX : arguments.memory_limit_bytes};
    ForwardOptions options = given;
    check_kv(options.kv, model.config);
    load_conditioning(options.kv.conditioning, model, console);
    Setup setup{.file = file,
                .model = std::move(model),
                .device = nullptr,
                .device_name = "CPU",
                .options = options,
                .memory_limit_bytes = arguments.memory_limit_bytes};
    setup.placement = arguments.placement;
    setup.placement.cpu_among = cpu_among(arguments.device);
    setup.placement.check();
    return setup;
}

// Leaves the head out if it has not been measured to gain, unless it is asked for.
static Drafting drafting_here(Drafting drafting, bool on_cpu_alone) {
    if (drafting.head == MtpHead::if_there && !on_cpu_alone) drafting.head = MtpHead::left_out;
    return drafting;
}

// Devices are found first, since their error would make a download useless. The model is read before they are opened, because
// they prove themselves for its formats and sizes. Ranks and the context come last: both depend on the devices' memory.
Setup set_up(const ModelArguments& arguments, Console& console, WithoutGpu otherwise, const Drafting& drafting) {
    const std::string names = own_device(arguments);
    const auto chosen = find_devices(names, otherwise); // before a download that its error would make useless
    if (chosen.empty() && arguments.profile)
        throw UsageError("--profile times the kernels of a Vulkan device, and this runs on the CPU: name a device with --device "
                         "(tq-run devices lists them)");
    Setup setup =
        set_up_model(arguments, console, drafting_here(drafting, chosen.empty() && arguments.placement.layers_per_rank.empty()));
    auto devices = open_devices(chosen, conformance::subject_of(setup.model.config, setup.model.weights, setup.options.kv),
                                console, otherwise);
    if (arguments.measured) require_chosen(names, chosen, devices[0] ? devices.size() : 0);
    setup.device_name = devices[0] ? describe_device(*devices[0]) : "CPU";
    setup.device = std::move(devices[0]);
    devices.erase(devices.begin());
    for (const auto& other : devices) setup.device_name += " + " + describe_device(*other);
    setup.other_devices = std::move(devices);
    setup.selector = names;
    for (Device* each : setup.placing().devices) {
        each->profile = arguments.profile;
        each->memory_limit_bytes = setup.memory_limit_bytes;
    }
    if (!arguments.placement.layers_per_rank.empty())
        share_with_ranks(setup);
    else if (!arguments.context_size)
        shrink_context(setup);
    return setup;
}

// The capabilities that every desktop GPU has, with this much memory.
// A plan needs limits as well as memory (the greatest allocation, the greatest range that a shader binds). These limits are
// common among desktop GPUs, so the plan neither fails on a smaller limit nor counts on a larger one.
static Capabilities imagine_gpu(uint64_t memory_bytes) {
    Capabilities c;
    c.name = "GPU";
    c.type = DeviceType::discrete;
    c.memory_bytes = c.memory_budget_bytes = memory_bytes;
    c.allocation_bytes = c.storage_range_bytes = c.texel_range_bytes = uint64_t(2) << 30;
    c.allocation_count = 4096;
    c.storage_alignment = 16;
    c.subgroup_size = c.min_subgroup_size = c.max_subgroup_size = c.kernel_subgroup_size = 32;
    c.full_subgroups = true;
    c.subgroup_arithmetic = c.subgroup_shuffle = true;
    c.max_workgroup_invocations = 1024;
    c.max_workgroup_size = {1024, 1024, 64};
    c.max_workgroup_count = {65535, 65535, 65535};
    c.shared_memory_bytes = 32 << 10;
    c.push_constant_bytes = 128;
    c.storage_buffers_per_stage = 16;
    c.float16 = c.int8 = c.int16 = c.int8_dot_product = c.storage_8bit = c.storage_16bit = true;
    return c;
}

// Without --memory the plan is for this machine. With it the memory is imagined, and so is the GPU if --device names none;
// --device cpu plans for the processor.
Setup set_up_plan(const ModelArguments& arguments, Console& console, const Drafting& drafting) {
    if (arguments.memory_limit_bytes == 0) return set_up(arguments, console, WithoutGpu::cpu, drafting);
    auto device = arguments.device.empty() ? nullptr : choose_device(arguments.device);
    const bool on_cpu = !device && !arguments.device.empty();
    Setup setup =
        set_up_model(arguments, console, drafting_here(drafting, on_cpu && arguments.placement.layers_per_rank.empty()));
    setup.imagined = true;
    if (device) {
        setup.device_name = describe_device(*device);
        setup.device = std::move(device);
    } else if (arguments.device.empty()) {
        setup.imagined_device = imagine_gpu(arguments.memory_limit_bytes);
        setup.device_name =
            fmt::format("a GPU with {} (--device cpu plans for a processor)", size_text(arguments.memory_limit_bytes));
    }
    if (!arguments.context_size) shrink_context(setup);
    return setup;
}

void require_one_device(const Setup& setup) {
    if (setup.ranks || (setup.other_devices.empty() && !setup.placement.given()) || !setup.split()) return;
    throw UsageError("this command keeps the model on one device, so that it compares nothing else: leave out -ngl, --n-cpu-moe, "
                     "--cpu-moe, -ts and all devices but one");
}

} // namespace tq
