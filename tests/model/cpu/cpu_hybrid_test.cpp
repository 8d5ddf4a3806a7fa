// Hybrids on the CPU: the bits of a sequence do not depend on its company, its slices, or on what its slot has been through.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/cpu/recurrent.h"
#include "model/cpu/stage.h"
#include "model/engine/session.h"
#include "model/reference/forward.h"
#include "model/reference/recurrent.h"
#include "model/stages/split_forward.h"
#include "tests/support/hybrids.h"
#include "tests/support/prompt_cache_files.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_model.h"
#include <algorithm>
#include <cmath>

using namespace tq;
using namespace tq::test;

namespace {

std::unique_ptr<Forward> on_cpu(const Hybrid& model, const ForwardOptions& options) {
    return make_cpu_forward(model.config, model.weights, options);
}

} // namespace

TEST_CASE("a hybrid's logits and states are the same bits whole, by 7, and one by one") {
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        const Hybrid model(type);
        const auto forward = on_cpu(model, hybrid_options(true));
        const auto ids = ids_of(1, 100);
        Logits first;
        std::vector<std::byte> state;
        for (const uint32_t step : {100u, 7u, 1u}) {
            CAPTURE(step);
            forward->cache().truncate(2, 0);
            const Logits logits = run(*forward, 2, ids, step);
            const SavedSlot saved = forward->cache().save_slot(2);
            CHECK(saved.state.size() == model.config.state_bytes());
            if (first.empty()) first = logits, state = saved.state;
            CHECK(logits == first);
            CHECK(saved.state == state);
        }
    }
}

TEST_CASE("a hybrid's sequence has in company the bits that it has alone") {
    for (const bool deterministic : {false, true})
        for (const char* type : hybrid_types) {
            CAPTURE(type);
            CAPTURE(deterministic);
            const Hybrid model(type);
            const auto together = on_cpu(model, hybrid_options(deterministic)),
                       alone = on_cpu(model, hybrid_options(deterministic));
            std::mt19937 random(4);
            for (int round = 0; round < 6; round++) {
                std::vector<std::vector<uint32_t>> ids;
                std::vector<Span> spans;
                for (uint32_t slot = 0; slot < 4; slot++) ids.push_back(random_ids(random, 1 + random() % (round < 3 ? 60 : 3)));
                for (uint32_t slot = 0; slot < 4; slot++) spans.push_back({slot, ids[slot], Span::Logits::last});
                Logits got(4);
                together->run(spans, [&](size_t span, uint32_t, std::span<const float> logits) {
                    got[span].assign(logits.begin(), logits.end());
                });
                for (uint32_t slot = 0; slot < 4; slot++) {
                    CAPTURE(slot);
                    alone->run(std::span(&spans[slot], 1), [&](size_t, uint32_t, std::span<const float> logits) {
                        CHECK(std::ranges::equal(logits, got[slot]));
                    });
                    CHECK(together->cache().save_slot(slot).state == alone->cache().save_slot(slot).state);
                }
            }
        }
}

TEST_CASE("a hybrid's fork, and what is saved and restored, goes on as the sequence itself") {
    KvOptions windowed{KvType::tq4, KvType::tq3t};
    windowed.window = 16;
    for (const KvOptions& kv : {KvOptions{KvType::f32, KvType::f32}, KvOptions{KvType::tq4, KvType::q8_0}, windowed})
        for (const char* type : hybrid_types) {
            CAPTURE(type);
            CAPTURE(describe(kv));
            const Hybrid model(type);
            const auto forward = on_cpu(model, hybrid_options(false, kv));
            Cache& cache = forward->cache();
            const auto ids = ids_of(2, 290), next = ids_of(3, 5);
            run(*forward, 1, ids, 290);
            run(*forward, 2, ids_of(9, 40), 40); // another state, which the fork replaces
            cache.fork(1, 2, 290);
            const SavedSlot saved = cache.save_slot(1);
            cache.restore(
                3, 290,
                [&](uint32_t at, std::span<std::byte> bytes) {
                    cache.read_page(cache.table(1)[at / page_tokens], std::min(page_tokens, 290 - at), bytes);
                },
                saved);
            const Logits want = run(*forward, 1, next, 5);
            CHECK(run(*forward, 2, next, 5) == want);
            CHECK(run(*forward, 3, next, 5) == want);
            cache.put_slot(1, saved); // back to where it was saved
            CHECK(cache.position(1) == 290);
            CHECK(run(*forward, 1, next, 5) == want);
            CHECK(cache.kept(1, 294) == 0);
            CHECK(cache.kept(1, 295) == 295);
            cache.put_slot(1, saved);
            cache.checkpoint(1);
            run(*forward, 1, std::span(ids).first(50), 50);
            cache.fork(1, 2, 290); // of a slot that is further
            CHECK(run(*forward, 2, next, 5) == want);
            CHECK(cache.cut(1, 300) == 290);
            CHECK(run(*forward, 1, next, 5) == want);
            CHECK(cache.cut(1, 200) == 0); // and a sequence that begins in the same slot has no state of another
            CHECK(run(*forward, 1, ids, 290) == run(*on_cpu(model, hybrid_options(false, kv)), 0, ids, 290));
        }
}

TEST_CASE("a run that is stopped within a block takes a hybrid's slot back to its checkpoint, and leaves others as they were") {
    const Hybrid model("qwen3_5");
    const auto forward = on_cpu(model, hybrid_options(false)), other = on_cpu(model, hybrid_options(false));
    const auto ids = ids_of(5, 70);
    for (const auto& f : {forward.get(), other.get()})
        for (const uint32_t slot : {0u, 1u}) run(*f, slot, ids, 70);
    const Span span{0, ids, Span::Logits::last};
    const auto stopped_run = [&] {
        int calls = 0;
        CHECK_FALSE(forward->run(
            std::span(&span, 1), [](size_t, uint32_t, std::span<const float>) {},
            [&](uint32_t, uint32_t) { return ++calls < 2; }));
    };
    forward->cache().checkpoint(0);
    stopped_run();
    CHECK(forward->cache().position(0) == 70);
    CHECK(forward->cache().save_slot(0).state == other->cache().save_slot(0).state);
    CHECK(run(*forward, 0, ids, 5) == run(*other, 0, ids, 5));
    stopped_run();
    CHECK(forward->cache().position(0) == 70);
    forward->truncate(0);
    run(*forward, 0, ids, 70); // without a checkpoint
    stopped_run();
    CHECK(forward->cache().position(0) == 0);
    CHECK(forward->cache().position(1) == 70);
    CHECK(run(*forward, 1, ids, 70) == run(*other, 1, ids, 70));
    other->truncate(0);
    CHECK(run(*forward, 0, ids, 70) == run(*other, 0, ids, 70));
}

TEST_CASE("a hybrid whose halves are on several stages has the bits and the states of one stage") {
    for (const char* type : hybrid_types)
        for (const bool deterministic : {false, true}) {
            CAPTURE(type);
            CAPTURE(deterministic);
            const Hybrid model(type);
            ForwardOptions options = hybrid_options(deterministic);
            options.threads = 2;
            const auto make = [&](const Cache& cache, const ForwardOptions& part) {
                return make_cpu_stage(model.config, model.weights, cache, part);
            };
            const std::array<MakeStage, 3> stages{make, make, make};
            const Split split({0, 1, 1, 0, 2, 2, 0}, 3);
            const auto whole = on_cpu(model, options);
            const auto divided = make_split_forward(model.config, model.weights, options, split, stages);
            const auto ids = ids_of(11, 300), next = ids_of(12, 6);
            for (const uint32_t slot : {0u, 3u}) CHECK(run(*divided, slot, ids, 300) == run(*whole, slot, ids, 300));
            CHECK(run(*divided, 3, next, 1) == run(*whole, 3, next, 1));
            const SavedSlot saved = divided->cache().save_slot(3);
            CHECK(saved.state == whole->cache().save_slot(3).state);
            divided->cache().fork(0, 1, 300);
            whole->cache().put_slot(3, SavedSlot(saved)); // of another implementation
            CHECK(run(*divided, 1, next, 6) == run(*whole, 0, next, 6));
            CHECK(run(*divided, 3, ids_of(13, 50), 50) == run(*whole, 3, ids_of(13, 50), 50));
        }
}

TEST_CASE("a session reuses a hybrid's slot up to a checkpoint, and runs again only what follows it") {
    const Hybrid model("qwen3_next");
    const auto forward = on_cpu(model, hybrid_options(true)), fresh = on_cpu(model, hybrid_options(true));
    Session session(*forward);
    const auto check = [&](const std::vector<uint32_t>& prompt, uint32_t reused, const std::vector<uint32_t>& marks = {}) {
        const auto logits = session.prefill(prompt, {}, marks);
        CHECK(session.timings().reused_tokens == reused);
        CHECK(session.timings().prompt_tokens == prompt.size() - reused);
        fresh->truncate(0);
        CHECK(std::ranges::equal(logits, fresh->run(prompt)));
        CHECK(forward->cache().save_slot(0).state == fresh->cache().save_slot(0).state);
    };
    std::vector<uint32_t> prompt = ids_of(6, 50);
    check(prompt, 0, {20, 45});
    prompt.push_back(7);
    check(prompt, 50);
    check(prompt, 50); // one token must be run for the logits
    prompt.back() = 8;
    check(prompt, 50);
    prompt.resize(47); // an answer is taken back
    check(prompt, 45);
    prompt[30] = 1;
    check(prompt, 20);
    check(prompt, 30); // where it branched off
    int calls = 0;
    prompt.insert(prompt.end(), 200, 9);
    CHECK(session.prefill(prompt, [&](uint32_t, uint32_t) { return ++calls < 2; }).empty());
    CHECK(session.cached_ids().size() == 47); // where the run began that was stopped
    calls = 0;
    CHECK(session.prefill(prompt, [&](uint32_t done, uint32_t) { return done < 100; }).empty());
    const auto done = uint32_t(session.cached_ids().size());
    CHECK(done >= 47 + 100);
    check(prompt, done);
    prompt[0]++;
    check(prompt, 0);
}

TEST_CASE("a prompt cache's file has a hybrid's states, and is refused where they are damaged") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const ForwardOptions options = hybrid_options(false);
    const auto forward = make_cpu_forward(model.config, model.weights, options);
    const CacheOwner owner = owner_of(model, options.kv);
    Session from(*forward);
    std::vector<uint32_t> prompt = ids_of(14, 280);
    from.prefill(prompt);
    const std::string bytes = file_bytes(owner, from);
    prompt.push_back(3);
    const auto logits = from.prefill(prompt);
    const std::vector<float> want(logits.begin(), logits.end());

    const auto other = make_cpu_forward(model.config, model.weights, options);
    Session to(*other);
    load(bytes, owner, to);
    CHECK(std::ranges::equal(to.prefill(prompt), want));
    CHECK(to.timings().reused_tokens == 280);

    std::string wrong = bytes;
    wrong.back() ^= 1;
    CHECK_THROWS_WITH_AS(load(wrong, owner, to), doctest::Contains("its recurrent states have a wrong checksum"), Error);
    for (const size_t end : {bytes.size() - 1, bytes.size() - model.config.state_bytes() - 24})
        CHECK_THROWS_WITH_AS(load(bytes.substr(0, end), owner, to), doctest::Contains("bytes of the recurrent states'"), Error);
}

TEST_CASE("the CPU's kernels of recurrent layers agree with the reference at every ratio of heads") {
    for (const auto& [keys, values, tiled] :
         {std::tuple(1u, 1u, true), {2u, 6u, true}, {2u, 6u, false}, {3u, 12u, false}, {16u, 32u, true}}) {
        CAPTURE(keys);
        CAPTURE(values);
        Hybrid model("qwen3_5", GgmlType::F32);
        Config config = model.config;
        config.recurrent->key_heads = keys;
        config.recurrent->value_heads = values;
        test::TemporaryFile path;
        test::write_random_model(path.path(), {config, GgmlType::F32, true, 7, {}});
        const ModelFile file = read_gguf(path.path());
        config = read_config(file);
        config.recurrent->tiled_heads = tiled;
        const Weights weights = read_weights(file, config);
        const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 100};
        const auto ids = ids_of(8, 60);
        const auto cpu = make_cpu_forward(config, weights, options),
                   reference = make_reference_forward(config, weights, options, {});
        const Logits want = run(*reference, 0, ids, 60);
        for (const uint32_t step : {60u, 1u}) {
            cpu->truncate(0);
            const Logits got = run(*cpu, 0, ids, step);
            for (size_t i = 0; i < ids.size(); i++) CHECK(relative_error(got[i], want[i]) < 2e-5);
        }
    }
}

TEST_CASE("a key whose squares exceed fp32 is NaN, which is reported, and not zero") {
    ThreadPool pool(1);
    const Recurrent shape{1, 1, 128, 4, true};
    std::vector<float> x(shape.channels(), 0.5f);
    std::fill_n(x.begin() + shape.key_size(), shape.key_size(), 3e19f);
    std::vector<float> on_cpu = x;
    ref::l2_norm(pool, x, shape, 1e-6f);
    cpu::l2_norm(pool, on_cpu, shape, 1e-6f);
    for (uint32_t i = 0; i < shape.channels(); i++) {
        const bool in_key = i / shape.key_size() == 1;
        CHECK(std::isnan(x[i]) == in_key);
        CHECK(std::isnan(on_cpu[i]) == in_key);
    }
}
