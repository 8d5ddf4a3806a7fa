// The full-precision window on the CPU.
#include "base/half.h"
#include "model/cpu/forward.h"
#include "model/kv/window.h"
#include "tests/support/golden.h"
#include "tests/support/small_model.h"
#include "tools/check/conformance/vectors/random.h"

using namespace tq;

namespace {

KvOptions with_window(KvTypes types, uint32_t tokens) {
    KvOptions kv{types.k, types.v};
    kv.window = tokens;
    return kv;
}

std::unique_ptr<Forward> on_cpu(const SmallModel& model, const KvOptions& kv, uint32_t batch_size = 8) {
    ForwardOptions options = small_options(kv);
    options.batch_size = batch_size;
    return make_cpu_forward(model.config, model.weights, options);
}

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

} // namespace

TEST_CASE("which positions are there") {
    WindowPositions window{5};
    CHECK(window.first(0) == 0);
    CHECK(window.first(4) == 0);
    CHECK(window.first(5) == 1);
    CHECK(window.first(100) == 96);
    window.forget(100, 90); // a few tokens are removed, and no visible token is lost
    CHECK(window.begin == 79);
    CHECK(window.first(90) == 86);
    window.forget(200, 182);
    CHECK(window.begin == 179);
    CHECK(window.first(182) == 179);
    CHECK(window.first(183) == 179);
    CHECK(window.first(184) == 180);
    CHECK(!window.survives(184, 20));
    window.forget(184, 20); // no earlier token is left
    CHECK(window.first(20) == 20);
    CHECK(window.first(22) == 20);
}

TEST_CASE("a window that was put there is that of its own length, of greater ones, and of those whose window is whole") {
    WindowPositions window{256};
    const uint32_t kept = kept_window_tokens(256);
    window.start(634 - kept, 634);
    CHECK(window.survives(634, 634));
    CHECK(window.survives(700, 695));
    CHECK(window.survives(634, 617));
    CHECK(!window.survives(634, 616));
    CHECK(!window.survives(684, 640));
    CHECK(!window.survives(684, 634 - kept)); // whose first position would stay
    CHECK(!window.survives(640, 500));
    window.start(1000, 1000); // nothing was kept of what came before: what comes after may be taken back
    CHECK(window.survives(1100, 1050));
    CHECK(window.survives(1100, 1000));
    CHECK(!window.survives(1100, 999));
}

TEST_CASE("what is stored is the rotated vector in fp16, no longer than it was") {
    conformance::Random random{1};
    for (const RotationKind kind : {RotationKind::wht, RotationKind::haar})
        for (const uint32_t d : {64u, 128u, 256u}) {
            const KvCodec codec{.type = KvType::tq4, .rotation = make_rotation(kind, 3, KvSide::key, d)};
            const std::vector<float> x = random.normals(d);
            std::vector<uint32_t> words(d / 2);
            encode_window(codec, words, x);
            std::vector<float> y;
            for (const uint32_t word : words)
                for (const uint32_t half : {word & 0xffff, word >> 16}) y.push_back(half_to_float(uint16_t(half)));
            double before = 0, after = 0;
            for (uint32_t i = 0; i < d; i++) before += double(x[i]) * x[i], after += double(y[i]) * y[i];
            CHECK(after <= before * 1.01);
            for (float& v : y) v /= window_unit;
            rotate_back(y, codec.rotation);
            CHECK(relative_error(y, x) < 1e-3);
        }
}

TEST_CASE("where the window holds all tokens, the logits are those of an fp16 cache") {
    const SmallModel model;
    std::mt19937 random(1);
    const auto ids = random_ids(random, 60);
    for (const KvTypes types : {KvTypes{KvType::tq2, KvType::tq2}, {KvType::tq3t, KvType::q4_0}, {KvType::f16, KvType::tq2}}) {
        const std::string text = describe(with_window(types, 101));
        CAPTURE(text);
        const auto right = copy(on_cpu(model, {KvType::f16, KvType::f16})->run(ids));
        CHECK(relative_error(on_cpu(model, with_window(types, 101))->run(ids), right) < 3e-3);
        CHECK(relative_error(on_cpu(model, {types.k, types.v})->run(ids), right) > 0.02);
    }
}

TEST_CASE("a window does not depend on the blocks it comes in") {
    const SmallModel model;
    std::mt19937 random(2);
    const auto ids = random_ids(random, 90);
    const KvOptions kv = with_window({KvType::tq2, KvType::tq2}, 7);
    const auto right = copy(on_cpu(model, kv, 90)->run(ids));
    for (const uint32_t batch : {1u, 2u, 8u, 33u}) {
        CAPTURE(batch);
        CHECK(relative_error(on_cpu(model, kv, batch)->run(ids), right) < 1e-4);
    }
    CHECK(relative_error(on_cpu(model, {KvType::tq2, KvType::tq2})->run(ids), right) > 0.01);
}

TEST_CASE("tokens that are taken back leave no trace where they are few, and are run again where they are many") {
    const SmallModel model;
    std::mt19937 random(3);
    const auto ids = random_ids(random, 70), others = random_ids(random, 30), next = random_ids(random, 1);
    const KvOptions kv = with_window({KvType::tq2, KvType::tq2}, 7);
    const auto plain = on_cpu(model, kv), back = on_cpu(model, kv);
    plain->run(ids);
    back->run(ids);
    for (const uint32_t few : {1u, SAMPLING_STEPS}) {
        back->run(std::span(others).first(few));
        back->truncate(70);
        check_same(*back, *plain, next);
        back->truncate(70);
        plain->truncate(70);
    }
    back->run(others);
    CHECK(back->cache().cut(0, 70) == 0); // what the window had there is lost, and no checkpoint has it
    back->run(ids);
    check_same(*back, *plain, next);
    CHECK(back->kv().window == 7);
}

TEST_CASE("the options are described, counted and checked") {
    KvOptions kv = with_window({KvType::tq4, KvType::tq3}, 16);
    kv.layers = parse_kv_layers("0=f16;1=f16/tq2");
    CHECK(describe(kv) == "tq4/tq3, window 16, 0 f16/f16, 1 f16/tq2");
    CHECK(kv.layers_with_window(4) == 3);
    CHECK(kv_window_bytes(kv, 4, 8, 128) == 3 * 2 * 32 * 8 * 256);
    kv.window = 0;
    CHECK(kv.layers_with_window(4) == 0);
    CHECK(kv_window_bytes(kv, 4, 8, 128) == 0);
    CHECK_THROWS_WITH_AS(check_kv(with_window({KvType::tq4, KvType::tq4}, 1025), 4), doctest::Contains("at most 1024"), Error);
    CHECK_NOTHROW(check_kv(with_window({KvType::tq4u, KvType::tq4}, 1024), 4));
}
