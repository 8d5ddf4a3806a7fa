// Conditioned keys: the parts folded into the norms and applied after RoPE, the file of measured keys, and unchanged logits.
#include "base/error.h"
#include "base/path_text.h"
#include "model/cpu/forward.h"
#include "model/cpu/kernels.h"
#include "model/files/calibration.h"
#include "model/model.h"
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tests/support/golden.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/small_model.h"
#include "tests/support/stressed_model.h"
#include "tests/support/text.h"
#include "tools/conformance/random.h"
#include "tools/quality/calibrate.h"
#include "tools/quality/compare.h"
#include <cmath>
#include <limits>

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

KeyConditioning norms() { return parse_key_conditioning("norms"); }

KeyConditioning measured(KeyCalibration calibration) {
    KeyConditioning out = parse_key_conditioning("keys.safetensors");
    out.calibration = std::make_shared<const KeyCalibration>(std::move(calibration));
    return out;
}

KeyCalibration calibrate(const Config& config, const Weights& weights, std::span<const uint32_t> ids,
                         CalibrationParts parts = CalibrationParts::both) {
    KeyStatistics keys(config, weights, uint32_t(ids.size()));
    const ForwardOptions options{
        .kv = {KvType::f32, KvType::f32}, .context_size = uint32_t(ids.size()), .batch_size = 37, .tap = keys.tap()};
    make_cpu_forward(config, weights, options)->run(ids);
    CHECK(keys.tokens() == ids.size());
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
    constexpr float most = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::min(),
                    denormal = std::numeric_limits<float>::denorm_min();
    for (const auto& [a, b, c, d] : std::vector<std::array<float, 4>>{{0, 0, 1, 2},
                                                                      {1, 2, 0, 0},
                                                                      {0, 0, 0, 0},
                                                                      {most, 0, most, most / 2},
                                                                      {least, 1, 1, 1},
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
    const std::vector<float> table = rope_table(config, 20);
    const std::vector<host::Row> rows = host::make_rows(0, 3, tokens);
    const HeadConditions conditions = conformance::random_conditions(random, kv_heads, d);
    const auto w = random.normals(d), q = random.normals(tokens * heads * d), k = random.normals(tokens * kv_heads * d);
    std::vector<float> want = q, got = q, fast = q;
    ref::q_norm_rope(pool, want, w, {table, rows}, heads, 1e-6f, 1, nullptr);
    for (uint32_t i = 0; i < tokens * heads; i++)
        for (uint32_t c = 0; c < d; c++) {
            const uint32_t at = i % heads / 3 * d + c;
            want[i * d + c] = (want[i * d + c] - conditions.means[at]) * conditions.factors[at];
        }
    ref::q_norm_rope(pool, got, w, {table, rows}, heads, 1e-6f, 1, nullptr, conditions);
    cpu::q_norm_rope(pool, fast, w, {table, rows}, heads, 1e-6f, 1, nullptr, conditions);
    CHECK(got == want);
    CHECK(relative_error(fast, want) < 1e-6);

    std::vector<float> keys = k;
    ref::q_norm_rope(pool, keys, w, {table, rows}, kv_heads, 1e-6f, 1, nullptr, conditions); // the same, with as many heads
    const KvCodec codec{KvType::f32, {}, make_rotation(RotationKind::wht, 0, KvSide::key, d)};
    host::KvCache caches[] = {{{1, 1, 8}, kv_heads, {{codec, codec}}, tokens}, {{1, 1, 8}, kv_heads, {{codec, codec}}, tokens}};
    for (host::KvCache& each : caches) each.reserve(0, 8);
    const host::LayerCache &cache = caches[0].layers()[0], &other = caches[1].layers()[0];
    ref::kv_append(pool, cache, KvSide::key, k, w, {table, rows}, 1e-6f, conditions);
    cpu::kv_append(pool, other, k, k, w, {table, rows}, 1e-6f, conditions);
    std::vector<float> stored(d);
    for (uint32_t i = 0; i < tokens * kv_heads; i++) {
        const auto expected = std::span(keys).subspan(i * d, d);
        decode_stored(codec, stored, cache.k.codes(cache.place(rows[i / kv_heads]), i % kv_heads), {});
        CHECK(std::ranges::equal(stored, expected));
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

TEST_CASE("by default coded keys are conditioned by norms, layer by layer, and plain ones are not") {
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
    CHECK(logits(stressed.model, plain, ids) == logits(stressed.model, with(plain, "none"), ids));
    CHECK(logits(stressed.model, plain, ids) != logits(stressed.model, with(plain, "norms"), ids));
}

TEST_CASE("measured are the means and the scales that their formulas say") {
    const Model model = load_model(demo);
    const Config& c = model.config;
    const auto ids = model.tokenizer.encode(story);
    const uint32_t tokens = uint32_t(ids.size()), d = c.head_dim, layer = 1;
    std::vector<float> k, q; // of the layer, after RoPE
    ThreadPool pool;
    const std::vector<float> table = rope_table(c, tokens);
    const Tap tap = [&](std::string_view name, std::span<const float> values) {
        if (name == "layer 1 k") k.assign(values.begin(), values.end());
        if (name == "layer 1 q") q.assign(values.begin(), values.end());
    };
    make_cpu_forward(c, model.weights,
                     {.kv = {KvType::f32, KvType::f32}, .context_size = tokens, .batch_size = tokens, .tap = tap})
        ->run(ids);
    ref::q_norm_rope(pool, k, to_floats(*model.weights.layers[layer].attn_k_norm), {table, host::make_rows(0, 0, tokens)},
                     c.num_key_value_heads, c.rms_norm_eps, 1, nullptr);
    const KeyCalibration both = calibrate(c, model.weights, ids),
                         scales = calibrate(c, model.weights, ids, CalibrationParts::scales),
                         means = calibrate(c, model.weights, ids, CalibrationParts::means);
    const uint32_t group = c.num_attention_heads / c.num_key_value_heads;
    for (uint32_t head = 0; head < c.num_key_value_heads; head++)
        for (uint32_t channel = 0; channel < d; channel += 7) {
            double sum = 0, squares = 0, q_squares = 0;
            for (uint32_t t = 0; t < tokens; t++) {
                const double key = k[(t * c.num_key_value_heads + head) * d + channel];
                sum += key;
                squares += key * key;
                for (uint32_t h = head * group; h < (head + 1) * group; h++)
                    q_squares += std::pow(double(q[(t * c.num_attention_heads + h) * d + channel]) * std::sqrt(double(d)), 2);
            }
            const size_t at = (size_t(layer) * c.num_key_value_heads + head) * d + channel;
            const double mean = sum / tokens, variance = squares / tokens - mean * mean, q2 = q_squares / (tokens * group);
            CHECK(both.means[at] == doctest::Approx(mean).epsilon(1e-3));
            CHECK(both.scales[at] == doctest::Approx(std::pow(variance / q2, 0.25)).epsilon(1e-3));
            CHECK(scales.scales[at] == doctest::Approx(std::pow(squares / tokens / q2, 0.25)).epsilon(1e-3));
            CHECK(means.means[at] == both.means[at]);
            CHECK((means.scales[at] == 1 && scales.means[at] == 0));
        }
}

TEST_CASE("a conditioned cache is cut as any other") {
    const SmallModel model;
    std::mt19937 random(1);
    const KeyCalibration keys = calibrate(model.config, model.weights, random_ids(random, 100));
    check_cuts(
        {conditioned(KvType::tq3, norms()), conditioned(KvType::tq4, measured(keys)), conditioned(KvType::a4_32, measured(keys))},
        [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); });
}

namespace {

// The file of a calibration without effect, for tests that damage it.
struct NeutralFile {
    KeyCalibration keys;
    std::string fingerprint;

    explicit NeutralFile(const SmallModel& of)
        : keys{of.config.num_hidden_layers, of.config.num_key_value_heads, of.config.head_dim, {}, {}},
          fingerprint(model_fingerprint(of.config, of.weights)) {
        keys.scales.assign(size_t(keys.layers) * keys.kv_heads * keys.head_dim, 1.0f);
        keys.means.assign(keys.scales.size(), 0.0f);
    }
    std::string bytes() const { return calibration_bytes(keys, fingerprint, {"a model", 5}); }
};

std::string refusal(const SmallModel& model, const std::string& bytes) {
    const test::TemporaryFile file(bytes);
    try {
        read_calibration(file.path(), model.config, model.weights);
    } catch (const Error& error) {
        const std::string what = error.what();
        CHECK(what.find(utf8_text(file.path())) != std::string::npos);
        return what;
    }
    return "none";
}

} // namespace

TEST_CASE("a file of measured keys is read back as it was") {
    const SmallModel model;
    std::mt19937 random(1);
    const KeyCalibration keys = calibrate(model.config, model.weights, random_ids(random, 100));
    const test::TemporaryFile file(calibration_bytes(keys, model_fingerprint(model.config, model.weights), {"x\n", 100}));
    const KeyCalibration back = read_calibration(file.path(), model.config, model.weights);
    CHECK(back.scales == keys.scales);
    CHECK(back.means == keys.means);
    KeyConditioning conditioning = parse_key_conditioning(utf8_text(file.path()));
    load_conditioning(conditioning, model.config, model.weights);
    CHECK(conditioning.calibration->scales == keys.scales);
    KeyConditioning missing = parse_key_conditioning("/no/such/file"), none, of_norms = norms();
    CHECK_THROWS_WITH_AS(load_conditioning(missing, model.config, model.weights), doctest::Contains("/no/such/file"), Error);
    for (KeyConditioning* plain : {&none, &of_norms}) load_conditioning(*plain, model.config, model.weights);
    CHECK(of_norms.calibration == nullptr);
}

TEST_CASE("a file of another model, or of other positions, is refused") {
    const SmallModel model;
    NeutralFile file(model);
    CHECK(refusal(model, file.bytes()) == "none");
    file.fingerprint[3] = file.fingerprint[3] == '0' ? '1' : '0';
    CHECK(contains(refusal(model, file.bytes()), "made for another model"));

    const std::string here = model_fingerprint(model.config, model.weights);
    const test::TemporaryFile first, second; // mapped files cannot be written to on Windows
    test::write_stressed_model(model.path.path(), first.path(), {.key_spread = 0.1});
    const ModelFile other = read_gguf(first.path());
    CHECK(model_fingerprint(model.config, read_weights(other, model.config)) != here);
    test::write_stressed_model(model.path.path(), second.path(), {}); // the same model in other bytes
    const ModelFile same = read_gguf(second.path());
    CHECK(model_fingerprint(model.config, read_weights(same, model.config)) == here);
    Weights quantised = model.weights;
    quantised.layers[0].attn_q.type = GgmlType::Q4_0;
    CHECK(model_fingerprint(model.config, quantised) != here);
    Config stretched = model.config;
    stretched.rope_scaling = {RopeScalingType::linear, 2, 64};
    CHECK(model_fingerprint(stretched, model.weights) != here);
}

TEST_CASE("what no keys can have is refused, and where it is said") {
    const SmallModel model;
    const size_t at = 128 * 5 + 3; // layer 1, kv head 1, channel 3
    const float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const float scale : {0.0f, -1.0f, nan, infinite, 1e-30f, 1e30f}) {
        NeutralFile file(model);
        file.keys.scales[at] = scale;
        CHECK(contains(refusal(model, file.bytes()), "the scale of layer 1, kv head 1, channel 3 is"));
    }
    for (const float mean : {nan, infinite, -infinite, 1e6f, -1e6f}) {
        NeutralFile file(model);
        file.keys.means[at] = mean;
        CHECK(contains(refusal(model, file.bytes()), "the mean of layer 1, kv head 1, channel 3 is"));
    }
}

TEST_CASE("files that are cut, of other shapes, or not of this kind are refused") {
    const SmallModel model;
    const NeutralFile file(model);
    const std::string bytes = file.bytes();
    for (const size_t length : {size_t(1), size_t(7), size_t(8), size_t(100), bytes.size() / 2, bytes.size() - 1})
        CHECK(refusal(model, bytes.substr(0, length)) != "none");
    CHECK(refusal(model, bytes + "more") != "none");

    NeutralFile fewer = file;
    fewer.keys.layers = 1;
    fewer.keys.scales.resize(fewer.keys.scales.size() / 2);
    fewer.keys.means.resize(fewer.keys.scales.size());
    CHECK(contains(refusal(model, fewer.bytes()), "is F32 of 1 x 4 x 128; this model has F32 of 2 x 4 x 128"));

    test::SafetensorsWriter writer;
    const std::string zeros(2 * 4 * 128 * 4, '\0');
    const test::json about{{"format", "tq-run-calibration"}, {"version", "2"}, {"fingerprint", file.fingerprint}};
    const auto with = [&](test::json metadata) {
        writer.header["__metadata__"] = std::move(metadata);
        return refusal(model, writer.bytes());
    };
    writer.add("scales", "F32", {2, 4, 128}, zeros);
    CHECK(contains(with({{"format", "pt"}}), "not a file of tq-run-calibration"));
    test::json later = about;
    later["version"] = "3";
    CHECK(contains(with(later), "another version of tq-run wrote it as tq-run-calibration 3, but this one reads 2"));
    CHECK(contains(with(about), "\"scales\" and \"means\", and no others"));
    writer.add("means", "F32", {2, 4, 128}, zeros);
    CHECK(contains(with(about), "the scale of layer 0, kv head 0, channel 0 is 0"));
    writer.add("more", "F32", {1}, "aaaa");
    CHECK(contains(with(about), "and no others"));
}

TEST_CASE("names and descriptions") {
    CHECK(parse_key_conditioning("none").kind == KeyConditioning::Kind::none);
    CHECK(parse_key_conditioning("auto").kind == KeyConditioning::Kind::automatic);
    CHECK(describe(conditioned(KvType::tq3, {})) == "tq3/tq3");
    CHECK(describe(conditioned(KvType::tq3, parse_key_conditioning("none"))) == "tq3/tq3, not conditioned");
    CHECK(describe(conditioned(KvType::tq3, norms())) == "tq3/tq3, conditioned by norms");
    CHECK(describe(conditioned(KvType::tq4, parse_key_conditioning("a/keys.file"))) == "tq4/tq4, conditioned by a/keys.file");
}
