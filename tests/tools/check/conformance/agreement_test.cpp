// tq-run validate: a device and the CPU agree on the demo model, and a fault planted in one of the two is found at its place.
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "model/model.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/conformance/agreement.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq;
using tq::test::contains;
using namespace tq::conformance;

namespace {

const Model& demo() {
    static const Model model = load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf");
    return model;
}

const KvOptions tq4{KvType::tq4, KvType::tq4};
constexpr uint32_t decode_tokens = 6;

MakeForward on_cpu(const Weights& weights, const KvOptions& kv) {
    return [&weights, kv](const Tap& tap) {
        return make_cpu_forward(demo().config, weights, {.kv = kv, .context_size = 256, .tap = tap});
    };
}

std::vector<uint32_t> prompt() {
    return demo().tokenizer.encode(
        "<|im_start|>user\nThe code of the silver kettle is 4821. The code of the old violin is 3075. Tom "
        "lives near the river. The baker walked to the market. It was a rainy day at the harbor. A small "
        "cat slept under the table. Then Paul went home and read a book. What is the code of the old "
        "violin?<|im_end|>\n<|im_start|>assistant\n");
}

// Compares `measured` with the CPU, with a tq4 cache.
Agreement against_cpu(const MakeForward& measured, const KvOptions& kv = tq4, bool halves = false) {
    static const NoisyWeights noisy = with_noise(demo().weights, noise_like_rounding(false));
    const AgreementOptions options{.decode = decode_tokens, .fp16_products = halves};
    return *compare(demo().config, measured, on_cpu(demo().weights, kv), on_cpu(noisy.weights, kv), prompt(), options);
}

// A Forward whose results a test can change.
class Changed : public Forward {
  public:
    explicit Changed(std::unique_ptr<Forward> inner) : inner_(std::move(inner)) {}

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return inner_->run(
            spans,
            [&](size_t span, uint32_t i, std::span<const float> logits) {
                logits_.assign(logits.begin(), logits.end());
                change(logits_);
                each(span, i, logits_);
            },
            progress);
    }
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return inner_->cache(); }
    StoredSide stored(uint32_t layer, KvSide side) override {
        StoredSide out = inner_->stored(layer, side);
        change(out, layer, side);
        return out;
    }

  protected:
    virtual void change(std::vector<float>&) {}
    virtual void change(StoredSide&, uint32_t, KvSide) {}

  private:
    std::unique_ptr<Forward> inner_;
    const ForwardFacts facts_ = without_sampling(inner_->facts());
    std::vector<float> logits_;
};

template <class C> MakeForward changed() {
    return [make = on_cpu(demo().weights, tq4)](const Tap& tap) { return std::make_unique<C>(make(tap)); };
}

struct OneCode : Changed {
    using Changed::Changed;
    void change(StoredSide& stored, uint32_t layer, KvSide side) override {
        if (layer == 3 && side == KvSide::value) stored.codes_of(1, 5)[2] ^= 1u << 7;
    }
};

struct OtherTops : Changed { // the most probable token loses to the next, from the third run on
    using Changed::Changed;
    int runs = 0;
    void change(std::vector<float>& logits) override {
        if (runs++ < 3) return;
        const auto top = std::ranges::max_element(logits);
        float second = -INFINITY;
        for (auto at = logits.begin(); at != logits.end(); ++at)
            if (at != top) second = std::max(second, *at);
        *top = second - 0.25f;
    }
};

struct NanOnce : Changed { // in the fifth run
    using Changed::Changed;
    int runs = 0;
    void change(std::vector<float>& logits) override {
        if (runs++ == 4) logits[5] = NAN;
    }
};

struct LouderLogits : Changed {
    using Changed::Changed;
    void change(std::vector<float>& logits) override {
        for (float& l : logits) l *= 1.2f;
    }
};

} // namespace

TEST_CASE("a model agrees with itself") {
    const Agreement a = against_cpu(on_cpu(demo().weights, tq4));
    CHECK(a.passed());
    CHECK_FALSE(a.first);
    CHECK_FALSE(a.different);
    CHECK(a.logit_error == 0);
    CHECK(a.prompt_tokens == prompt().size());
    CHECK(a.greedy.size() == decode_tokens);
    CHECK(demo().tokenizer.decode(a.greedy).starts_with("The code of the"));
    REQUIRE(a.prompt.size() == demo().config.num_hidden_layers);
    for (const auto& [layers, tokens] : {std::pair(a.prompt, a.prompt_tokens), std::pair(a.decoded, decode_tokens)})
        for (const LayerAgreement& l : layers) {
            const uint64_t vectors = uint64_t(tokens) * demo().config.num_key_value_heads;
            CHECK(l.k_codes.of == vectors * demo().config.head_dim);
            CHECK(l.v_scales.of == vectors);
            CHECK(l.encoded.of == vectors);
            for (const Equal& equal : {l.k_codes, l.k_scales, l.v_codes, l.v_scales, l.encoded}) CHECK(equal.equal == equal.of);
            CHECK(l.cosine == doctest::Approx(1).epsilon(1e-12));
            CHECK(l.error == 0);
            CHECK(l.error_limit < 0.5); // the noise must not allow everything
            CHECK(l.code_limit < 0.5);
        }
}

TEST_CASE("the device agrees with the CPU, and stores its values as the CPU would") {
    Device device;
    const bool halves = gpu::tuning_for(device.capabilities()).rounds_to_fp16();
    for (const KvOptions& kv : {tq4, KvOptions{KvType::f32, KvType::f32}, KvOptions{KvType::q8_0, KvType::q4_0}}) {
        const std::string cache = describe(kv);
        CAPTURE(cache);
        const Agreement a = against_cpu(
            [&](const Tap& tap) {
                return make_gpu_forward(device, demo().config, demo().weights, {.kv = kv, .context_size = 256, .tap = tap});
            },
            kv, halves);
        CHECK_MESSAGE(a.passed(), a.verdict);
        for (const auto* layers : {&a.prompt, &a.decoded})
            for (const LayerAgreement& l : *layers) {
                CHECK(l.encoded.of > 0);
                CHECK(l.encoded.equal == l.encoded.of);
                CHECK(l.cosine > 0.99);
            }
        if (is_coded(kv.k)) CHECK(a.prompt[0].k_codes.different() < 0.01);
    }
}

TEST_CASE("what is planted is found where it is") {
    SUBCASE("weights of layer 2's values") {
        Weights other = demo().weights;
        Tensor& v = other.layers[2].attn_v;
        std::vector<std::byte> bytes(v.data.begin(), v.data.end());
        std::rotate(bytes.begin(), bytes.begin() + std::ptrdiff_t(v.row_bytes()), bytes.end()); // every row is shifted by one
        v.data = bytes;
        const Agreement a = against_cpu(on_cpu(other, tq4));
        CHECK(contains(a.verdict, "layer 2, values of the prompt"));
        REQUIRE(a.first);
        CHECK(a.first->layer == 2);
        CHECK(a.first->side == KvSide::value);
        CHECK(a.first->position == 0);
        CHECK(a.prompt[1].error == 0);
        CHECK(a.prompt[2].k_codes.equal == a.prompt[2].k_codes.of);
        CHECK(a.prompt[2].cosine < 0.999);
        CHECK(a.logit_error > 0);
    }
    SUBCASE("weights of layer 1's output") {
        Weights other = demo().weights;
        std::swap(other.layers[1].attn_output, other.layers[0].attn_output);
        other.layers[0].attn_output = demo().weights.layers[0].attn_output;
        CHECK(contains(against_cpu(on_cpu(other, tq4)).verdict, "layer 1, residual stream of the prompt"));
    }
    SUBCASE("another type of layer 1's keys") {
        KvOptions kv = tq4;
        kv.layers.push_back({1, 1, {KvType::tq3, KvType::tq4}});
        const Agreement a = against_cpu(on_cpu(demo().weights, kv));
        CHECK(contains(a.verdict, "layer 1, keys of the prompt: 100 %"));
        REQUIRE(a.first);
        CHECK(a.first->layer == 1);
        CHECK(a.first->side == KvSide::key);
    }
    SUBCASE("one code") {
        const Agreement a = against_cpu(changed<OneCode>());
        CHECK(contains(a.verdict, "layer 3, values of the prompt: 1 of"));
        REQUIRE(a.first);
        CHECK(a.first->layer == 3);
        CHECK(a.first->side == KvSide::value);
        CHECK(a.first->head == 1);
        CHECK(a.first->position == 5);
        CHECK(a.prompt[3].v_codes.of - a.prompt[3].v_codes.equal == 1);
    }
    SUBCASE("a token") {
        const Agreement a = against_cpu(changed<OtherTops>());
        REQUIRE(a.different);
        CHECK(a.different->id != a.different->reference_id);
        CHECK(a.different->margin >= 0);
        CHECK(a.different->logit_error == doctest::Approx(a.different->margin + 0.25).epsilon(1e-4));
    }
    SUBCASE("the logits") {
        const Agreement a = against_cpu(changed<LouderLogits>());
        CHECK(contains(a.verdict, "logits: off by 0.2"));
        CHECK(a.logit_error == doctest::Approx(0.2).epsilon(1e-4));
    }
}

TEST_CASE("nothing is worse than NaN") {
    CHECK(worse(1, 2) == 2);
    CHECK(worse(2, 1) == 2);
    CHECK(std::isnan(worse(NAN, 1)));
    CHECK(std::isnan(worse(1, NAN)));
    Agreement a;
    CHECK(a.worst_layer() == nullptr);
    a.prompt.resize(3);
    a.decoded.resize(2);
    CHECK(a.worst_layer() == &a.prompt[0]);
    a.prompt[2].error = 0.2;
    a.decoded[0].error = 0.1;
    CHECK(a.worst_layer() == &a.prompt[2]);
    a.prompt[1].error = NAN;
    CHECK(a.worst_layer() == &a.prompt[1]);
    const Agreement nan = against_cpu(changed<NanOnce>());
    CHECK_FALSE(nan.passed());
    CHECK(std::isnan(nan.logit_error));
    CHECK(std::isnan(nan.logit_difference));
}

TEST_CASE("noise is as much as it says, in norms alone") {
    const NoisyWeights noisy = with_noise(demo().weights, 1e-3f);
    CHECK(noisy.norms.size() == 4 * demo().weights.layers.size() + 1);
    const std::vector<float> want = to_floats(*demo().weights.layers[1].attn_k_norm),
                             got = to_floats(*noisy.weights.layers[1].attn_k_norm);
    REQUIRE(want.size() == got.size());
    size_t up = 0;
    for (size_t i = 0; i < want.size(); i++) {
        CHECK(std::fabs(got[i] / want[i] - 1) == doctest::Approx(1e-3).epsilon(0.01));
        up += got[i] > want[i];
    }
    CHECK(up > want.size() / 4);
    CHECK(up < want.size() * 3 / 4);
    CHECK(noisy.weights.layers[1].attn_k.data.data() == demo().weights.layers[1].attn_k.data.data());
}

TEST_CASE("tq-run validate says it in words and in JSON") {
    const auto validate = [](std::vector<std::string> more) {
        std::vector<std::string> arguments{TQ_RUN, "validate"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return test::run({std::move(arguments), {}, {}});
    };
    const std::string text = "Once upon a time there was a tailor named Tom.";
    const auto words = validate({"-p", text, "-n", "4"});
    REQUIRE_MESSAGE(words.status == 0, words.error);
    CHECK(contains(words.output, "reference  CPU"));
    CHECK(contains(words.output, "they agree: "));
    CHECK(contains(words.output, "\n    3   100 "));
    const auto json = validate({"-p", text, "-n", "4", "--json", "--device", "cpu"});
    REQUIRE_MESSAGE(json.status == 0, json.error);
    const auto parsed = nlohmann::json::parse(json.output);
    CHECK(parsed["passed"] == true);
    CHECK(parsed["greedy"].size() == 4);
    CHECK(parsed["prompt"].size() == 4);
    CHECK_FALSE(parsed.contains("first_difference")); // the CPU against itself
    CHECK(validate({}).status == 2);
    CHECK(contains(validate({"-p", ""}).error, "empty"));
    CHECK(contains(validate({"-p", text, "-n", "5000", "--device", "cpu"}).error, "exceed the context of 2048"));
    CHECK(validate({"-p", text, "--against", "no such device"}).status == 2);
}
