// The comparison that a benchmark makes before it times: correct logits pass, wrong ones do not, at any step.
#include "model/cpu/forward.h"
#include "tests/support/small_model.h"
#include "tools/check/conformance/logits.h"
#include <limits>

using namespace tq;
using namespace tq::conformance;

namespace {

// Wraps `inner`, with the logits of run `wrong_run` of each prompt multiplied.
class Wrong final : public Forward {
  public:
    Wrong(Forward& inner, uint32_t wrong_run, float factor) : inner_(inner), wrong_run_(wrong_run), factor_(factor) {}

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return inner_.run(
            spans,
            [&](size_t span, uint32_t i, std::span<const float> logits) {
                logits_.assign(logits.begin(), logits.end());
                if (runs_++ % 3 == wrong_run_ && (!only_first || runs_ <= 3))
                    for (float& v : logits_) v *= factor_;
                each(span, i, logits_);
            },
            progress);
    }
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return inner_.cache(); }

    bool only_first = false;

  private:
    Forward& inner_;
    const ForwardFacts facts_ = without_sampling(inner_.facts());
    uint32_t wrong_run_, runs_ = 0;
    float factor_;
    std::vector<float> logits_;
};

bool go_on() { return true; }

} // namespace

TEST_CASE("right logits pass in every type, wrong ones of any step do not") {
    const SmallModel model;
    const CutModel cut = cut_model(model.config, model.weights);
    CHECK(cut.config.num_hidden_layers == model.config.num_hidden_layers); // a small one is not cut
    for (const KvOptions& kv : storage_types_and_window()) {
        const std::string types = describe(kv);
        CAPTURE(types);
        const auto expected = expect_logits(cut, kv, false, go_on);
        REQUIRE(expected);
        REQUIRE(expected->exact == (types == "f32/f32"));
        REQUIRE(expected->logits.size() == (expected->exact ? 6 : 9)); // two or three prompts, and two tokens after each
        CHECK(expected->bounds.limit <= (expected->exact ? 1e-4 : 0.05));
        const auto forward = make_cpu_forward(cut.config, cut.weights, {.kv = kv, .context_size = check_tokens});
        const LogitsCheck right = compare_logits(*forward, *expected, cut);
        CHECK(right.passed());
        CHECK(right.usual());
        for (uint32_t run = 0; run < 3; run++)
            for (const float factor : {1.3f, std::numeric_limits<float>::quiet_NaN()}) {
                forward->truncate(0);
                Wrong wrong(*forward, run, factor);
                CHECK(!compare_logits(wrong, *expected, cut).passed());
            }
        Wrong once(*forward, 0, 1.3f); // like a value next to a threshold: the next prompt is correct
        once.only_first = true;
        CHECK(compare_logits(once, *expected, cut).passed() == !expected->exact);
        Wrong slightly(*forward, 1, 1.00005f); // more than any correct device in an exact cache
        const LogitsCheck unusual = compare_logits(slightly, *expected, cut);
        CHECK(unusual.passed());
        if (expected->exact) CHECK(!unusual.usual());
    }
    CHECK(!expect_logits(cut, {}, false, [] { return false; }));
}

TEST_CASE("a cache of fp32 has to be exact, any other as exact as the CPU path with noise, within bounds") {
    CHECK(is_exact({KvType::f32, KvType::f32}));
    CHECK(!is_exact({KvType::f32, KvType::tq4}));
    KvOptions mixed{KvType::f32, KvType::f32};
    mixed.layers = parse_kv_layers("1=tq2/f32");
    CHECK(!is_exact(mixed));
    CHECK(exact_bounds(false).limit == 1e-4);
    CHECK(exact_bounds(true).limit == 1e-2);
    CHECK(cache_bounds(0, false).limit == 1e-3);
    CHECK(cache_bounds(2e-3, false).usual == 2e-3);
    CHECK(cache_bounds(2e-3, false).limit == 8e-3);
    CHECK(cache_bounds(0, true).limit == 4e-2);
    CHECK(cache_bounds(0.5, false).limit == 0.25);
    CHECK(error_limit({KvType::f32, KvType::tq4}, false) == 0.05);
}

TEST_CASE("a big model is cut to two layers or more, with the weights of the whole") {
    const SmallModel model;
    Config config = model.config;
    config.num_hidden_layers = 100;
    Weights weights = model.weights;
    weights.layers.resize(100, weights.layers[0]);
    for (LayerWeights& layer : weights.layers) layer.ffn_gate.rows = 1u << 28;
    const CutModel cut = cut_model(config, weights);
    CHECK(cut.config.num_hidden_layers == 2);
    CHECK(cut.weights.layers.size() == 2);
    CHECK(cut.weights.output_norm.cols == weights.output_norm.cols);
}

TEST_CASE("a hybrid is cut to layers of both kinds, whichever comes first, and a fault in either is found") {
    const Architecture& architecture = *find_model_type("qwen3_5");
    for (const uint32_t attention : {0u, 1u, 3u, 5u}) {
        CAPTURE(attention);
        Config shape = test::small_config(architecture);
        shape.num_hidden_layers = 6;
        shape.recurrent_layers.assign(6, true);
        shape.recurrent_layers[attention] = false;
        const SmallModel model(shape);
        const CutModel cut = cut_layers(model.config, model.weights, 2);
        REQUIRE(cut.config.num_hidden_layers == 2);
        REQUIRE(cut.weights.layers.size() == 2);
        CHECK(cut.config.attention_layers() == 1);
        for (uint32_t layer = 0; layer < 2; layer++)
            CHECK(cut.config.is_recurrent(layer) == cut.weights.layers[layer].recurrent.has_value());
        CHECK(cut_layers(model.config, model.weights, 1).config.num_hidden_layers == 2);
        CHECK(cut_layers(model.config, model.weights, 9).config.recurrent_layers == shape.recurrent_layers);
        const auto expected = expect_logits(cut, {KvType::f32, KvType::f32}, false, go_on);
        REQUIRE(expected);
        const auto check = [&](const Weights& weights) {
            const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = check_tokens};
            const auto forward = make_cpu_forward(cut.config, weights, options);
            return compare_logits(*forward, *expected, cut).passed();
        };
        CHECK(check(cut.weights));
        for (const bool recurrent : {false, true}) {
            Weights wrong = cut.weights;
            for (LayerWeights& layer : wrong.layers) {
                if (layer.recurrent && recurrent) std::swap(layer.recurrent->ssm_beta, layer.recurrent->ssm_alpha);
                if (!layer.recurrent && !recurrent) std::swap(layer.attn_k, layer.attn_v);
            }
            CHECK_FALSE(check(wrong));
        }
    }
}
