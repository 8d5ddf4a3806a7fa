// The experts that tokens go to in a whole model: of golden files, and of routers that have no preference.
#pragma once
#include "tests/support/golden.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <charconv>

namespace tq {

using MakeTapped = std::function<std::unique_ptr<Forward>(const ForwardOptions&)>;

// Runs the ids in blocks of `block`, and returns what the routers of all layers multiply: [layers][tokens][num_experts].
inline std::vector<std::vector<float>> router_logits(const MakeTapped& make, ForwardOptions options,
                                                     std::span<const uint32_t> ids, uint32_t block, uint32_t layers,
                                                     std::vector<float>* last = nullptr) {
    std::vector<std::vector<float>> out(layers);
    options.tap = [&](std::string_view name, std::span<const float> values) {
        constexpr std::string_view before = "layer ", after = " router";
        if (!name.starts_with(before) || !name.ends_with(after)) return;
        uint32_t layer = UINT32_MAX;
        std::from_chars(name.data() + before.size(), name.data() + name.size() - after.size(), layer);
        out.at(layer).insert(out.at(layer).end(), values.begin(), values.end());
    };
    const auto forward = make(options);
    for (size_t first = 0; first < ids.size(); first += block) {
        const std::span<const float> logits = forward->run(ids.subspan(first, std::min<size_t>(block, ids.size() - first)));
        if (last) last->assign(logits.begin(), logits.end());
    }
    return out;
}

inline host::Routes choose(const Config& c, std::span<const float> logits) {
    host::Routes routes;
    host::route(routes, logits, c.num_experts, c.num_experts_per_tok, c.norm_topk_prob);
    return routes;
}

// The golden experts of every token in every layer, in their order, and their weights: with the prompt in one block, in several,
// and token by token.
inline void check_router(const Golden& golden, const MakeTapped& make) {
    constexpr double weight_limit = 5e-5; // the files have six decimals
    const Config& c = golden.config;
    CAPTURE(golden.name);
    REQUIRE(golden.router.size() == c.num_hidden_layers);
    for (const uint32_t block : {64u, 7u, 1u}) {
        CAPTURE(block);
        const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64};
        const auto logits = router_logits(make, options, golden.prompt_ids, block, c.num_hidden_layers);
        for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
            CAPTURE(layer);
            const host::Routes &want = golden.router[layer], got = choose(c, logits[layer]);
            REQUIRE(want.ids.size() == golden.prompt_ids.size() * c.num_experts_per_tok);
            CHECK(got.ids == want.ids);
            REQUIRE(got.weights.size() == want.weights.size());
            double worst = 0;
            for (size_t i = 0; i < want.weights.size(); i++)
                worst = std::max(worst, std::fabs(double(got.weights[i]) - double(want.weights[i])));
            CHECK(worst <= weight_limit);
        }
    }
}

// Calls use(golden) for the golden files of mixtures.
template <class Use> void each_golden_mixture(const Use& use) {
    for (const auto& path : other_architectures()) {
        const Golden golden = load_golden(path);
        if (golden.config.num_experts != 0) use(golden);
    }
}

// A mixture whose routers have the same row for every expert, more than a kernel's group of rows and no multiple of it.
struct UndecidedMixture {
    test::TemporaryFile path;
    Config config = test::small_config(*find_model_type("qwen3_moe"));
    std::unique_ptr<ModelFile> file;
    Weights weights;
    std::vector<std::vector<float>> routers;

    UndecidedMixture() {
        config.num_experts = 37;
        config.num_experts_per_tok = 5;
        config.intermediate_size = config.num_experts_per_tok * config.moe_intermediate_size;
        test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 3, {}});
        file = std::make_unique<ModelFile>(open_model_file(path.path()));
        weights = read_weights(*file, config);
        for (LayerWeights& l : weights.layers) {
            std::vector<float> rows = to_floats(*l.ffn_gate_inp);
            for (size_t i = config.hidden_size; i < rows.size(); i++) rows[i] = rows[i - config.hidden_size];
            routers.push_back(std::move(rows));
            l.ffn_gate_inp->data = std::as_bytes(std::span(routers.back()));
        }
    }
    UndecidedMixture(const UndecidedMixture&) = delete;
};

// Equal rows have equal logits, bit for bit, wherever they and a token are in a block, so that every token goes to the first
// experts; if passes are deterministic, the model's logits are then the same in blocks of any size, too.
inline void check_undecided(const UndecidedMixture& model, const MakeTapped& make) {
    const Config& c = model.config;
    std::vector<uint32_t> first_experts(c.num_experts_per_tok), ids(20);
    std::iota(first_experts.begin(), first_experts.end(), 0);
    for (uint32_t i = 0; i < ids.size(); i++) ids[i] = 3 + 11 * i;
    for (const bool deterministic : {false, true}) {
        CAPTURE(deterministic);
        std::vector<float> last, of_one;
        for (const uint32_t block : {1u, 5u, 20u}) {
            CAPTURE(block);
            const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64, .deterministic = deterministic};
            const auto logits = router_logits(make, options, ids, block, c.num_hidden_layers, &last);
            for (const std::vector<float>& of_layer : logits) {
                REQUIRE(of_layer.size() == ids.size() * c.num_experts);
                for (size_t i = 0; i < of_layer.size(); i++) {
                    CAPTURE(i);
                    REQUIRE(of_layer[i] == of_layer[i / c.num_experts * c.num_experts]);
                }
                const host::Routes routes = choose(c, of_layer);
                for (size_t t = 0; t < ids.size(); t++)
                    CHECK(std::equal(first_experts.begin(), first_experts.end(), &routes.ids[t * first_experts.size()]));
            }
            if (block == 1) of_one = last;
            if (deterministic) CHECK(last == of_one);
        }
    }
}

} // namespace tq
