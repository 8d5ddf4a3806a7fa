// The table by which a user chooses flags of placement: memory of each part, and the predicted speed of this placement beside
// --cpu-moe, the largest -ngl that fits (found by bisection, since more layers never take less), and the CPU alone. Placements
// that are the same are shown once.
#include "tools/tq-run/engine/placement_table.h"
#include "base/printable.h"
#include "model/stages/placement.h"
#include "model/stages/split.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/placement.h"
#include "tools/tq-run/engine/setup.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

// A placement to compare.
struct Compared {
    std::string flags;
    Split split;
};

// Everything on the first device.
Split whole(const Setup& setup) {
    const Placing placing = setup.placing();
    const size_t devices = std::max(placing.devices.size(), placing.imagined.size());
    return Split(std::vector<uint32_t>(halves_of(setup.model.config.num_hidden_layers), 0), uint32_t(devices + 1));
}

Split with(const Setup& setup, const PlacementArguments& asked) {
    Placing placing = setup.placing();
    placing.asked = asked;
    const auto split = placing.choose(setup.model.config, setup.model.weights, setup.options);
    return split ? *split : whole(setup);
}

bool fits_devices(const Setup& setup, const Split& split) {
    const auto parts = setup.placing().parts(setup.model.config, setup.model.weights, setup.options, split);
    return std::ranges::all_of(std::span(parts).first(parts.size() - 1), [](const PlacedPart& p) { return p.plan.fits(); });
}

// Whole layers on the devices, as many as fit.
// -ngl N is bisected in [0, layers + 2): -ngl 0 always fits, as the devices then hold nothing, and -ngl (layers + 1) is all
// layers and the output matrix.
Compared max_layers(const Setup& setup) {
    const PlacementArguments& given = setup.placement;
    const auto split_of = [&](uint32_t count) {
        return with(setup, {.gpu_layers = std::to_string(count),
                            .tensor_split = given.tensor_split,
                            .cpu_among = given.cpu_among,
                            .fit = "off"});
    };
    uint32_t max = 0, too_many = setup.model.config.num_hidden_layers + 2;
    while (too_many - max > 1) {
        const uint32_t middle = (max + too_many) / 2;
        (fits_devices(setup, split_of(middle)) ? max : too_many) = middle;
    }
    return {fmt::format("-ngl {}", max), split_of(max)};
}

// The chosen placement is the first row. The others are placements that a user would try by hand.
std::vector<Compared> compared(const Setup& setup, const Split& chosen) {
    std::vector<Compared> all{{setup.placement.given() ? "as asked for" : "--fit on", chosen}};
    const auto add = [&](Compared choice) {
        const auto same = [&](const Compared& c) {
            return c.split.parts() == choice.split.parts() && c.split.device_of_head() == choice.split.device_of_head();
        };
        if (std::ranges::none_of(all, same)) all.push_back(std::move(choice));
    };
    const PlacementArguments& given = setup.placement;
    const Split all_moe = with(setup, {.cpu_moe = true, .tensor_split = given.tensor_split, .cpu_among = given.cpu_among});
    if (fits_devices(setup, all_moe)) add({"--cpu-moe", all_moe});
    add(max_layers(setup));
    add({"-ngl 0", with(setup, {.gpu_layers = "0"})});
    return all;
}

std::vector<AssumedSpeed> speeds_of(const std::vector<PlacedPart>& parts) {
    std::vector<AssumedSpeed> speeds;
    for (const PlacedPart& part : parts) speeds.push_back(part.speed);
    return speeds;
}

double tokens_per_second(const Setup& setup, const Split& split, const std::vector<PlacedPart>& parts, uint32_t depth) {
    return 1 / predict_token_seconds(setup.model.config, setup.model.weights, setup.options.kv, depth, split, speeds_of(parts));
}

std::string parts_text(const Split& split, const std::vector<PlacedPart>& parts) {
    std::vector<std::vector<std::string>> rows{{"placement", "weights", "KV cache", "scratch", "total", "available"}};
    for (uint32_t i = 0; i < parts.size(); i++) {
        const MemoryPlan& plan = parts[i].plan;
        rows.push_back({printable(parts[i].device, 28), size_text(plan.weights), size_text(plan.kv_cache),
                        size_text(plan.scratch), size_text(plan.total()), size_text(plan.available), describe_part(split, i)});
    }
    return aligned(std::move(rows), 1, text_columns(), {3, 2, 1});
}

} // namespace

// Only ratios between the rows are of use: all of them are predicted from the same assumed speeds, which are named below the
// table.
std::string placement_table(const Setup& setup) {
    const Placing placing = setup.placing();
    if (placing.devices.empty() && placing.imagined.empty()) return {};
    const auto split = setup.split();
    const Split chosen = split ? *split : whole(setup);
    const std::vector<PlacedPart> parts = placing.parts(setup.model.config, setup.model.weights, setup.options, chosen);
    const uint32_t depth = setup.options.context_size;
    std::string text = split ? parts_text(chosen, parts) + "\n" : "";
    text += fmt::format("predicted, not measured: tokens/s of generation, by the tokens before\n{:<16} {:>8} {:>8}\n",
                        "placement", 0, depth);
    for (const Compared& choice : compared(setup, chosen))
        text += fmt::format("{:<16} {:>8.1f} {:>8.1f}   {}\n", choice.flags, tokens_per_second(setup, choice.split, parts, 0),
                            tokens_per_second(setup, choice.split, parts, depth), describe(placing, choice.split));
    const std::string streams = placing.describe_streams(setup.model.config, setup.model.weights, setup.options, chosen);
    if (!streams.empty()) text += streams + "\n";
    for (const PlacedPart& part : parts)
        text += fmt::format("{}{} at {:.0f} GB/s ({})", &part == &parts.front() ? "with " : ", ", printable(part.device, 40),
                            part.speed.gb_per_s, part.speed_source);
    return text + "\n";
}

nlohmann::ordered_json placement_json(const Setup& setup) {
    auto json = nlohmann::ordered_json::array();
    const auto chosen = setup.split();
    if (!chosen) return json;
    const auto parts = setup.placing().parts(setup.model.config, setup.model.weights, setup.options, *chosen);
    for (uint32_t i = 0; i < parts.size(); i++)
        json.push_back({{"device", parts[i].device},
                        {"has", describe_part(*chosen, i)},
                        {"weights_bytes", parts[i].plan.weights},
                        {"kv_cache_bytes", parts[i].plan.kv_cache},
                        {"scratch_bytes", parts[i].plan.scratch},
                        {"available_bytes", parts[i].plan.available},
                        {"assumed_gb_per_s", parts[i].speed.gb_per_s}});
    return json;
}

} // namespace tq
