// Channel scaling from the weights: the scales, what is stored, and what it is good for.
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/model.h"
#include "model/reference/forward.h"
#include "model/rope.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_model.h"
#include "tests/support/stressed_model.h"
#include "tests/support/value_stress.h"
#include "tools/check/quality/compare.h"
#include <cmath>
#include <limits>

using namespace tq;

namespace {

const std::filesystem::path demo = std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";

const std::string story =
    "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained, and the fox ran home. "
    "Then Mira came and gave it an apple. The fox was happy. They walked to the old house and looked at the garden. It was a "
    "good day, and in the evening they ate soup and bread at the table. My name is Tom. The code of the silver kettle is 4821.";

// A model whose values have uneven channels, and the same output.
struct Stressed {
    test::TemporaryFile path;
    std::unique_ptr<ModelFile> file;
    Config config;
    Weights weights;

    explicit Stressed(const std::filesystem::path& from, const test::WeightStress& stress = {.value_spread = 1}) {
        test::write_stressed_model(from, path.path(), stress);
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        config = read_config(*file);
        weights = read_weights(*file, config);
    }
};

KvOptions of(KvTypes types, const char* how) {
    KvOptions kv{types.k, types.v};
    kv.conditioning = parse_key_conditioning(how);
    return kv;
}

std::vector<float> logits(const Config& config, const Weights& weights, const KvOptions& kv, std::span<const uint32_t> ids) {
    const auto forward = make_cpu_forward(config, weights, {.kv = kv, .context_size = 512});
    const auto out = forward->run(ids);
    return {out.begin(), out.end()};
}

double mean_kl(const Config& config, const Weights& weights, const KvOptions& kv, std::span<const uint32_t> ids) {
    const auto forward = make_cpu_forward(config, weights, {.kv = kv, .context_size = 512}),
               exact = make_cpu_forward(config, weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 512});
    return quality::summarise(quality::compare(std::array{forward.get()}, *exact, ids, {})[0]).kl.value;
}

std::vector<float> scales_of(const std::vector<double>& values, const std::vector<double>& columns) {
    Config c{};
    c.head_dim = uint32_t(values.size());
    c.num_key_value_heads = 1;
    c.num_attention_heads = uint32_t(columns.size() / values.size());
    return value_scales(c, {{}, {}, values, columns});
}

} // namespace

TEST_CASE("scales are the powers of two next to g over its geometric mean") {
    CHECK(scales_of({16, 1, 1, 1.0 / 16}, {1, 1, 1, 1}) == std::vector<float>{2, 1, 1, 0.5});
    CHECK(scales_of({1600, 100, 100, 6.25}, {1, 1, 1, 1}) == std::vector<float>{2, 1, 1, 0.5}); // the mean does not count
    CHECK(scales_of({1, 1, 1, 1}, {16, 1, 1, 1.0 / 16}) == std::vector<float>{0.5, 1, 1, 2});
    CHECK(scales_of({16, 16}, {0.25, 16, 0.75, 240}) == std::vector<float>{2, 0.5}); // of all query heads
    CHECK(scales_of({3.99, 1 / 3.99}, {1, 1}) == std::vector<float>{1, 1});          // g = 2^0.4990
    CHECK(scales_of({4.01, 1 / 4.01}, {1, 1}) == std::vector<float>{2, 0.5});
    CHECK(scales_of({0x1p100, 0x1p-100}, {1, 1}) == std::vector<float>{0x1p20f, 0x1p-20f});
    CHECK(value_scales({}, {}).empty());
}

TEST_CASE("channels without values or columns keep their size, and do not count in the mean") {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    for (const double none : {0.0, infinity, nan})
        CHECK(scales_of({16, none, 1.0 / 16}, {1, 1, 1}) == std::vector<float>{2, 1, 0.5});
    CHECK(scales_of({16, 1, 1.0 / 16}, {1, 0, 1}) == std::vector<float>{2, 1, 0.5});
    CHECK(scales_of({0, 0}, {0, 0}) == std::vector<float>{1, 1});
}

TEST_CASE("keys of heads without norms are scaled by g, g^2 = rms(key) / rms(query) of a pair of channels") {
    Config c{};
    c.head_dim = 4, c.num_key_value_heads = 2, c.num_attention_heads = 4;
    const double none = 0, infinity = std::numeric_limits<double>::infinity();
    // Query heads 0 and 1 read kv head 0, whose pairs are channels 0, 2 and 1, 3.
    const AttentionSquares squares{
        {3, 4, 1, 4, 1, 3, 3, 5, none, none, none, none, none, none, none, none}, {32, 1, 32, 7, 1, 2, 3, 4}, {}, {}};
    const KeyScaling scaling = key_scaling(c, squares, {});
    CHECK(scaling.scales == std::vector<float>{2, 1, 2, 1, 1, 1, 1, 1}); // head 1 has no queries
    CHECK(scaling.means == std::vector<float>(8));
    const auto scales_of_keys = [&](std::vector<double> keys) {
        return key_scaling(c, {std::vector<double>(16, 1.0), std::move(keys), {}, {}}, {}).scales;
    };
    CHECK(scales_of_keys({0x1p80, 1, 0x1p80, 1, none, 1, none, 1}) ==
          std::vector<float>{0x1p16f, float(std::sqrt(std::sqrt(0x1p79 * 1e-12))), 0x1p16f,
                             float(std::sqrt(std::sqrt(0x1p79 * 1e-12))), float(std::sqrt(std::sqrt(0.5e-12))), 1,
                             float(std::sqrt(std::sqrt(0.5e-12))), 1});
    CHECK(scales_of_keys({infinity, 1, 1, 1, 1, 1, 1, 1}) == std::vector<float>(8, 1));
    CHECK(key_scaling(c, {}, {}).scales.empty()); // heads have norms
}

TEST_CASE("of a bias of keys, what is left without its mean after RoPE counts") {
    Config c = test::small_config();
    c.num_key_value_heads = 1, c.num_attention_heads = 1;
    const size_t d = c.head_dim, slow = d / 2 - 1;
    std::vector<float> bias(d);
    AttentionSquares squares{std::vector<double>(d, 1), std::vector<double>(d, 1), {}, {}};
    for (const size_t channel : {size_t(0), slow}) {
        bias[channel] = 8;
        squares.keys[channel] += 64;
    }
    const KeyScaling scaling = key_scaling(c, squares, bias);
    CHECK(scaling.means == rope_mean(c, bias, mean_positions));
    CHECK(scaling.scales[1] == 1);
    CHECK(scaling.scales[0] == doctest::Approx(std::pow(33, 0.25)).epsilon(0.01)); // turns often: the mean is nearly 0
    CHECK(scaling.scales[slow] == doctest::Approx(1).epsilon(0.01));
    const KeyScaling without = key_scaling(c, {}, bias); // heads have norms, too
    CHECK(without.scales == std::vector<float>(d, 1));
    CHECK(without.means == scaling.means);
}

TEST_CASE("squares are those of the weights, the same for any number of threads") {
    const SmallModel model;
    const Config& c = model.config;
    const LayerWeights& w = model.weights.layers[1];
    ThreadPool one(1), three(3);
    const AttentionSquares squares = attention_squares(one, w), again = attention_squares(three, w);
    CHECK(squares.values == again.values);
    CHECK(squares.columns == again.columns);
    const std::vector<float> v = to_floats(w.attn_v), output = to_floats(w.attn_output), norm = to_floats(w.attn_norm);
    REQUIRE(squares.values.size() == w.attn_v.rows);
    REQUIRE(squares.columns.size() == w.attn_output.cols);
    for (uint32_t r = 0; r < w.attn_v.rows; r += 7) {
        double sum = 0;
        for (uint32_t i = 0; i < c.hidden_size; i++) sum += std::pow(double(v[r * c.hidden_size + i]) * norm[i], 2);
        CHECK(squares.values[r] == doctest::Approx(sum).epsilon(1e-12));
    }
    for (uint32_t col = 0; col < w.attn_output.cols; col += 7) {
        double sum = 0;
        for (uint32_t r = 0; r < w.attn_output.rows; r++) sum += std::pow(double(output[r * w.attn_output.cols + col]), 2);
        CHECK(squares.columns[col] == doctest::Approx(sum).epsilon(1e-12));
    }
    CHECK(squares.queries.empty()); // the model's heads have norms
    CHECK(squares.keys.empty());
    const Weights nowhere = held_weights(model.weights, HeldHalves(std::vector<bool>(halves_of(c.num_hidden_layers))));
    CHECK(value_scales(c, attention_squares(one, nowhere.layers[1])).empty());
}

TEST_CASE("stored codes of few bits need scaled values where channels differ, and scaled they are as good as even ones") {
    const Model plain = load_model(demo);
    const Stressed stressed(demo);
    const auto ids = plain.tokenizer.encode(story);
    for (const KvType type : {KvType::tq4, KvType::tq3t, KvType::q4_0}) {
        const double even = mean_kl(plain.config, plain.weights, of({type, type}, "norms"), ids),
                     scaled = mean_kl(stressed.config, stressed.weights, of({type, type}, "norms"), ids),
                     unscaled = mean_kl(stressed.config, stressed.weights, of({type, type}, "none"), ids);
        CAPTURE(name(type));
        CAPTURE(even);
        CHECK(scaled < 2 * even);
        CHECK(unscaled > 2 * even);
    }
}

TEST_CASE("in models whose heads have no norms, too, uneven channels of keys cost nothing") {
    for (const char* name : {"llama", "qwen2"}) {
        CAPTURE(name);
        const auto architecture = std::ranges::find(architectures, std::string_view(name), &Architecture::name);
        test::TemporaryFile path;
        test::write_random_model(path.path(), {test::small_config(*architecture), GgmlType::Q8_0, true, 5, {}});
        const Stressed plain(path.path(), {}), stressed(path.path(), {.key_spread = 1});
        std::mt19937 random(8);
        const auto ids = random_ids(random, 60);
        const auto error = [&](const Stressed& model, const char* how) {
            return relative_error(logits(model.config, model.weights, of({KvType::tq3, KvType::f32}, how), ids),
                                  logits(model.config, model.weights, of({KvType::f32, KvType::f32}, "none"), ids));
        };
        const double even = error(plain, "none"), unscaled = error(stressed, "none"), scaled = error(stressed, "norms");
        CAPTURE(even);
        CAPTURE(scaled);
        CHECK(scaled < 1.2 * even);
        CHECK(unscaled > 1.5 * even);
    }
}

TEST_CASE("values are scaled where they are codes, unless nothing is conditioned") {
    KvOptions mixed{KvType::f16, KvType::tq3};
    mixed.layers = {{1, 1, {KvType::tq3, KvType::f16}}};
    for (const char* how : {"auto", "norms", "keys.safetensors"}) {
        mixed.conditioning = parse_key_conditioning(how);
        CHECK(mixed.scales_values(0, 3));
        CHECK(!mixed.scales_values(1, 3));
    }
    mixed.conditioning = parse_key_conditioning("none");
    CHECK(!mixed.scales_values(0, 3));
    const Stressed stressed(demo);
    const std::vector<uint32_t> ids{1, 2, 3, 4, 5};
    for (const KvType v : {KvType::f32, KvType::f16, KvType::bf16}) // bit for bit
        CHECK(logits(stressed.config, stressed.weights, of({KvType::f16, v}, "auto"), ids) ==
              logits(stressed.config, stressed.weights, of({KvType::f16, v}, "none"), ids));
}

TEST_CASE("the reference and the CPU store the same values, also in the window") {
    const SmallModel small;
    const Stressed model(small.path.path());
    std::mt19937 random(4);
    const auto ids = random_ids(random, 40);
    for (const RotationKind rotation : {RotationKind::wht, RotationKind::haar})
        for (const uint32_t window : {0u, 5u}) {
            KvOptions kv{KvType::f32, KvType::tq4, rotation};
            kv.window = window;
            const auto reference = make_reference_forward(model.config, model.weights, small_options(kv)),
                       fast = make_cpu_forward(model.config, model.weights, small_options(kv)),
                       exact = make_cpu_forward(model.config, model.weights, small_options({KvType::f32, KvType::f32}));
            const auto expected = reference->run(ids), got = fast->run(ids), right = exact->run(ids);
            CHECK(relative_error(got, expected) < 0.02); // a code that falls on the other side of a threshold
            CHECK(relative_error(expected, right) < 0.2);
        }
}
