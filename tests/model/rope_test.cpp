// RoPE scaling: the published numbers, an independent implementation, and the valid settings in files and flags.
#include "base/error.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/rope.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;
using tq::test::contains;

namespace {

Config config(float theta, uint32_t original, float factor) {
    Config c = test::small_config();
    c.rope_theta = theta;
    c.max_position_embeddings = c.rope_scaling.original_context_length = original;
    return with_rope(c, {.type = RopeScalingType::yarn, .factor = factor});
}

// Returns a config with these keys and the keys of small_config().
Config read(const std::map<std::string, ModelFile::Value>& keys) {
    const test::TemporaryFile path, with;
    test::write_random_model(path.path(), {test::small_config(), GgmlType::Q8_0, true, 1, {}});
    const ModelFile file = read_gguf(path.path());
    GgufWriter writer;
    for (const auto& [key, value] : file.metadata()) writer.set(key, value);
    for (const auto& [key, value] : keys)
        writer.set((key.starts_with("scale_linear") ? "qwen3.rope." : "qwen3.rope.scaling.") + key, value);
    std::ofstream out(with.path(), std::ios::binary);
    writer.write(out, [](size_t, std::ostream&) {});
    out.close();
    return read_config(read_gguf(with.path()));
}

std::string error_of(auto&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// transformers' _compute_yarn_parameters, term by term in double.
struct Yarn {
    double theta, dim, factor, original, beta_fast = 32, beta_slow = 1;

    double correction(double turns) const {
        return dim * std::log(original / (turns * 2 * 3.14159265358979323846)) / (2 * std::log(theta));
    }
    double inverse_frequency(int i) const {
        const double position_frequency = std::pow(theta, 2.0 * i / dim), extrapolation = 1 / position_frequency,
                     interpolation = 1 / (factor * position_frequency);
        const double low = std::max(std::floor(correction(beta_fast)), 0.0),
                     high = std::min(std::ceil(correction(beta_slow)), dim - 1);
        const double keep = 1 - std::min(std::max((i - low) / (high - low), 0.0), 1.0);
        return interpolation * (1 - keep) + extrapolation * keep;
    }
};

} // namespace

TEST_CASE("YaRN's ranges and attention factors are the published ones") {
    const Config qwen3 = config(1e6f, 32768, 4), later = config(5e6f, 262144, 4);
    CHECK(yarn_range(qwen3).low == 23);
    CHECK(yarn_range(qwen3).high == 40);
    CHECK(yarn_range(later).low == 29);
    CHECK(yarn_range(later).high == 45);
    CHECK(std::abs(attention_factor(qwen3.rope_scaling) - 1.138629) < 5e-7);
    CHECK(std::abs(attention_factor(config(1e6f, 32768, 2).rope_scaling) - 1.069315) < 5e-7);
    CHECK(qwen3.max_position_embeddings == 131072);
    CHECK(later.max_position_embeddings == 1048576);
    CHECK(attention_factor(RopeScaling{.type = RopeScalingType::linear, .factor = 4}) == 1);
}

TEST_CASE("the table is that of an independent implementation, at every pair and far positions") {
    for (const auto& [theta, original, factor] : {std::tuple(1e6f, 32768u, 4.0f), {5e6f, 262144u, 4.0f}, {1e6f, 40960u, 1.7f}}) {
        CAPTURE(theta);
        CAPTURE(factor);
        const uint32_t positions = 131072;
        const Yarn yarn{double(theta), 128, double(factor), double(original)};
        const double attention = 0.1 * std::log(double(factor)) + 1;
        const std::vector<float> table = rope_table(config(theta, original, factor), positions);
        REQUIRE(table.size() == size_t(positions) * 128);
        double furthest = 0;
        for (const uint32_t p : {0u, 1u, 2u, 1000u, 32767u, 32768u, 65537u, 131071u})
            for (int i = 0; i < 64; i++) {
                const double angle = p * yarn.inverse_frequency(i);
                furthest = std::max({furthest, std::abs(double(table[(size_t(p) * 64 + i) * 2]) - attention * std::cos(angle)),
                                     std::abs(double(table[(size_t(p) * 64 + i) * 2 + 1]) - attention * std::sin(angle))});
            }
        CHECK(furthest < 1e-7);
    }
}

TEST_CASE("pairs that turn often stay, those that turn seldom are stretched; linear scaling stretches all") {
    const Config yarn = config(1e6f, 32768, 4);
    Config plain = yarn, linear = yarn;
    plain.rope_scaling.type = RopeScalingType::none;
    linear.rope_scaling.type = RopeScalingType::linear;
    for (uint32_t i = 0; i < 64; i++) {
        CAPTURE(i);
        const double f = rope_frequency(plain, i);
        CHECK(f == std::pow(1e6, -2.0 * i / 128));
        CHECK(rope_frequency(linear, i) == f / 4);
        if (i <= 23) CHECK(rope_frequency(yarn, i) == f);
        if (i >= 40) CHECK(rope_frequency(yarn, i) == f / 4);
        if (i > 23 && i < 40) CHECK(std::abs(rope_frequency(yarn, i) / f - (1 - 0.75 * (i - 23) / 17)) < 1e-12);
    }
    plain.rope_scaling = {};
    const std::vector<float> table = rope_table(plain, 3);
    CHECK(table[(2 * 64 + 5) * 2] == float(std::cos(2 * std::pow(1e6, -10.0 / 128))));
}

TEST_CASE("degenerate ranges stay finite and in bounds") {
    for (const uint32_t original : {1u, 7u, 1u << 30})
        for (const float theta : {1.001f, 2.0f, 1e12f}) {
            Config c = config(1e6f, 32768, 4);
            c.rope_theta = theta;
            c.rope_scaling.original_context_length = original;
            const YarnRange range = yarn_range(c);
            CHECK(range.low >= 0);
            CHECK(range.low <= range.high);
            CHECK(range.high <= 127);
            for (const float value : rope_table(c, 3)) REQUIRE(std::abs(value) <= 1.14f);
        }
}

TEST_CASE("a file's scaling is read and checked") {
    const Config none = read({});
    CHECK(none.rope_scaling.type == RopeScalingType::none);
    CHECK(none.rope_scaling.original_context_length == 4096);
    CHECK(read({{"type", "none"}, {"factor", 4.0}}).max_position_embeddings == 4096);
    const Config yarn = read({{"type", "yarn"},
                              {"factor", 4.0},
                              {"original_context_length", uint64_t(2048)},
                              {"yarn_beta_fast", 16.0},
                              {"yarn_beta_slow", 2.0},
                              {"attn_factor", 1.5},
                              {"yarn_attn_factor", 0.5},
                              {"yarn_ext_factor", 1.0}});
    CHECK(yarn.rope_scaling.type == RopeScalingType::yarn);
    CHECK(yarn.rope_scaling.factor == 4);
    CHECK(yarn.rope_scaling.original_context_length == 2048);
    CHECK(yarn.rope_scaling.beta_fast == 16);
    CHECK(yarn.rope_scaling.beta_slow == 2);
    CHECK(yarn.rope_scaling.attn_factor == 0.75f);
    CHECK(yarn.max_position_embeddings == 8192);
    CHECK(read({{"type", "yarn"}, {"factor", 1.5}, {"original_context_length", uint64_t(2048)}}).max_position_embeddings == 4096);
    CHECK(read({{"factor", 2.0}}).rope_scaling.type == RopeScalingType::linear);
    CHECK(
        read({{"type", "linear"}, {"factor", 1024.0}, {"original_context_length", uint64_t(1) << 30}}).max_position_embeddings ==
        max_context);

    const std::map<std::string, ModelFile::Value> good{
        {"type", "yarn"}, {"factor", 4.0}, {"original_context_length", uint64_t(2048)}};
    const auto refused = [&](const char* key, const ModelFile::Value& value, const std::string& why) {
        auto keys = good;
        keys[key] = value;
        const std::string error = error_of([&] { read(keys); });
        CAPTURE(error);
        CHECK(contains(error, why));
    };
    for (const double factor : {0.0, 0.5, -4.0, double(NAN), double(INFINITY), 1e30})
        refused("factor", factor, "rope.scaling.factor' is");
    for (const uint64_t original : {uint64_t(0), ~uint64_t(0)})
        refused("original_context_length", original, "rope.scaling.original_context_length' is");
    for (const char* key : {"attn_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"})
        for (const double value : {0.0, -1.0, double(NAN), double(INFINITY)})
            refused(key, value, std::string("rope.scaling.") + key + "' is");
    refused("yarn_beta_slow", 33.0, "beta_fast is 32, below its beta_slow of 33");
    refused("yarn_ext_factor", 0.5, "yarn_ext_factor' is 0.5; with RoPE scaling 'yarn' tq-run runs 1 only");
    refused("yarn_ext_factor", double(NAN), "yarn_ext_factor' is nan");
    refused("yarn_log_multiplier", 0.1, "yarn_log_multiplier");
    refused("type", "longrope", "is 'longrope'; tq-run runs none, linear, yarn and llama3");
    CHECK(contains(error_of([] { read({{"type", "yarn"}}); }), "rope.scaling.factor' is missing"));
    CHECK(contains(error_of([] { read({{"attn_factor", 1.2}}); }), "attn_factor' is 1.2"));
}

TEST_CASE("the key of linear scaling that files of 2023 have") {
    const Config c = read({{"scale_linear", 4.0}});
    CHECK(c.rope_scaling.type == RopeScalingType::linear);
    CHECK(c.rope_scaling.factor == 4);
    CHECK(read({{"scale_linear", 4.0}, {"factor", 2.0}}).rope_scaling.factor == 2);
    CHECK(read({{"scale_linear", 4.0}, {"type", "none"}}).rope_scaling.type == RopeScalingType::none);
    CHECK(read({{"scale_linear", 4.0}, {"type", "yarn"}}).rope_scaling.factor == 4);
    CHECK(contains(error_of([] { read({{"scale_linear", "4"}}); }), "'qwen3.rope.scale_linear' is a text"));
    CHECK(contains(error_of([] { read({{"scale_linear", -1.0}}); }), "'qwen3.rope.scale_linear' is -1"));
}

// The numbers of transformers for Llama 3.1 (a head of 128) and Llama 3.2 1B (64), and of convert_hf_to_gguf.py.
TEST_CASE("Llama 3's factors are the published ones") {
    for (const auto& [head_dim, factor, first_scaled, first_whole] : {std::tuple(128u, 8.0, 29u, 35u), {64u, 32.0, 15u, 18u}}) {
        const std::vector<float> factors = llama3_factors({factor, 1, 4, 8192}, 5e5f, head_dim);
        REQUIRE(factors.size() == head_dim / 2);
        for (uint32_t i = 0; i < first_scaled; i++) CHECK(factors[i] == 1);
        for (uint32_t i = first_scaled; i < first_whole; i++) {
            const double wave = 2 * 3.14159265358979323846 * std::pow(5e5, 2.0 * i / head_dim), smooth = (8192 / wave - 1) / 3;
            CHECK(factors[i] == doctest::Approx(1 / ((1 - smooth) / factor + smooth)).epsilon(1e-6));
        }
        for (uint32_t i = first_whole; i < head_dim / 2; i++) CHECK(factors[i] == float(factor));
    }
    Config c = test::small_config();
    c.rope_factors = llama3_factors({8, 1, 4, 8192}, c.rope_theta, c.head_dim);
    Config plain = c;
    plain.rope_factors.clear();
    CHECK(rope_frequency(c, 0) == rope_frequency(plain, 0));
    CHECK(rope_frequency(c, c.head_dim / 2 - 1) == doctest::Approx(rope_frequency(plain, c.head_dim / 2 - 1) / 8));
    const Config linear = with_rope(c, {.factor = 2});
    CHECK(rope_frequency(linear, c.head_dim / 2 - 1) == doctest::Approx(rope_frequency(plain, c.head_dim / 2 - 1) / 16));
}

TEST_CASE("Llama 3's scaling in keys") {
    const std::map<std::string, ModelFile::Value> good{{"type", "llama3"},
                                                       {"factor", 8.0},
                                                       {"low_freq_factor", 1.0},
                                                       {"high_freq_factor", 4.0},
                                                       {"original_context_length", uint64_t(8192)}};
    const Config c = read(good);
    CHECK(c.rope_scaling.type == RopeScalingType::none);
    CHECK(c.rope_factors == llama3_factors({8, 1, 4, 8192}, c.rope_theta, c.head_dim));
    CHECK(c.rope_scaling.original_context_length == c.max_position_embeddings); // what the model was trained for in the end
    const auto refused = [&](const char* key, const ModelFile::Value& value, const std::string& why) {
        auto keys = good;
        keys[key] = value;
        CHECK(contains(error_of([&] { read(keys); }), why));
    };
    refused("high_freq_factor", 1.0, "high_freq_factor' is 1, not above the low_freq_factor of 1");
    refused("low_freq_factor", double(NAN), "low_freq_factor' is nan");
    refused("factor", 0.5, "rope.scaling.factor' is 0.5");
    refused("original_context_length", uint64_t(0), "original_context_length' is 0");
    for (const auto& [key, value] : good) {
        auto keys = good;
        if (key == "type") continue;
        keys.erase(key);
        CHECK(contains(error_of([&] { read(keys); }), key + "' is missing"));
    }
}

TEST_CASE("flags replace what the file says") {
    const auto none = RopeScalingType::none, linear = RopeScalingType::linear;
    Config file = test::small_config();
    file.max_position_embeddings = file.rope_scaling.original_context_length = 40960;
    CHECK(with_rope(file, {}).max_position_embeddings == 40960);
    CHECK(with_rope(file, {.theta = 5e6f}).rope_theta == 5e6f);
    CHECK(with_rope(file, {.factor = 2}).rope_scaling.type == linear);
    CHECK(with_rope(file, {.factor = 2}).max_position_embeddings == 81920);
    CHECK(with_rope(file, {.factor = 1024}).max_position_embeddings == max_context);
    const Config yarn = with_rope(file, {.type = RopeScalingType::yarn, .factor = 4, .original_context_length = 32768});
    CHECK(yarn.max_position_embeddings == 131072);
    CHECK(yarn.rope_scaling.beta_fast == 32);
    CHECK(with_rope(yarn, {.factor = 2}).rope_scaling.type == RopeScalingType::yarn);
    CHECK(with_rope(yarn, {.factor = 2}).max_position_embeddings == 65536);
    CHECK(with_rope(yarn, {.beta_fast = 8}).max_position_embeddings == 131072);
    const Config plain = with_rope(yarn, {.type = none});
    CHECK(plain.max_position_embeddings == 32768);
    CHECK(rope_frequency(plain, 50) == rope_frequency(file, 50));

    CHECK(contains(error_of([&] { with_rope(file, {.type = RopeScalingType::yarn}); }), "--rope-scale 4"));
    CHECK(contains(error_of([&] { with_rope(yarn, {.type = none, .factor = 4}); }), "--rope-scaling yarn"));
    CHECK(contains(error_of([&] { with_rope(file, {.original_context_length = 1}); }), "--rope-scaling yarn"));
    CHECK(contains(error_of([&] { with_rope(file, {.beta_fast = 8}); }), "scaling is none"));
    CHECK(contains(error_of([&] { with_rope(yarn, {.beta_slow = 40}); }), "below its beta_slow of 40"));
    CHECK(contains(error_of([&] { with_rope(yarn, {.theta = 1}); }), "frequency base, which is 1"));
}

TEST_CASE("the mean of a vector after RoPE is that of all its positions, without RoPE's factor") {
    Config c = config(1e6f, 32768, 4);
    c.head_dim = 64;
    std::vector<float> x(128), want(128);
    for (size_t i = 0; i < x.size(); i++) x[i] = float(int(i * 37 % 19) - 9);
    constexpr uint32_t positions = 500;
    const std::vector<float> table = rope_table(c, positions);
    for (size_t i = 0; i < x.size(); i++) {
        double sum = 0;
        const size_t pair = i % 32, partner = i % 64 < 32 ? i + 32 : i - 32;
        const double sign = i % 64 < 32 ? -1 : 1;
        for (uint32_t p = 0; p < positions; p++)
            sum += double(x[i]) * table[(p * 32 + pair) * 2] + sign * double(x[partner]) * table[(p * 32 + pair) * 2 + 1];
        want[i] = float(sum / positions / attention_factor(c.rope_scaling)); // which the table has
    }
    const std::vector<float> got = rope_mean(c, x, positions);
    for (size_t i = 0; i < x.size(); i++) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
}
