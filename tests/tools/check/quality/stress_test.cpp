// Stress changes what a cache stores and nothing else: by weights (tests/support/stressed_model.h), and at the cache's door.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/model.h"
#include "model/reference/forward.h"
#include "tests/support/random_model.h"
#include "tests/support/stressed_forward.h"
#include "tests/support/stressed_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/quality/compare.h"
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;
using quality::Stress, quality::StressedVectors;
using test::contains, test::WeightStress;

namespace {

const std::filesystem::path demo = std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";

const std::string story =
    "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained, and the fox ran home. "
    "Then Mira came and gave it an apple. The fox was happy. They walked to the old house and looked at the garden.";

// A stressed variant of a model.
struct Stressed {
    test::TemporaryFile path;
    Model model;

    Stressed(const std::filesystem::path& from, const WeightStress& stress)
        : model((test::write_stressed_model(from, path.path(), stress), load_model(path.path()))) {}
};

const KvOptions exact{KvType::f32, KvType::f32};

double mean_kl(Forward& forward, Forward& reference, std::span<const uint32_t> ids) {
    return quality::summarise(quality::compare(std::array{&forward}, reference, ids, {})[0]).kl.value;
}

// The exact keys (not after RoPE) and values of a layer, [tokens][kv_heads][head_dim].
struct Projected {
    std::vector<float> k, v;
};

Projected project(const Model& model, std::span<const uint32_t> ids, uint32_t layer) {
    Projected out;
    const auto forward = make_reference_forward(model.config, model.weights, {.kv = exact, .context_size = uint32_t(ids.size())},
                                                [&](const host::Pass& pass, std::string_view name, std::span<float> values) {
                                                    if (!pass.layer() || pass.layer()->number != layer) return;
                                                    if (name == "k") out.k.assign(values.begin(), values.end());
                                                    if (name == "v") out.v.assign(values.begin(), values.end());
                                                });
    forward->run(ids);
    return out;
}

double rms(std::span<const float> x) {
    double squares = 0;
    for (const float v : x) squares += double(v) * v;
    return std::sqrt(squares / double(x.size()));
}

// The standard deviation of log rms of the channels of a kv head.
double channel_spread(std::span<const float> x, const Config& c, uint32_t head) {
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < c.head_dim; i++) {
        std::vector<float> channel;
        for (size_t at = head * c.head_dim + i; at < x.size(); at += c.num_key_value_heads * c.head_dim) channel.push_back(x[at]);
        const double logarithm = std::log(rms(channel));
        sum += logarithm;
        squares += logarithm * logarithm;
    }
    return std::sqrt(squares / c.head_dim - std::pow(sum / c.head_dim, 2));
}

} // namespace

TEST_CASE("weights are stressed without a change of the model's function") {
    const Model plain = load_model(demo);
    const auto ids = plain.tokenizer.encode(story);
    const auto reference = make_cpu_forward(plain.config, plain.weights, {.kv = exact, .context_size = 256});
    for (const WeightStress& stress :
         {WeightStress{.key_spread = 1}, WeightStress{.key_outliers = {3, 30}}, WeightStress{.value_spread = 1},
          WeightStress{.value_outliers = {4, 30}}, WeightStress{.value_directions = 1},
          WeightStress{.key_spread = 0.5, .value_spread = 0.5, .tails = 3}, WeightStress{.value_spread = 1, .layers = {1, 3}},
          WeightStress{.balance_values = true}}) {
        const Stressed stressed(demo, stress);
        const auto forward = make_cpu_forward(stressed.model.config, stressed.model.weights, {.kv = exact, .context_size = 256});
        CAPTURE(stress.key_spread);
        CAPTURE(stress.value_spread);
        CHECK(mean_kl(*forward, *reference, ids) < 1e-9);
    }
}

TEST_CASE("a model that is stressed in memory has the weights of the file that is written") {
    const WeightStress stress{.key_spread = 1, .value_spread = 0.5, .tails = 4, .layers = {1, 2}, .balance_values = true};
    const Stressed file(demo, stress);
    const Model model = test::make_stressed_model(demo, stress);
    REQUIRE(model.file.tensors().size() == file.model.file.tensors().size());
    for (const FileTensor& t : model.file.tensors()) {
        const FileTensor* other = file.model.file.find_tensor(t.name);
        REQUIRE(other != nullptr);
        CHECK(t.type == other->type);
        CHECK(std::ranges::equal(t.data, other->data));
    }
    CHECK(model.weights.files.empty()); // they would identify other weights
    const auto ids = model.tokenizer.encode(story);
    CHECK(project(model, ids, 1).v == project(file.model, ids, 1).v);
}

TEST_CASE("stressed values are what the flags say, in the chosen layers") {
    const Model plain = load_model(demo);
    const auto ids = plain.tokenizer.encode(story);
    const Stressed spread(demo, {.value_spread = 1, .layers = {2}}), outliers(demo, {.value_outliers = {4, 30}}),
        balanced(demo, {.value_spread = 1, .balance_values = true});
    for (const uint32_t layer : {1u, 2u}) {
        const Projected before = project(plain, ids, layer), after = project(spread.model, ids, layer),
                        few = project(outliers.model, ids, layer), even = project(balanced.model, ids, layer);
        for (uint32_t head = 0; head < 2; head++) {
            const double own = channel_spread(before.v, plain.config, head);
            if (layer == 2) CHECK(channel_spread(after.v, plain.config, head) > 3 * own);
            CHECK(channel_spread(even.v, plain.config, head) < 1.2 * own);
        }
        if (layer == 1) CHECK(after.v == before.v);
        uint32_t larger = 0; // of the first token, of both heads
        for (size_t i = 0; i < before.v.size() && i < 256; i++) larger += std::fabs(few.v[i]) > 20 * std::fabs(before.v[i]);
        CHECK(larger == 8);
        CHECK(rms(after.k) == doctest::Approx(rms(before.k)).epsilon(1e-4));
    }
}

TEST_CASE(
    "models without norms and with biases, of neighbouring pairs, and with gates and recurrent layers, are stressed alike") {
    for (const Architecture& architecture : architectures) {
        CAPTURE(architecture.name);
        const test::TemporaryFile path;
        test::write_random_model(path.path(), {.config = test::small_config(architecture), .type = GgmlType::F32});
        const Model plain = load_model(path.path());
        const Stressed stressed(path.path(), {.key_spread = 1, .value_spread = 1});
        std::vector<uint32_t> ids;
        for (uint32_t i = 0; i < 40; i++) ids.push_back(i * 7 % plain.config.vocab_size);
        const auto reference = make_cpu_forward(plain.config, plain.weights, {.kv = exact, .context_size = 64}),
                   forward = make_cpu_forward(stressed.model.config, stressed.model.weights, {.kv = exact, .context_size = 64});
        CHECK(mean_kl(*forward, *reference, ids) < 1e-9);
        const Projected before = project(plain, ids, 1), after = project(stressed.model, ids, 1);
        CHECK(channel_spread(after.v, plain.config, 1) > 2 * channel_spread(before.v, plain.config, 1));
        if (!architecture.qk_norm)
            CHECK(channel_spread(after.k, plain.config, 1) > 2 * channel_spread(before.k, plain.config, 1));
    }
}

TEST_CASE("of a hybrid only layers with attention can be stressed, and not in other directions of values") {
    const test::TemporaryFile path, to;
    test::write_random_model(path.path(), {.config = test::small_config(*find_model_type("qwen3_5")), .type = GgmlType::F32});
    const auto stress = [&](const WeightStress& how) { test::write_stressed_model(path.path(), to.path(), how); };
    stress({.key_spread = 1, .layers = {1}, .balance_values = true});
    CHECK_THROWS_WITH_AS(stress({.key_spread = 1, .layers = {2}}), "layer 2 is recurrent, and stores neither keys nor values",
                         Error);
    CHECK_THROWS_WITH_AS(stress({.value_directions = 1}), doctest::Contains("gates of this model's attention"), Error);
}

TEST_CASE("what cannot be stressed is refused") {
    const test::TemporaryFile to;
    const auto refusal = [&](const WeightStress& stress) {
        try {
            test::write_stressed_model(demo, to.path(), stress);
        } catch (const Error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK(contains(refusal({.key_spread = 1, .layers = {4}}), "there is no layer 4 among 4"));
    CHECK(contains(refusal({.key_outliers = {65, 2}}), "65 outliers are more than the 64"));
    CHECK(contains(refusal({.value_outliers = {1, -2}}), "a factor must be above 0"));
    const Model model = load_model(demo);
    CHECK_THROWS_AS(StressedVectors({.sinks = 1, .sink_factor = 0}, model.config, model.weights, 16), Error);
    CHECK_THROWS_AS(StressedVectors({.key_bias = -1}, model.config, model.weights, 16), Error);
    CHECK_THROWS_AS(StressedVectors({.layers = {4}}, model.config, model.weights, 16), Error);
}

TEST_CASE("vectors are stressed at the cache's door, and back, without a change of the model's function") {
    const Model model = load_model(demo);
    const Config& c = model.config;
    const auto ids = model.tokenizer.encode(story);
    const auto reference = make_cpu_forward(c, model.weights, {.kv = exact, .context_size = 256});
    for (const Stress& stress :
         {Stress{}, Stress{.heavy_tails = 3}, Stress{.channel_spread = 1}, Stress{.token_spread = 1},
          Stress{.sinks = 4, .sink_factor = 100}, Stress{.key_bias = 10}, Stress{.key_bias = 10, .layers = {1}}}) {
        KvOptions kv = exact;
        for (const char* by : {"none", "norms"}) {
            kv.conditioning = parse_key_conditioning(by);
            const auto forward = test::make_stressed_forward(model, kv, stress, 256);
            CHECK(mean_kl(*forward, *reference, ids) < 1e-9);
        }
    }
}

TEST_CASE(
    "a type at the door has the divergence that it has in a cache, on models with stressed weights, too, and with a window") {
    const Model plain = load_model(demo);
    const auto ids = plain.tokenizer.encode(story);
    for (const WeightStress& stress : {WeightStress{}, WeightStress{.key_spread = 1}, WeightStress{.value_spread = 1}}) {
        const Model model = test::make_stressed_model(demo, stress);
        const auto reference = make_cpu_forward(model.config, model.weights, {.kv = exact, .context_size = 256});
        for (const uint32_t window : {0u, 16u})
            for (const char* by : {"none", "norms"}) {
                KvOptions kv{KvType::tq3, KvType::tq3};
                kv.window = window;
                kv.conditioning = parse_key_conditioning(by);
                const auto cache = make_cpu_forward(model.config, model.weights, {.kv = kv, .context_size = 256}),
                           door = test::make_stressed_forward(model, kv, {}, 256);
                CAPTURE(stress.key_spread);
                CAPTURE(stress.value_spread);
                CAPTURE(window);
                CAPTURE(by);
                CHECK(mean_kl(*door, *reference, ids) == doctest::Approx(mean_kl(*cache, *reference, ids)).epsilon(0.05));
            }
    }
}

TEST_CASE("a window at the door holds changed vectors as fp16, which are changed back") {
    const Model model = load_model(demo);
    const auto ids = model.tokenizer.encode(story);
    const auto reference = make_cpu_forward(model.config, model.weights, {.kv = exact, .context_size = 256});
    // All tokens are in the window, but for the last case, where half of them are.
    const auto kl = [&](const Stress& stress, KvTypes types = {KvType::tq2, KvType::tq2}, uint32_t window = 256) {
        KvOptions kv{types.k, types.v};
        kv.window = window;
        kv.conditioning = parse_key_conditioning("none");
        return mean_kl(*test::make_stressed_forward(model, kv, stress, 256), *reference, ids);
    };
    for (const Stress& stress : {Stress{}, Stress{.heavy_tails = 3}, Stress{.channel_spread = 1}, Stress{.token_spread = 1},
                                 Stress{.sinks = 4, .sink_factor = 100}, Stress{.key_bias = 10}})
        CHECK(kl(stress) < 1e-5);
    CHECK(kl({.key_bias = 1000}) > 1000 * kl({})); // what fp16 loses of keys that are much smaller than their bias
    CHECK_THROWS_AS(kl({.sinks = 4, .sink_factor = 1e9f}), Error);
    const uint32_t half = uint32_t(ids.size() / 2);
    CHECK(kl({.key_bias = 10}, {KvType::tq8, KvType::tq8}, half) < 1e-3);
    CHECK_THROWS_AS(kl({}, {KvType::tq4, KvType::tq4u}), Error); // as in any cache
    CHECK_THROWS_AS(kl({}, {KvType::tq4, KvType::tq4}, 1025), Error);
}

TEST_CASE("norms undo factors of the channels of values at the door, as the weights of such a model would tell") {
    const Model model = load_model(demo);
    const auto ids = model.tokenizer.encode(story);
    const auto reference = make_cpu_forward(model.config, model.weights, {.kv = exact, .context_size = 256});
    const auto kl = [&](const Stress& stress, const char* by) {
        KvOptions kv{KvType::f32, KvType::tq3};
        kv.conditioning = parse_key_conditioning(by);
        return mean_kl(*test::make_stressed_forward(model, kv, stress, 256), *reference, ids);
    };
    const double even = kl({}, "norms");
    CHECK(kl({.channel_spread = 1}, "none") > 5 * even);
    CHECK(kl({.channel_spread = 1}, "norms") < 2 * even);
    CHECK(kl({.channel_spread = 1, .layers = {2}}, "norms") < 2 * even);
}

TEST_CASE("the door's changes are those that the stress describes") {
    const Model model = load_model(demo);
    const Config& c = model.config;
    const uint32_t heads = c.num_key_value_heads, d = c.head_dim, tokens = 3, first = 2;
    const auto stressed = [&](const Stress& stress, KvSide side, uint32_t layer) {
        std::vector<float> ones(tokens * heads * d, 1.0f);
        StressedVectors(stress, c, model.weights, 16).apply(ones, side, layer, first);
        return ones;
    };
    const std::vector<float> sinks = stressed({.sinks = 3, .sink_factor = 10}, KvSide::value, 0);
    for (size_t i = 0; i < sinks.size(); i++) CHECK(sinks[i] == (i < heads * d ? 10.0f : 1.0f)); // position 2 is a sink, 3 not
    const Stress bias{.key_bias = 10, .layers = {1}};
    const std::vector<float> keys = stressed(bias, KvSide::key, 1);
    CHECK(stressed(bias, KvSide::key, 0) == std::vector(keys.size(), 1.0f));
    CHECK(stressed(bias, KvSide::value, 1) == std::vector(keys.size(), 1.0f));
    // The length of what a pair gets does not depend on the position.
    for (const size_t i : {0u, 17u, 63u}) {
        const auto length = [&](size_t token) {
            const float* x = &keys[token * heads * d];
            return std::hypot(x[i] - 1, x[i + d / 2] - 1);
        };
        CHECK(length(0) > 0);
        CHECK(length(0) == doctest::Approx(length(2)).epsilon(1e-4));
    }
    CHECK(rms(keys) > 3 * rms(head_norm_weights(model.weights.layers[1].attn_k_norm, d)));
    const std::vector<float> tails = stressed({.heavy_tails = 2}, KvSide::value, 0),
                             even = stressed({.heavy_tails = 100}, KvSide::value, 0);
    CHECK(*std::ranges::max_element(tails) > 5);
    CHECK(*std::ranges::max_element(even) < 2);
}
