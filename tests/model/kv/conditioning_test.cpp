// Conditioned keys: the parts folded into the norms and applied after RoPE, what is measured, and unchanged logits.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/cpu/kernels.h"
#include "model/files/calibration.h"
#include "model/model.h"
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tests/support/golden.h"
#include "tests/support/small_model.h"
#include "tests/support/stressed_model.h"
#include "tests/support/text.h"
#include "tools/check/conformance/vectors/random.h"
#include "tools/check/quality/calibrate.h"
#include "tools/check/quality/compare.h"
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

using namespace tq;
using quality::CalibrationParts, quality::KeyStatistics;
using tq::test::contains;

namespace {

const std::filesystem::path demo = std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";

const std::string story =
    "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained, and the fox ran home. "
    "Then Mira came and gave it an apple. The fox was happy. They walked to the old house and looked at the garden. It was a "
    "good "
    "day, and in the evening they ate soup and bread at the table. My name is Tom. The code of the silver kettle is 4821. Paul "
    "lives near the harbor and has a small cat. The cat slept under the table. Then Paul went home and read a book.";

// A variant of the demo whose keys are hard to quantise.
struct Stressed {
    test::TemporaryFile path;
    Model model;

    explicit Stressed(double spread)
        : model((test::write_stressed_model(demo, path.path(), {.key_spread = spread}), load_model(path.path()))) {}
};

KvOptions conditioned(KvType type, KeyConditioning by) {
    KvOptions kv{type, type};
    kv.conditioning = std::move(by);
    return kv;
}

KvOptions conditioned_by(KvOptions kv, KeyConditioning by) {
    kv.conditioning = std::move(by);
    return kv;
}

KeyConditioning norms() { return parse_key_conditioning("norms"); }

KeyConditioning measured(KeyCalibration calibration) {
    KeyConditioning out = parse_key_conditioning("keys.safetensors");
    out.calibration = std::make_shared<const KeyCalibration>(std::move(calibration));
    return out;
}

KeyCalibration calibrate(const Config& config, const Weights& weights, std::span<const uint32_t> ids,
                         CalibrationParts parts = CalibrationParts::both) {
    KeyStatistics keys(config, weights);
    const ForwardOptions options{
        .kv = {KvType::f32, KvType::f32}, .context_size = uint32_t(ids.size()), .batch_size = 37, .tap = keys.tap()};
    make_cpu_forward(config, weights, options)->run(ids);
    CHECK(keys.tokens() == ids.size() - quality::left_out_tokens);
    return keys.calibration(parts);
}

std::vector<float> logits(const Model& model, const KvOptions& kv, std::span<const uint32_t> ids) {
    const auto forward = make_cpu_forward(model.config, model.weights, {.kv = kv, .context_size = 512});
    const auto out = forward->run(ids);
    return {out.begin(), out.end()};
}

double mean_kl(const Model& model, const KvOptions& kv, std::span<const uint32_t> ids) {
    const auto forward = make_cpu_forward(model.config, model.weights, {.kv = kv, .context_size = 512}),
               reference = make_cpu_forward(model.config, model.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 512});
    return quality::summarise(quality::compare(std::array{forward.get()}, *reference, ids, {})[0]).kl.value;
}

double rms(float a, float b) { return std::hypot(double(a), double(b)) / std::sqrt(2.0); }

} // namespace

TEST_CASE("balanced norms have the same products, and queries and keys of one size") {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> q(128), k(128);
    for (size_t i = 0; i < q.size(); i++) {
        q[i] = std::exp(normal(random)) * (i % 3 == 0 ? -1.0f : 1.0f);
        k[i] = std::exp(normal(random)) * (i % 5 == 0 ? -1.0f : 1.0f);
    }
    const auto q_before = q, k_before = k;
    balance_norms(q, k);
    for (size_t i = 0; i < 64; i++) {
        CHECK(rms(q[i], q[i + 64]) == doctest::Approx(rms(k[i], k[i + 64])).epsilon(1e-6));
        CHECK(double(q[i]) / q_before[i] ==
              doctest::Approx(double(q[i + 64]) / q_before[i + 64]).epsilon(1e-6)); // RoPE mixes them
        for (const size_t c : {i, i + 64})
            CHECK(double(q[c]) * k[c] == doctest::Approx(double(q_before[c]) * k_before[c]).epsilon(1e-6));
    }
}

TEST_CASE("weights that cannot be balanced stay as they are") {
    constexpr float max = std::numeric_limits<float>::max(), min = std::numeric_limits<float>::min(),
                    denormal = std::numeric_limits<float>::denorm_min();
    for (const auto& [a, b, c, d] : std::vector<std::array<float, 4>>{{0, 0, 1, 2},
                                                                      {1, 2, 0, 0},
                                                                      {0, 0, 0, 0},
                                                                      {max, 0, max, max / 2},
                                                                      {min, 1, 1, 1},
                                                                      {denormal, denormal, 1, 1},
                                                                      {1, 1, denormal, 1}}) {
        std::vector<float> q{a, b}, k{c, d};
        balance_norms(q, k);
        for (const float v : {q[0], q[1], k[0], k[1]}) CHECK(std::isfinite(v));
        for (const auto& [now, before] : {std::pair(q[0], a), {q[1], b}, {k[0], c}, {k[1], d}})
            CHECK((now == 0) == (before == 0));
        if (c == denormal || (a == 0 && b == 0) || (c == 0 && d == 0)) CHECK((q == std::vector{a, b} && k == std::vector{c, d}));
    }
    std::vector<float> q{0, 1e-30f}, k{1e30f, 0}; // a weight of 0 beside another
    balance_norms(q, k);
    CHECK(q[0] == 0);
    CHECK(k[1] == 0);
    CHECK(q[1] == doctest::Approx(1).epsilon(1e-6));
    CHECK(k[0] == doctest::Approx(1).epsilon(1e-6));
}

TEST_CASE("conditions are applied after RoPE, to each query head those of its kv head") {
    ThreadPool pool(2);
    conformance::Random random{3};
    const uint32_t d = 64, heads = 6, kv_heads = 2, tokens = 5;
    Config config{};
    config.head_dim = d;
    config.rope_theta = 1e4f;
    const std::vector<float> table = rope_table(config, 270);
    const std::vector<host::Row> rows = host::make_rows(0, 253, tokens); // of two pages
    const HeadConditions conditions = conformance::random_conditions(random, kv_heads, d);
    const auto w = random.normals(d), q = random.normals(tokens * heads * d), k = random.normals(tokens * kv_heads * d);
    std::vector<float> want = q, got = q, fast = q;
    ref::q_norm_rope(pool, want, w, {table, rows}, heads, 1e-6f, 1, nullptr);
    for (uint32_t i = 0; i < tokens * heads; i++)
        for (uint32_t c = 0; c < d; c++) {
            const uint32_t at = i % heads / 3 * d + c;
            want[i * d + c] *= conditions.factors[at];
        }
    host::PageScores scores, fast_scores;
    ref::q_norm_rope(pool, got, w, {table, rows}, heads, 1e-6f, 1, nullptr, conditions, &scores);
    cpu::q_norm_rope(pool, fast, w, {table, rows}, heads, 1e-6f, 1, nullptr, conditions, &fast_scores);
    CHECK(got == want);
    CHECK(relative_error(fast, want) < 1e-6);

    // The means that keys of a page lack, turned in double.
    const auto mean_of = [&](uint32_t head, uint32_t page, uint32_t c) {
        const uint32_t pair = c % (d / 2);
        const std::complex<double> mean(conditions.means[head * d + pair], conditions.means[head * d + pair + d / 2]),
            turned = mean * std::polar(1.0, page * 256.0 * rope_frequency(config, pair));
        return c < d / 2 ? turned.real() : turned.imag();
    };
    std::vector<float> turned = q;
    ref::q_norm_rope(pool, turned, w, {table, rows}, heads, 1e-6f, 1, nullptr);
    for (uint32_t i = 0; i < tokens * heads; i++)
        for (uint32_t page = 0; page <= rows[i / heads].position / 256; page++) {
            double product = 0;
            for (uint32_t c = 0; c < d; c++) product += turned[i * d + c] * mean_of(i % heads / 3, page, c);
            CHECK(scores.of(i)[page] == doctest::Approx(product / 8).epsilon(1e-4));
            CHECK(fast_scores.of(i)[page] == doctest::Approx(product / 8).epsilon(1e-4));
        }

    std::vector<float> keys = k;
    ref::q_norm_rope(pool, keys, w, {table, rows}, kv_heads, 1e-6f, 1, nullptr); // the same, with as many heads
    for (uint32_t i = 0; i < tokens * kv_heads; i++)
        for (uint32_t c = 0; c < d; c++)
            keys[i * d + c] = float((keys[i * d + c] - mean_of(i % kv_heads, rows[i / kv_heads].position / 256, c)) *
                                    conditions.factors[i % kv_heads * d + c]);
    const KvCodec codec{KvType::f32, {}, make_rotation(RotationKind::wht, 0, KvSide::key, d)};
    host::HostCache caches[] = {{{1, 2, 512}, kv_heads, {{codec, codec}}, tokens},
                                {{1, 2, 512}, kv_heads, {{codec, codec}}, tokens}};
    for (host::HostCache& each : caches) each.reserve(0, 260);
    const host::LayerCache &cache = caches[0].layers()[0], &other = caches[1].layers()[0];
    ref::kv_append(pool, cache, KvSide::key, k, w, {table, rows}, 1e-6f, conditions);
    cpu::kv_append(pool, other, k, k, w, {table, rows}, 1e-6f, conditions);
    std::vector<float> stored(d);
    for (uint32_t i = 0; i < tokens * kv_heads; i++) {
        const auto expected = std::span(keys).subspan(i * d, d);
        decode_stored(codec, stored, cache.k.codes(cache.place(rows[i / kv_heads]), i % kv_heads), {});
        CHECK(relative_error(stored, expected) < 1e-6);
        decode_stored(codec, stored, other.k.codes(other.place(rows[i / kv_heads]), i % kv_heads), {});
        CHECK(relative_error(stored, expected) < 1e-6);
        decode_stored(codec, stored, other.v.codes(other.place(rows[i / kv_heads]), i % kv_heads),
                      {}); // values are not conditioned
        CHECK(std::ranges::equal(stored, std::span(k).subspan(i * d, d)));
    }
}

// The weights of the norms, and the results of RoPE, are rounded once more each, by at most 2^-24 of themselves: logits change
// as with any other rounding in a layer, by some 1e-6.
TEST_CASE("with f32 caches nothing changes but roundings, however the keys are conditioned") {
    const Model plain = load_model(demo);
    const Stressed stressed(1.5);
    const auto ids = plain.tokenizer.encode(story);
    const KvOptions f32{KvType::f32, KvType::f32};
    const auto right = logits(plain, f32, ids);
    CHECK(relative_error(logits(stressed.model, f32, ids), right) < 2e-5);
    for (const Model* model : {&plain, &stressed.model}) {
        CHECK(relative_error(logits(*model, conditioned(KvType::f32, norms()), ids), right) < 2e-5);
        for (const CalibrationParts parts : {CalibrationParts::both, CalibrationParts::scales, CalibrationParts::means}) {
            const KeyCalibration keys = calibrate(model->config, model->weights, ids, parts);
            CHECK(relative_error(logits(*model, conditioned(KvType::f32, measured(keys)), ids), right) < 2e-5);
        }
    }
}

TEST_CASE("codes of few bits need conditioned keys where channels differ") {
    const Stressed stressed(1);
    const auto ids = stressed.model.tokenizer.encode(story);
    const auto kl = [&](KvType type, KeyConditioning by) {
        return mean_kl(stressed.model, conditioned(type, std::move(by)), ids);
    };
    const KeyConditioning keys = measured(calibrate(stressed.model.config, stressed.model.weights, ids));
    const KeyConditioning none = parse_key_conditioning("none");
    const double tq4_plain = kl(KvType::tq4, none);
    CHECK(kl(KvType::tq3, none) > 0.05);
    CHECK(tq4_plain > 0.01);
    for (const KvType type : {KvType::tq3, KvType::tq4})
        for (const KeyConditioning& by : {norms(), keys}) CHECK(kl(type, by) < tq4_plain / 5);
}

TEST_CASE("by default coded keys are conditioned by what was measured, else by norms, layer by layer, and plain ones are not") {
    const Stressed stressed(1);
    const auto ids = stressed.model.tokenizer.encode(story);
    KvOptions mixed{KvType::tq3, KvType::f16};
    mixed.layers = {{1, 2, {KvType::f16, KvType::tq3}}};
    for (const uint32_t layer : {0u, 1u, 2u, 3u})
        CHECK(mixed.conditioning_of(layer, 4).kind ==
              (layer % 3 == 0 ? KeyConditioning::Kind::norms : KeyConditioning::Kind::none));
    const auto with = [](KvOptions kv, const char* how) {
        kv.conditioning = parse_key_conditioning(how);
        return kv;
    };
    const KvOptions coded{KvType::tq3, KvType::f16}, plain{KvType::f16, KvType::tq3};
    CHECK(logits(stressed.model, coded, ids) == logits(stressed.model, with(coded, "norms"), ids));
    CHECK(logits(stressed.model, coded, ids) != logits(stressed.model, with(coded, "none"), ids));
    const KeyConditioning keys = measured(calibrate(stressed.model.config, stressed.model.weights, ids));
    const auto known = [&](KvOptions kv) {
        kv.conditioning.calibration = keys.calibration;
        return kv;
    };
    for (const uint32_t layer : {0u, 1u, 2u, 3u})
        CHECK(known(mixed).conditioning_of(layer, 4).kind ==
              (layer % 3 == 0 ? KeyConditioning::Kind::measured : KeyConditioning::Kind::none));
    CHECK(describe(known(mixed)) == describe(mixed));
    CHECK(logits(stressed.model, known(coded), ids) == logits(stressed.model, conditioned_by(coded, keys), ids));
    CHECK(logits(stressed.model, known(coded), ids) != logits(stressed.model, coded, ids));
    CHECK(logits(stressed.model, known(plain), ids) == logits(stressed.model, plain, ids));
    CHECK(logits(stressed.model, plain, ids) == logits(stressed.model, with(plain, "none"), ids));
    CHECK(logits(stressed.model, plain, ids) != logits(stressed.model, with(plain, "norms"), ids));
}

namespace {

// Values that the taps get of a layer, before RoPE: keys after their norm, [tokens][kv_heads][head_dim], and queries.
struct Tapped {
    std::vector<float> k, q;
};

// In double, position by position, instead of by sums and a geometric series.
struct Expected {
    double mean[2], left,
        scale_2; // of a pair: the mean that is subtracted, mean square of what is left, and of g before rounding

    Expected(const Config& c, const Tapped& of, uint32_t head, uint32_t pair, bool subtract) : mean{}, left(0), scale_2(0) {
        const size_t d = c.head_dim, half = d / 2, heads = c.num_key_value_heads, tokens = of.k.size() / d / heads;
        const size_t group = c.num_attention_heads / heads;
        std::vector<std::complex<double>> keys, turns;
        for (size_t t = quality::left_out_tokens; t < tokens; t++)
            keys.emplace_back(of.k[(t * heads + head) * d + pair], of.k[(t * heads + head) * d + pair + half]);
        for (uint32_t p = 0; p < mean_positions; p++) turns.push_back(std::polar(1.0, p * rope_frequency(c, pair)));
        const auto average = [](const auto& all) { return std::reduce(all.begin(), all.end()) / double(all.size()); };
        const std::complex<double> m = subtract ? average(keys) * average(turns) : 0;
        mean[0] = m.real(), mean[1] = m.imag();
        for (const auto& key : keys)
            for (const auto& turn : turns) left += std::norm(key * turn - m) / double(keys.size() * turns.size());
        double queries = 0;
        for (size_t t = quality::left_out_tokens; t < tokens; t++)
            for (size_t h = head * group; h < (head + 1) * group; h++)
                for (const size_t i : {size_t(pair), pair + half})
                    queries +=
                        std::pow(double(of.q[(t * heads * group + h) * d + i]), 2) * double(d) / double(keys.size() * group);
        scale_2 = std::sqrt(left / queries);
    }
};

} // namespace

TEST_CASE("measured are the means and the scales that their formulas say") {
    const Model model = load_model(demo);
    const Config& c = model.config;
    const auto ids = model.tokenizer.encode(story);
    const uint32_t tokens = uint32_t(ids.size()), d = c.head_dim, half = d / 2, layer = 1;
    Tapped tapped;
    const Tap tap = [&](std::string_view name, std::span<const float> values) {
        if (name == "layer 1 k") tapped.k.assign(values.begin(), values.end());
        if (name == "layer 1 q") tapped.q.assign(values.begin(), values.end());
    };
    make_cpu_forward(c, model.weights,
                     {.kv = {KvType::f32, KvType::f32}, .context_size = tokens, .batch_size = tokens, .tap = tap})
        ->run(ids);
    std::vector<float> still; // RoPE that turns nothing
    for (uint32_t i = 0; i < tokens * half; i++) still.insert(still.end(), {1, 0});
    ThreadPool pool;
    ref::q_norm_rope(pool, tapped.k, to_floats(*model.weights.layers[layer].attn_k_norm), {still, host::make_rows(0, 0, tokens)},
                     c.num_key_value_heads, c.rms_norm_eps, 1, nullptr);
    const KeyCalibration both = calibrate(c, model.weights, ids),
                         scales = calibrate(c, model.weights, ids, CalibrationParts::scales),
                         means = calibrate(c, model.weights, ids, CalibrationParts::means);
    for (uint32_t head = 0; head < c.num_key_value_heads; head++) {
        const size_t first = (size_t(layer) * c.num_key_value_heads + head) * d;
        const auto logarithms_differ = [&](const KeyCalibration& of, bool subtract) { // from what the pairs should have
            double sum = 0;
            std::vector<double> apart;
            for (uint32_t i = 0; i < half; i++) {
                CHECK(of.scales[first + i] == of.scales[first + i + half]);
                const double steps = 4 * std::log2(of.scales[first + i]);
                const double right = 2 * std::log2(Expected(c, tapped, head, i, subtract).scale_2);
                CHECK(std::fabs(steps - std::round(steps)) < 1e-5);
                apart.push_back(steps - right);
                sum += right;
            }
            for (const double each : apart) CHECK(std::fabs(each + sum / half) < 0.501);
        };
        logarithms_differ(both, true);
        logarithms_differ(scales, false);
        for (uint32_t i = 0; i < half; i++) {
            const Expected right(c, tapped, head, i, true);
            for (const uint32_t side : {0u, 1u}) {
                const size_t at = first + i + side * half;
                CHECK(std::fabs(both.means[at] - right.mean[side]) <= std::sqrt(right.left / 2) / 32 * 1.001);
                CHECK(means.means[at] == both.means[at]);
                CHECK((means.scales[at] == 1 && scales.means[at] == 0));
            }
        }
    }
}

TEST_CASE("means of keys do not depend on the positions at which a text stood, and its first tokens do not count") {
    const SmallModel model;
    const uint32_t layers = model.config.num_hidden_layers, d = model.config.head_dim;
    const size_t k_cols = size_t(model.config.num_key_value_heads) * d, q_cols = size_t(model.config.num_attention_heads) * d;
    const auto measure = [&](size_t tokens, float of_first, bool in_two) {
        std::mt19937 random(1);
        std::normal_distribution<float> normal(1, 0.5);
        KeyStatistics statistics(model.config, model.weights);
        const Tap tap = statistics.tap();
        std::vector<float> k(40 * k_cols), q(40 * q_cols);
        for (float& x : k) x = normal(random);
        for (float& x : q) x = normal(random);
        for (int text = 0; text < (in_two ? 2 : 1); text++) { // twice the same keys
            statistics.begin_text();
            const size_t before = quality::left_out_tokens + tokens;
            for (uint32_t layer = 0; layer < layers; layer++) {
                tap(fmt::format("layer {} k", layer), std::vector<float>(quality::left_out_tokens * k_cols, of_first));
                tap(fmt::format("layer {} q", layer), std::vector<float>(quality::left_out_tokens * q_cols, of_first));
                for (size_t i = 0; i * 40 + quality::left_out_tokens < before; i++) {
                    tap(fmt::format("layer {} k", layer), k);
                    tap(fmt::format("layer {} q", layer), q);
                }
            }
        }
        CHECK(statistics.tokens() == tokens * (in_two ? 2 : 1));
        return statistics.calibration(CalibrationParts::both);
    };
    const KeyCalibration once = measure(40, 1, false);
    for (const KeyCalibration& other : {measure(40, 1000, false), measure(400, 1, false), measure(40, -50, true)}) {
        CHECK(other.means == once.means);
        CHECK(other.scales == once.scales);
    }
}

TEST_CASE("a conditioned cache is cut as any other") {
    const SmallModel model;
    std::mt19937 random(1);
    const KeyCalibration keys = calibrate(model.config, model.weights, random_ids(random, 100));
    check_cuts(
        {conditioned(KvType::tq3, norms()), conditioned(KvType::tq4, measured(keys)), conditioned(KvType::q4_0, measured(keys))},
        [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); });
}

TEST_CASE("names and descriptions") {
    CHECK(parse_key_conditioning("none").kind == KeyConditioning::Kind::none);
    CHECK(parse_key_conditioning("auto").kind == KeyConditioning::Kind::automatic);
    CHECK(describe(conditioned(KvType::tq3, {})) == "tq3/tq3");
    CHECK(describe(conditioned(KvType::tq3, parse_key_conditioning("none"))) == "tq3/tq3, not conditioned");
    CHECK(describe(conditioned(KvType::tq3, norms())) == "tq3/tq3, conditioned by norms");
    CHECK(describe(conditioned(KvType::tq4, parse_key_conditioning("a/keys.file"))) == "tq4/tq4, conditioned by a/keys.file");
}
