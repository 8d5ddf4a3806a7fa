// bench --tune: searches the fastest kernel variants for this device within a number of seconds, and stores them for later runs.
// gpu::search_tuning is the search; here are the models, the clock, the progress and the table. Groups of fields are searched one
// after the other, each by its own workload. If the time ends, the groups that were not tried keep their defaults, which is said;
// if none was tried, nothing is stored.
#include "tools/tq-run/bench/tune.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "model/gpu/tuning_file.h"
#include "model/load.h"
#include "model/weights/synthetic/synthetic.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/proof.h"
#include <algorithm>
#include <chrono>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

using gpu::Tuning, gpu::GroupChoice;

constexpr const char* default_shapes[] = {"qwen3-0.6b:q8_0", "qwen3-8b:q4_k_s"};
constexpr double runs_in_budget = 300; // of the longest workload

std::string one_device(const Arguments& arguments) {
    const std::vector<std::string> all = arguments.device_list();
    if (all.size() > 1) throw UsageError("--tune takes one device at a time");
    if (all[0] == "cpu" || all[0] == "none")
        throw UsageError("--tune needs a Vulkan device: the CPU path has no variants to choose from");
    return all[0];
}

KvOptions one_cache(const Arguments& arguments) {
    const std::vector<KvOptions> all = arguments.caches();
    if (all.size() > 1 || all[0].layer_count != 0) throw UsageError("--tune takes one type of keys and one of values");
    return all[0];
}

Model open(const ModelArguments& arguments, Console& console) {
    Model model = arguments.synthetic.empty() ? load_model(find_model(arguments.model, console))
                                              : make_synthetic(parse_synthetic(arguments.synthetic, arguments.layers));
    if (const auto format = weight_format(arguments)) quantise(model.weights, *format);
    return model;
}

// The requested model, or layers with the sizes of small and large models.
std::vector<Model> models(const Arguments& arguments, Console& console) {
    std::vector<Model> out;
    if (arguments.model.synthetic.empty() && arguments.model.model.is_demo())
        for (const char* shape : default_shapes) out.push_back(make_synthetic(parse_synthetic(shape)));
    else
        for (const ModelArguments& one : arguments.model_list()) out.push_back(open(one, console));
    return out;
}

void show(Console& console, const std::string& what) {
    if (console.verbose())
        write_error(what + "\n");
    else
        console.status(what);
}

gpu::Found search(Trials& trials, Device& device, const Stopwatch& clock, double budget, Console& console) {
    return gpu::search_tuning(
        device.capabilities(),
        {.make = [&](const Tuning& tuning, gpu::Workload workload) { return trials.make(tuning, workload); },
         .seconds_left = [&] { return budget - clock.seconds(); },
         .on_try =
             [&](const gpu::TuningGroup& group, const std::string& what) {
                 show(console, fmt::format("tuning, {:.0f} s of {:.0f}: {}: {}", clock.seconds(), budget, group.name, what));
             },
         .on_refused =
             [&](const Tuning& tuning, const std::string& why) {
                 console.say(fmt::format("not chosen: {}: {}", gpu::describe(tuning, gpu::tuning_fields()), why));
             }});
}

Json to_json(const GroupChoice& choice) {
    Json out{{"group", choice.group->name}};
    for (const gpu::TuningField& field : choice.group->fields) {
        out["default"][field.name] = field.get(choice.before);
        out["best"][field.name] = field.get(choice.after);
    }
    out.update({{"default_ms", choice.seconds_before * 1e3},
                {"best_ms", choice.seconds_after * 1e3},
                {"ratio", choice.gain.ratio},
                {"noise", choice.gain.noise},
                {"tried", choice.tried},
                {"refused", choice.refused},
                {"left_out", choice.left_out}});
    return out;
}

Json measured(const Trials& trials, const gpu::Found& found, const KvOptions& kv, double seconds) {
    const TrialSizes& sizes = trials.sizes();
    Json out{{"seconds", seconds},
             {"clock", trials.by_timestamps() ? "device" : "wall"},
             {"cache", describe(kv)},
             {"models", trials.names()},
             {"deep_tokens", sizes.deep},
             {"prompt_tokens", sizes.prompt},
             {"deep_prompt_tokens", sizes.deep_prompt},
             {"deep_prompt_after", sizes.deep_prompt_at},
             {"long_prompt_tokens", sizes.long_prompt},
             {"groups", Json::array()}};
    for (const GroupChoice& choice : found.groups) out["groups"].push_back(to_json(choice));
    return out;
}

std::string values(const Json& fields) {
    std::string text;
    for (const auto& [name, value] : fields.items())
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value.get<uint32_t>());
    return text;
}

// A group without a time was not measured.
std::string ms(const Json& value) { return value == 0 ? "-" : fmt::format("{:.3f}", value.get<double>()); }

std::string table(const Json& found) {
    std::vector<std::vector<std::string>> rows{{"kernels", "default", "best", "default ms", "best ms", "ratio", "tried"}};
    for (const Json& group : found.at("groups")) {
        const Json &before = group.at("default"), &after = group.at("best");
        const auto tried = group.at("tried").get<uint32_t>(), left_out = group.at("left_out").get<uint32_t>();
        rows.push_back({group.at("group"), values(before), before == after ? "the same" : values(after),
                        ms(group.at("default_ms")), ms(group.at("best_ms")),
                        fmt::format("{:.2f}x", group.at("ratio").get<double>()),
                        fmt::format("{} of {}", tried, tried + left_out)});
    }
    std::vector<std::string> on;
    for (const Json& name : found.at("models")) on.push_back(name.get<std::string>());
    const auto tokens = [&](const char* key) { return found.at(key).get<uint32_t>(); };
    return fmt::format(
        "{}\nOn {} with a cache of {}; a token after {} others; prompts of {} tokens, {} after {} others, {} in blocks; "
        "timed by {} clock, in {:.1f} s.\n",
        markdown(rows, 3), fmt::join(on, " and "), found.at("cache").get<std::string>(), tokens("deep_tokens"),
        tokens("prompt_tokens"), tokens("deep_prompt_tokens"), tokens("deep_prompt_after"), tokens("long_prompt_tokens"),
        found.at("clock") == "device" ? "the device's own" : "the wall", found.at("seconds").get<double>());
}

// The groups of kernels whose variants were not tried, for lack of time.
std::vector<std::string> untried(const gpu::Found& found) {
    std::vector<std::string> out;
    for (const GroupChoice& choice : found.groups)
        if (choice.tried == 0 && choice.left_out > 0) out.emplace_back(choice.group->name);
    return out;
}

// Throws Error if nothing was tried: the result is then no tuning.
void check_tried(const gpu::Found& found, uint32_t seconds, Console& console) {
    const std::vector<std::string> names = untried(found);
    if (names.empty()) return;
    if (std::ranges::all_of(found.groups, [](const GroupChoice& choice) { return choice.tried == 0; }))
        fail("{} s were too short to try any variant, so no tuning is stored: give more with --tune-seconds", seconds);
    console.say(fmt::format("{} s were too short to try variants of {}: these keep their defaults; give more with --tune-seconds",
                            seconds, fmt::join(names, ", ")));
}

void print(const Device& device, const Json& found, Format format) {
    const std::string where = printable(utf8_text(gpu::tuning_path(device.capabilities())), 300);
    if (format != Format::markdown) {
        Json all = describe_machine();
        all["device"] = describe_device(&device);
        all["tuning"] = found;
        all["tuning"]["file"] = where;
        return write_output(all.dump(format == Format::json ? 1 : -1) + "\n");
    }
    write_text(printable(device.capabilities().name, 160) + "\n" + table(found));
    write_text(fmt::format("Stored in {}, and used from now on; tq-run bench --tune --reset removes it.\n", where));
}

int reset(const Capabilities& device) {
    const std::string where = printable(utf8_text(gpu::tuning_path(device)), 300);
    write_text(gpu::forget_tuning(device) ? fmt::format("removed {}\n", where)
                                          : fmt::format("no tuning is stored in {}\n", where));
    return 0;
}

} // namespace

// Everything that can fail is checked before anything is measured: the device, the cache, and whether a tuning of this device can
// be stored (check_storable). The clock runs from the beginning, so that the budget includes making the models. A workload is cut
// so that about runs_in_budget runs of the longest one fit. Ctrl-C stops between trials (LoadStopped) and stores nothing: half a
// search would be taken for a whole one.
int run_tune(const Arguments& arguments, Console& console) {
    const Stopwatch clock;
    const std::string selector = one_device(arguments);
    const KvOptions kv = one_cache(arguments);
    const auto chosen = find_device(selector, WithoutGpu::software);
    if (!chosen) fail("no Vulkan driver can be used: tq-run doctor tells more");
    if (arguments.reset) return reset(chosen->capabilities);
    const auto opened = open_tried(*chosen);
    Device& device = *opened;
    gpu::check_storable(device.capabilities());
    device.memory_limit_bytes = arguments.model.memory_limit_bytes;
    const std::vector<Model> all = models(arguments, console);
    catch_interrupts();
    try {
        Trials trials(device, kv, arguments.tune_seconds / runs_in_budget);
        for (const Model& model : all) {
            show(console, fmt::format("tuning: preparing {}", model.name));
            trials.add(model.name, model.config, model.weights);
        }
        const gpu::Found found = search(trials, device, clock, arguments.tune_seconds, console);
        check_tried(found, arguments.tune_seconds, console);
        const Json what = measured(trials, found, kv, clock.seconds());
        gpu::store_tuning(device.capabilities(), found.tuning, what);
        console.clear_status();
        print(device, what, arguments.output());
    } catch (const LoadStopped&) {
        console.say("stopped: nothing is stored");
        return 130;
    }
    return 0;
}

} // namespace tq::bench
