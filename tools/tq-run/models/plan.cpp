// tq-run plan: whether a model fits, before anything is loaded (engine/memory_table.h). Exit status 1: it does not run.
// With --predict it prints the speed of generation on a GPU that need not be there, by a model of its bandwidth and issue rate
// (model/gpu/predict). The same prediction for the nearest GPU that was measured, and the ratio of the two, stand beside it,
// because a prediction alone says nothing of its error.
#include "model/engine/speculation/mtp.h"
#include "model/gpu/predict.h"
#include "model/weights/synthetic/synthetic.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/memory_table.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/speculation.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct PlanArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string predict; // a GPU's name; empty: the memory instead
    bool json = false;
};

// A cache whose speed is predicted, at each depth.
struct PredictedCache {
    KvOptions kv;
    std::vector<gpu::TokenTime> times;
    std::vector<std::vector<gpu::DraftedSpeed>>
        drafted; // with drafts of the model's head: for each of `acceptances`; empty: it has none
};

constexpr double acceptances[] = {0.6, 0.8}; // what heads reach in texts of several kinds

// 0 and the powers of two from 4096 on, up to the context that the model allows.
std::vector<uint32_t> predicted_depths(const Setup& setup) {
    std::vector<uint32_t> depths{0};
    const uint32_t max = std::max(setup.model.config.max_position_embeddings, setup.options.context_size);
    for (uint32_t depth = 4096; depth < max && depth <= 131072; depth *= 2) depths.push_back(depth);
    return depths;
}

std::vector<PredictedCache> predict(const Setup& setup, const gpu::KnownGpu& gpu) {
    std::vector<PredictedCache> all;
    for (const KvOptions& kv : {setup.options.kv, KvOptions{KvType::q8_0, KvType::q8_0}, KvOptions{KvType::f16, KvType::f16}}) {
        if (std::ranges::any_of(all, [&](const PredictedCache& each) { return describe(each.kv) == describe(kv); })) continue;
        PredictedCache& cache = all.emplace_back(kv);
        if (setup.model.weights.mtp) cache.drafted.resize(std::size(acceptances));
        for (const uint32_t depth : predicted_depths(setup)) {
            const gpu::PredictedCase here{gpu, setup.model.config, setup.model.weights, kv, depth};
            cache.times.push_back(gpu::predict_pass(here));
            for (size_t i = 0; i < cache.drafted.size(); i++)
                cache.drafted[i].push_back(gpu::predict_drafting(here, acceptances[i], MtpDrafter::draft_max));
        }
    }
    return all;
}

// The nearest GPU that was measured, with what is predicted for it.
struct Confirmed {
    gpu::MeasuredSpeed measured;
    double predicted; // tokens per second

    double ratio() const { return measured.tokens_per_second / predicted; }
};

// The prediction is made for exactly what was measured there: that model, cache and depth. So the ratio of the two says how far
// the arithmetic is off on real hardware.
Confirmed nearest_confirmed(const gpu::KnownGpu& gpu) {
    const gpu::MeasuredSpeed& nearest = gpu::nearest_measured(gpu);
    const Model model = make_synthetic(parse_synthetic(nearest.model));
    const KvOptions kv{nearest.cache, nearest.cache};
    const auto time = gpu::predict_pass({gpu::find_known_gpu(nearest.gpu), model.config, model.weights, kv, nearest.depth});
    return {nearest, 1 / time.total()};
}

// The columns of depths that a narrow terminal has no room for: every second one first; the first and the last stay longest.
std::vector<size_t> spare_depths(size_t depths) {
    std::vector<size_t> spare;
    for (const size_t step : {2, 4, 8})
        for (size_t i = step / 2; i + 1 < depths; i += step) spare.push_back(1 + i);
    return spare;
}

std::string prediction_table(const Setup& setup, const gpu::KnownGpu& gpu) {
    const std::vector<uint32_t> depths = predicted_depths(setup);
    const Confirmed nearest = nearest_confirmed(gpu);
    std::string text = fmt::format("a prediction, not a measurement: generation of {} on {}, tokens/s by the tokens before\n"
                                   "the nearest GPU that was measured, {}, reached {:.2f} of its prediction ({} with {}: {:.0f} "
                                   "tokens/s, predicted {:.0f})\n\n",
                                   setup.model.name, gpu.name, nearest.measured.gpu, nearest.ratio(), nearest.measured.model,
                                   describe(KvOptions{nearest.measured.cache, nearest.measured.cache}),
                                   nearest.measured.tokens_per_second, nearest.predicted);
    std::vector<std::vector<std::string>> rows{{"cache (keys/values)"}};
    for (const uint32_t depth : depths) rows[0].push_back(std::to_string(depth));
    const std::vector<PredictedCache> caches = predict(setup, gpu);
    for (const PredictedCache& cache : caches) {
        auto& row = rows.emplace_back(1, describe(cache.kv));
        for (const gpu::TokenTime& time : cache.times) row.push_back(fmt::format("{:.1f}", 1 / time.total()));
        row.push_back(fmt::format("({} reached {:.2f} of such)", nearest.measured.gpu, nearest.ratio()));
        for (size_t i = 0; i < cache.drafted.size(); i++) {
            auto& drafts = rows.emplace_back(1, fmt::format("  drafts, {:.0f} % right", acceptances[i] * 100));
            for (const gpu::DraftedSpeed& speed : cache.drafted[i])
                drafts.push_back(fmt::format("{:.1f}", speed.tokens_per_second));
            drafts.push_back(fmt::format("(of {} tokens)", cache.drafted[i].front().length));
        }
    }
    text += aligned(std::move(rows), 1, text_columns(), spare_depths(depths.size()));
    const gpu::TokenTime& last = caches.front().times.back();
    return text +
           fmt::format(
               "\na token after {} others with {}: weights {:.2f} ms, attention {:.2f} ms, waits between kernels {:.2f} ms\n"
               "assumed: {} GB/s, of which kernels reach {:.0f} %; {} cores of {} lanes at {} GHz, which issue {:.0f} % of "
               "their instructions, as many as AMD's compiler makes; {} us a wait\n",
               depths.back(), describe(caches.front().kv), last.weights * 1e3, last.attention * 1e3, last.waits * 1e3,
               gpu.gb_per_s, gpu::bandwidth_share * 100, gpu.cores, gpu.lanes, gpu.ghz, gpu::issue_share * 100, gpu.wait_us);
}

nlohmann::ordered_json prediction_json(const Setup& setup, const gpu::KnownGpu& gpu) {
    nlohmann::ordered_json json{
        {"model", setup.model.name}, {"gpu", gpu.name}, {"is_prediction", true}, {"tokens", nlohmann::ordered_json::array()}};
    const Confirmed nearest = nearest_confirmed(gpu);
    json["nearest_measured"] = {{"gpu", nearest.measured.gpu},
                                {"model", nearest.measured.model},
                                {"cache", describe(KvOptions{nearest.measured.cache, nearest.measured.cache})},
                                {"depth", nearest.measured.depth},
                                {"tokens_per_second", nearest.measured.tokens_per_second},
                                {"predicted_tokens_per_second", nearest.predicted},
                                {"ratio", nearest.ratio()}};
    const std::vector<uint32_t> depths = predicted_depths(setup);
    for (const PredictedCache& cache : predict(setup, gpu))
        for (size_t i = 0; i < depths.size(); i++) {
            const gpu::TokenTime& time = cache.times[i];
            json["tokens"].push_back({{"cache", describe(cache.kv)},
                                      {"depth", depths[i]},
                                      {"tokens_per_second", 1 / time.total()},
                                      {"weights_seconds", time.weights},
                                      {"attention_seconds", time.attention},
                                      {"waits_seconds", time.waits}});
            for (size_t a = 0; a < cache.drafted.size(); a++)
                json["tokens"].back()["drafts"].push_back({{"acceptance", acceptances[a]},
                                                           {"length", cache.drafted[a][i].length},
                                                           {"tokens_per_second", cache.drafted[a][i].tokens_per_second}});
        }
    return json;
}

int run(const PlanArguments& arguments) {
    Console console = arguments.console.console();
    const gpu::KnownGpu* const gpu = arguments.predict.empty() ? nullptr : &gpu::find_known_gpu(arguments.predict);
    ModelArguments model = arguments.model;
    if (gpu != nullptr && model.device.empty()) model.device = "cpu"; // whatever is here: the prediction is for another device
    const Setup setup = set_up_plan(model, console, SpeculationArguments{}.drafting()); // as chat and serve run it
    if (gpu != nullptr) {
        (arguments.json ? write_output : write_text)(arguments.json ? prediction_json(setup, *gpu).dump(2) + "\n"
                                                                    : prediction_table(setup, *gpu));
        return 0;
    }
    (arguments.json ? write_output : write_text)(arguments.json ? memory_json(setup).dump(2) + "\n" : memory_table(setup));
    return setup.plan().runs() ? 0 : 1;
}

} // namespace

void add_plan(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, PlanArguments& a) {
        add_flag(command, "--json", a.json, "print the plan as JSON, in bytes");
        add_option(command, "--predict", a.predict, "GPU",
                   "predict the speed of generation on a GPU that need not be there, such as \"RTX 4090\"")
            .check(parsed_by([](const std::string& text) { gpu::find_known_gpu(text); }));
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<PlanArguments>(app, action, "plan", "Show what a model and its cache take of a device's memory, and what fits",
                               flags, run);
}

} // namespace tq
