// Whether a model fits, before anything is loaded: a conclusion, the bytes of weights, cache and scratch, the placement, the
// longest context for each type of cache, and if nothing fits, changes that would help, the smallest first.
// Three conclusions are possible. A plan fits if everything is in memory. It runs if weights that exceed the memory can stay in
// their mapped file, from which tokens read them. Else it does neither, and only then advice follows.
// The conclusion is about the placement that was chosen, which may share layers with the CPU. The table of contexts is about
// one device alone, so its rows differ by the cache and by nothing else.
#include "tools/tq-run/engine/memory_table.h"
#include "model/memory_plan.h"
#include "model/prefix/owner.h"
#include "model/weights/mixture.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/placement_table.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

// The types of cache that the table compares: the requested one, the uniform ones, and the presets.
struct Choice {
    std::string name;
    KvOptions kv;
};

// Each cache appears once: equal descriptions are equal caches. A preset that equals a uniform type gives that row its name.
std::vector<Choice> choices(const KvOptions& asked) {
    std::vector<Choice> all;
    const auto add = [&](std::string name, const KvOptions& kv) {
        const auto same = [&](const Choice& c) { return describe(c.kv) == describe(kv); };
        if (std::ranges::none_of(all, same)) all.push_back({std::move(name), kv});
    };
    add("as asked for", asked);
    for (const KvType type : {KvType::f16, KvType::q8_0, KvType::tq4, KvType::tq3}) add("", KvOptions{type, type});
    for (const KvPreset& preset : kv_presets) {
        KvOptions kv;
        kv.set(preset);
        const auto same = std::ranges::find_if(all, [&](const Choice& c) { return describe(c.kv) == describe(kv); });
        if (same != all.end() && same->name.empty())
            same->name = fmt::format("--kv {}", preset.name);
        else
            add(fmt::format("--kv {}", preset.name), kv);
    }
    return all;
}

// The tokens that fit, at most what the model allows, or the requested number if that is greater.
// By the plan of one device alone: the table compares caches, and what a share of the CPU adds depends on the speed that one
// accepts.
uint32_t tokens_that_fit(const Setup& setup, const KvOptions& kv) {
    const uint32_t max = std::max(setup.model.config.max_position_embeddings, setup.options.context_size);
    return largest_context(max, [&](uint32_t tokens) {
        ForwardOptions options = setup.options;
        options.context_size = tokens;
        options.kv = kv;
        return setup.plan_alone(options);
    });
}

// Columns of N GiB count whole pages, because a cache is made of pages, after the memory that does not grow with the tokens
// (window, recurrent states).
std::vector<std::string> context_row(const Setup& setup, const Choice& choice) {
    const Config& config = setup.model.config;
    const uint64_t token_bytes = kv_bytes_per_token(config, choice.kv),
                   beside = kv_window_bytes(config, choice.kv) + config.state_bytes();
    const uint64_t page_bytes = page_layout(config, choice.kv).bytes(page_tokens); // with its exact tokens
    const auto in_gib = [&](uint64_t gib) { return ((gib << 30) - std::min(gib << 30, beside)) / page_bytes * page_tokens; };
    const uint32_t here = tokens_that_fit(setup, choice.kv);
    return {describe(choice.kv),         choice.name,
            std::to_string(token_bytes), std::to_string(here),
            std::to_string(in_gib(1)),   std::to_string(in_gib(4)),
            std::to_string(in_gib(16)),  here >= config.max_position_embeddings ? "(all the model allows)" : ""};
}

std::string context_table(const Setup& setup) {
    ForwardOptions one = setup.options;
    one.context_size = 1;
    const bool beside = setup.plan_alone(one).fits();
    std::vector<std::vector<std::string>> rows{
        {"cache (keys/values)", "", "B/token", setup.imagined ? "fit there" : "fit here", "1 GiB", "4 GiB", "16 GiB"}};
    for (const Choice& choice : choices(setup.options.kv)) rows.push_back(context_row(setup, choice));
    return fmt::format("tokens that fit {}, and in a cache of N GiB:\n{}", beside ? "beside the weights" : "without the weights",
                       aligned(std::move(rows), 2, text_columns(), {7, 4, 6, 5, 2}));
}

// The value for --memory: rounded up to a tenth of a GiB, or to a MiB.
std::string size_flag(uint64_t bytes) {
    const double mib = std::ceil(double(bytes) / (1 << 20));
    return mib < 1024 ? fmt::format("{}M", mib) : fmt::format("{:.1f}G", std::ceil(mib / 102.4) / 10);
}

// Returns the bytes of the recurrent layers' states. The cache's bytes include them.
uint64_t states_bytes(const Setup& setup) { return setup.options.slots * setup.model.config.state_bytes(); }

uint64_t mapped_bytes_per_token(const Setup& setup) {
    return read_by_token(setup.model.weights, setup.model.config).mapped_bytes();
}

// Says what happens if a plan runs, but does not fit.
std::string reading_text(const Setup& setup, const MemoryPlan& plan) {
    return fmt::format(
        "the weights ({}) exceed the memory beside cache and scratch ({}): they are read from the file as tokens need "
        "them, up to {} a token, at the speed of the disk, and only the results tell of NaN and infinite weights\n",
        size_text(plan.mapped), size_text(plan.available - plan.needed()), size_text(mapped_bytes_per_token(setup)));
}

// A sentence with "fits", "runs" or "does not fit", and its numbers.
std::string conclusion(const Setup& setup, const MemoryPlan& plan) {
    const std::string what = fmt::format("{} with {} tokens", setup.model.name, setup.options.context_size);
    const std::string numbers =
        fmt::format("{} of {}", size_text(plan.fits() ? plan.total() : plan.needed()), size_text(plan.available));
    if (plan.runs() && setup.split()) return fmt::format("{} shares devices and the CPU: it takes {}\n", what, numbers);
    if (plan.fits()) return fmt::format("{} fits: it takes {}\n", what, numbers);
    if (plan.runs()) return fmt::format("{} runs: {}", what, reading_text(setup, plan));
    if (plan.needed() > plan.available)
        return fmt::format("{} does not fit: it takes {}, {} too many\n", what, numbers,
                           size_text(plan.needed() - plan.available));
    return fmt::format("{} does not fit: its rotary table takes {}, but the device binds {} at once\n", what,
                       size_text(plan.largest_part), size_text(plan.allocation_limit));
}

// Changes that would make it fit, the smallest first.
// A context and a cache are advised only after a plan with them runs. What cannot be planned here (a smaller model, more memory)
// comes with the bytes that it takes.
std::string advice(const Setup& setup) {
    const uint32_t asked = setup.options.context_size, max = tokens_that_fit(setup, setup.options.kv);
    std::string text;
    if (max > 0)
        text += fmt::format("  -c {}: as many tokens as fit with {}\n", std::min(max, asked), describe(setup.options.kv));
    const Choice* best = nullptr;
    const auto all = choices(setup.options.kv);
    for (const Choice& choice : all) { // the largest cache that fits
        if (!setup.plan(asked, choice.kv).runs()) continue;
        const auto bytes = [&](const Choice& c) { return kv_bytes_per_token(setup.model.config, c.kv); };
        if (!best || bytes(choice) > bytes(*best)) best = &choice;
    }
    if (best) text += fmt::format("  -ctk {} -ctv {}: {} tokens fit\n", name(best->kv.k), name(best->kv.v), asked);
    const MemoryPlan min = setup.plan(1, KvOptions{KvType::tq2, KvType::tq2}), whole = setup.plan();
    if (!min.runs())
        text += fmt::format("  a smaller model, or weights in fewer bits: these take {} without any context\n",
                            size_text(min.needed()));
    if (!setup.device && !setup.imagined_device && whole.kv_cache + whole.scratch <= whole.available)
        text += fmt::format("  a GGUF file without --weights: {} of these weights are made in memory, where that file's need not "
                            "fit\n",
                            size_text(whole.weights - whole.mapped));
    if (setup.placement.fit == "off" && (setup.device || setup.imagined_device))
        text += "  --fit on: what does not fit the device is placed on the CPU\n";
    if (setup.imagined)
        text += fmt::format("  --memory {}: a device with that much holds it\n", size_flag(whole.total()));
    else if (setup.memory_limit_bytes != 0)
        text += fmt::format("  a higher limit: --memory {}\n", size_flag(whole.total()));
    if (setup.device && !setup.imagined)
        text += "  another device: tq-run devices lists them; --device cpu runs in the machine's own memory, or from the file\n";
    return "what would help:\n" + text;
}

} // namespace

std::string memory_name(const Setup& setup) {
    if (setup.memory_limit_bytes != 0 && setup.plan().available == setup.memory_limit_bytes)
        return fmt::format("the {} of --memory", size_text(setup.memory_limit_bytes));
    return fmt::format("the memory of {}", setup.device ? setup.device_name : "this machine");
}

void warn_of_reading(const Setup& setup) {
    if (const MemoryPlan plan = setup.plan(); plan.runs() && !plan.fits()) write_error("tq-run: " + reading_text(setup, plan));
}

std::string memory_table(const Setup& setup) {
    const MemoryPlan plan = setup.plan();
    std::string text = conclusion(setup, plan);
    text += fmt::format("\nmodel     {}, {} layers\nformats   {}\ndevice    {}\n\n", setup.model.name,
                        setup.model.config.num_hidden_layers, describe_mixture(bytes_by_format(setup.model.weights)),
                        setup.device_name);
    const auto row = [&](const char* what, uint64_t bytes, const std::string& note) {
        text += fmt::format("{:<10}{:>12}{}\n", what, size_text(bytes), note.empty() ? "" : "   " + note);
    };
    row("weights", plan.weights, plan.fits() || plan.mapped == 0 ? "" : size_text(plan.mapped) + " of them in the file");
    const uint64_t states = states_bytes(setup);
    row("KV cache", plan.kv_cache,
        fmt::format("{} tokens of {} B in {}{}", setup.options.context_size,
                    kv_bytes_per_token(setup.model.config, setup.options.kv), describe(setup.options.kv),
                    states > 0 ? fmt::format("; states of {}", size_text(states)) : ""));
    row("scratch", plan.scratch, "activations, rotary table, staging");
    row("total", plan.total(), "");
    row("available", plan.available, "");
    if (const std::string placement = placement_table(setup); !placement.empty()) text += "\n" + placement;
    text += "\n" + context_table(setup);
    if (!plan.runs()) text += "\n" + advice(setup);
    return text;
}

nlohmann::ordered_json memory_json(const Setup& setup) {
    const MemoryPlan plan = setup.plan();
    nlohmann::ordered_json json{{"model", setup.model.name},
                                {"device", setup.device_name},
                                {"context_size", setup.options.context_size},
                                {"cache", describe(setup.options.kv)},
                                {"weights_bytes", plan.weights},
                                {"weight_formats", nlohmann::ordered_json::array()},
                                {"kv_cache_bytes", plan.kv_cache},
                                {"states_bytes", states_bytes(setup)},
                                {"scratch_bytes", plan.scratch},
                                {"total_bytes", plan.total()},
                                {"available_bytes", plan.available},
                                {"fits", plan.fits()},
                                {"runs", plan.runs()},
                                {"mapped_bytes", plan.mapped},
                                {"mapped_bytes_per_token", mapped_bytes_per_token(setup)},
                                {"placement", placement_json(setup)},
                                {"largest_context", nlohmann::ordered_json::array()}};
    for (const FormatBytes& one : bytes_by_format(setup.model.weights)) // as they are in the file
        json["weight_formats"].push_back({{"format", type_name(one.type)}, {"bytes", one.bytes}});
    for (const Choice& choice : choices(setup.options.kv))
        json["largest_context"].push_back({{"cache", describe(choice.kv)},
                                           {"bytes_per_token", kv_bytes_per_token(setup.model.config, choice.kv)},
                                           {"tokens", tokens_that_fit(setup, choice.kv)}});
    return json;
}

} // namespace tq
