// Sessions on the CPU with a prefix cache: warm is cold, bit for bit.
#include "model/cpu/forward.h"
#include "model/prefix/cold.h"
#include "tests/support/prefix_sessions.h"
#include "tests/support/prompt_cache_files.h"
#include <atomic>
#include <thread>

using namespace tq;

namespace {

MakeForward on_cpu(const SmallModel& model) {
    return [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); };
}

std::vector<KvOptions> every_type() {
    std::vector<KvOptions> all = storage_types();
    for (const auto& type : kv_types) all.push_back({type.type, values_beside(type.type)});
    all.push_back({KvType::tq3, KvType::bf16, RotationKind::haar, ScaleRule::norm});
    return all;
}

} // namespace

TEST_CASE("warm is cold with every cache type") {
    const SmallModel model;
    check_warm_is_cold(model, on_cpu(model), every_type(), {300, 310, 301, 700}, false);
}

TEST_CASE("warm is cold at every length of the last slice") {
    const SmallModel model;
    std::vector<uint32_t> lengths;
    for (uint32_t n = 250; n < 300; n++) lengths.push_back(n);
    for (const uint32_t n : {1u, 2u, 511u, 512u, 513u, 256u, 257u, 33u, 800u}) lengths.push_back(n);
    const std::vector<KvOptions> one{{KvType::tq4, KvType::tq4}};
    check_warm_is_cold(model, on_cpu(model), one, lengths, false);
    check_warm_is_cold(model, on_cpu(model), one, lengths, false, 10); // slices that depend on their length
    check_warm_is_cold(model, on_cpu(model), one, lengths, false, 8);
    check_warm_is_cold(model, on_cpu(model), one, lengths, true);
}

TEST_CASE("what is reused of a prompt is as much as the kernels allow") {
    const SmallModel model;
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const PrefixPlace place{model, on_cpu(model), {}};
    std::mt19937 random(4);
    const Ids text = random_ids(random, 800);
    const auto forward = place.make(prefix_options(kv, false)), exact = place.make(prefix_options(kv, true));
    for (Forward* f : {forward.get(), exact.get()}) {
        const auto cache = place.open(*f, kv);
        for (const auto& [length, expected] : std::vector<std::pair<uint32_t, uint32_t>>{
                 {304, 0}, {304, f == exact.get() ? 303u : 291u}, {320, f == exact.get() ? 304u : 304u}}) {
            Session session(*f, cache.get(), Reuse::cold);
            f->truncate(0);
            Sampler sampler({.temperature = 0}, {});
            GenerateOptions options;
            options.max_tokens = 3;
            session.generate(std::span(text).first(length), sampler, options);
            CHECK(session.timings().reused_tokens == expected);
        }
    }
}

TEST_CASE("a conversation that is resumed goes on with its own tokens") {
    const SmallModel model;
    const KvOptions kv{KvType::tq3, KvType::tq4};
    const PrefixPlace place{model, on_cpu(model), {}};
    std::mt19937 random(4);
    const auto a = place.make(prefix_options(kv, false)), b = place.make(prefix_options(kv, false));
    Ids all = random_ids(random, 250);
    {
        const auto cache = place.open(*a, kv);
        Session session(*a, cache.get());
        Sampler sampler({.temperature = 0}, {});
        GenerateOptions options;
        options.max_tokens = 60;
        const Generated generated = session.generate(all, sampler, options);
        all = session.cached_ids();
        REQUIRE(all.size() > 300);
    }
    const auto cache = place.open(*b, kv);
    Session session(*b, cache.get());
    Ids next = all;
    next.push_back(5);
    CHECK(session.resume(next) == all.size());
    CHECK(same_stored(a->cache(), 0, b->cache(), 0));
    const auto more = random_ids(random, 20);
    next.insert(next.end(), more.begin(), more.end());
    const auto logits = copy_of(session.prefill(next));
    CHECK(session.timings().reused_tokens == all.size());
    Session same(*a); // it has not been restored
    a->truncate(uint32_t(all.size()));
    CHECK(logits == copy_of(a->run(std::span(next).subspan(all.size()))));
}

TEST_CASE("a long prompt is kept while it is run, in the blocks of one run") {
    const SmallModel model;
    const KvOptions kv{KvType::q4_0, KvType::q4_0};
    const PrefixPlace place{model, on_cpu(model), {}};
    std::mt19937 random(4);
    const Ids text = random_ids(random, 6000);
    ForwardOptions options = prefix_options(kv, false, 48);
    options.context_size = 6100;
    const auto cold = place.make(options), stopped = place.make(options), warm = place.make(options);
    {
        const auto cache = place.open(*stopped, kv);
        Session session(*stopped, cache.get(), Reuse::cold);
        uint32_t last = 0;
        const auto logits = session.prefill(text, [&](uint32_t done, uint32_t total) {
            CHECK(total == 6000);
            CHECK(done >= last);
            last = done;
            return done < 3000;
        });
        CHECK(logits.empty());
        CHECK(session.cached_ids().size() == last);
    }
    const auto cache = place.open(*warm, kv);
    Session session(*warm, cache.get(), Reuse::cold);
    const auto logits = copy_of(session.prefill(text));
    CHECK(session.timings().reused_tokens >= 2000);
    CHECK(logits == copy_of(cold->run(text)));
}

TEST_CASE("whatever decides the bits of a cache is part of its owner's name") {
    const SmallModel model;
    const CacheOwner owner{model.config, {KvType::tq4, KvType::tq4}, "a fingerprint", "a model", "a device"};
    const PageName name = owner_name(owner_texts(owner));
    const auto other = [&](auto change) {
        CacheOwner changed = owner;
        change(changed);
        return owner_name(owner_texts(changed));
    };
    CHECK(other([](CacheOwner& o) { o.model = "the same by another name"; }) == name);
    CHECK(other([](CacheOwner& o) { o.fingerprint = "another"; }) != name);
    CHECK(other([](CacheOwner& o) { o.computation = "another"; }) != name);
    CHECK(other([](CacheOwner& o) { o.kv.v = KvType::tq3; }) != name);
    CHECK(other([](CacheOwner& o) { o.kv.layers = parse_kv_layers("1=q8_0"); }) != name);
    CHECK(other([](CacheOwner& o) { o.kv.rotation = RotationKind::haar; }) != name);
    CHECK(other([](CacheOwner& o) { o.kv.scale_rule = ScaleRule::norm; }) != name);
    CHECK(other([](CacheOwner& o) { o.kv.conditioning = parse_key_conditioning("none"); }) != name);
    const auto measured = [&](uint32_t seed) { // by default: machines that find other keys share nothing
        return other([&](CacheOwner& o) { o.kv.conditioning.calibration = random_calibration(o.config, seed).calibration; });
    };
    CHECK(measured(1) != name);
    CHECK(measured(1) == measured(1));
    CHECK(measured(1) != measured(2));
    CHECK(other([](CacheOwner& o) { o.config.rope_theta = 5e5f; }) != name);
    CHECK(other([](CacheOwner& o) { o.config.rope_factors = {2.0f}; }) != name);
    CHECK(other([](CacheOwner& o) { o.config.num_key_value_heads = 2; }) != name);
}

TEST_CASE("who waits for another machine can stop that, and what is resumed waits for none") {
    const SmallModel model;
    const KvOptions kv{KvType::tq4, KvType::tq4};
    std::mt19937 random(4);
    const Ids text = random_ids(random, 800);
    const auto forward = on_cpu(model)(prefix_options(kv, false));
    std::atomic<int> asked = 0;
    PrefixCache::Options options;
    options.remote.compute = [&](const PageOrder&, const PageReceiver& receiver) {
        for (asked++; receiver.keep_going();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    options.remote.first_page_time = std::chrono::seconds(100);
    const OwnerTexts owner = owner_texts({model.config, kv, "a fingerprint", "a model", forward->computation()});
    PrefixCache cache(*forward, owner, options);
    Session session(*forward, &cache, Reuse::cold);
    CHECK(session.resume(text) == 0);
    CHECK(asked == 0);
    const auto began = std::chrono::steady_clock::now();
    CHECK(session.prefill(text, [](uint32_t, uint32_t) { return false; }).empty());
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
    CHECK(asked == 1);
    CHECK(cache.take_warnings().empty());
}

TEST_CASE("with a window, a prompt whose beginning is found goes on as from the codes alone, and ends with a full window") {
    const SmallModel model;
    for (const uint32_t length : {310u, 400u, 620u}) check_found_with_window(model, on_cpu(model), length);
}

TEST_CASE("a slot's own tokens stay where its window survives, or is filled again; deterministically only where it survives") {
    const SmallModel model;
    const KvOptions kv = with_window(KvType::tq4, KvType::tq4, 16);
    std::mt19937 random(4);
    const Ids text = random_ids(random, 200);
    for (const bool deterministic : {false, true}) {
        const auto forward = on_cpu(model)(prefix_options(kv, deterministic)),
                   cold = on_cpu(model)(prefix_options(kv, deterministic));
        Session session(*forward);
        const auto reused = [&](uint32_t tokens) {
            const auto logits = copy_of(session.prefill(std::span(text).first(tokens)));
            cold->truncate(0);
            if (deterministic) CHECK(logits == copy_of(cold->run(std::span(text).first(tokens))));
            return session.timings().reused_tokens;
        };
        CHECK(reused(150) == 0);
        CHECK(reused(170) == 150);
        CHECK(reused(160) == 159);                            // 11 tokens are taken back, and the window is there
        CHECK(reused(130) == (deterministic ? 0 : 130 - 16)); // 31 tokens
        CHECK(reused(200) == 130);
        CHECK(reused(20) == (deterministic ? 0 : 4));
        CHECK(reused(10) == (deterministic ? 9 : 0));
    }
}
