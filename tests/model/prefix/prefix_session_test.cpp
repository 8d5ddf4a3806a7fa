// Sessions on the CPU with a prefix cache: warm is cold, bit for bit.
#include "model/cpu/forward.h"
#include "model/prefix/cold.h"
#include "tests/support/hybrids.h"
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

TEST_CASE("with a window warm is cold, too, bit for bit") {
    const SmallModel model;
    const std::vector<KvOptions> all = windowed_types();
    check_warm_is_cold(model, on_cpu(model), all, {300, 310, 301, 700, 290, 258, 620, 540}, false);
    check_warm_is_cold(model, on_cpu(model), all, {300, 310, 301, 700, 290, 258}, true);
    check_warm_is_cold(model, on_cpu(model), {all[0]}, {300, 310, 301, 700, 290, 258, 321, 385, 641}, false, 64);
    check_warm_is_cold(model, on_cpu(model), {all[0]}, {300, 310, 301, 700, 780, 513}, false, 8); // slices are not evened
}

TEST_CASE("a hybrid's warm run is cold, bit for bit, with a window, too") {
    for (const char* type : test::hybrid_types) {
        CAPTURE(type);
        const SmallModel model(test::small_config(*find_model_type(type)));
        const std::vector<KvOptions> all{{KvType::tq4, KvType::tq4}, with_window(KvType::tq4, KvType::tq3t, 64)};
        check_warm_is_cold(model, on_cpu(model), all, {300, 310, 301, 700, 290, 258, 620, 540}, false);
        check_warm_is_cold(model, on_cpu(model), all, {300, 310, 301, 700, 290, 258}, true);
        check_warm_is_cold(model, on_cpu(model), {all[0]}, {300, 310, 301, 700, 290, 258, 321, 385, 641}, false, 64);
        check_warm_is_cold(model, on_cpu(model), {all[0]}, {300, 310, 301, 700, 780, 513}, false, 8);
    }
}

TEST_CASE("a slot's own tokens stay where its window survives, or up to a checkpoint") {
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
        CHECK(reused(160) == 159); // 11 tokens are taken back, and the window is there
        CHECK(reused(130) == 0);   // 31 tokens
        CHECK(reused(200) == 130);
        CHECK(reused(135) == 130);
        CHECK(reused(20) == 0);
        CHECK(reused(10) == 9); // the window has all there is
    }
}

TEST_CASE("a long conversation of a hybrid runs again only what follows the nearest state: as many tokens as are said here") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const PrefixPlace place{model, on_cpu(model), {}};
    ForwardOptions options = prefix_options(kv, false, 512);
    options.context_size = 6900;
    std::mt19937 random(9);
    const Ids text = random_ids(random, 6800), other = random_ids(random, 600);
    const auto spliced = [&](uint32_t kept, uint32_t end, uint32_t words = 0) { // another text from there on
        Ids prompt(text.begin(), text.begin() + kept);
        prompt.insert(prompt.end(), other.begin() + words, other.begin() + ptrdiff_t(words + end - kept));
        return prompt;
    };
    const auto whole = [&](uint32_t end) { return Ids(text.begin(), text.begin() + end); };
    // Requests of agents, with the tokens of the prompt that each finds: in the slot of the last prompt, in host memory where
    // other conversations were in between, and on the disk after a restart.
    struct Step {
        std::string what;
        Ids prompt;
        std::vector<uint32_t> marks;
        uint32_t slot, memory, disk;
    };
    Ids changed = whole(6000);
    changed[0] = (changed[0] + 1) % 300;
    const std::vector<Step> steps{
        {"a first prompt", whole(6000), {1000, 5700, 5950}, 0, 0, 0},
        {"a tool's result", whole(6300), {1000, 6000, 6280}, 6000, 6000, 6000},
        {"another answer to it", spliced(6280, 6350), {1000, 6000, 6300}, 6280, 6280, 6144},
        {"an edit 500 tokens before the end", spliced(5800, 6300), {1000, 5750, 6280}, 5700, 5700, 5376},
        {"the same edit in other words", spliced(5800, 6320, 9), {1000, 5750, 6280}, 5800, 5800, 5632},
        {"a new conversation after the system prompt", spliced(1000, 1300), {1000, 1280}, 1000, 1000, 768},
        {"a changed first line", changed, {1000, 5700, 5950}, 0, 0, 0},
        {"and the first conversation again", whole(6000), {1000, 5700, 5950}, 5888, 5888, 5888},
    };
    struct Cold {
        uint32_t best;
        std::vector<std::byte> state;
    };
    std::vector<Cold> cold;
    for (const Step& step : steps) {
        const auto forward = place.make(options);
        const auto logits = forward->run(step.prompt);
        cold.push_back({uint32_t(std::ranges::max_element(logits) - logits.begin()), forward->cache().save_slot(0).state});
    }
    for (const std::string where : {"slot", "memory", "disk"}) {
        CAPTURE(where);
        const bool in_slot = where == "slot", on_disk = where == "disk";
        const auto forward = place.make(options);
        const PrefixPlace own{model, on_cpu(model), {}};
        auto cache = own.open(*forward, kv, on_disk ? 0 : uint64_t(1) << 30, on_disk);
        Session session(*forward, cache.get(), Reuse::cold);
        for (size_t i = 0; i < steps.size(); i++) {
            const Step& step = steps[i];
            CAPTURE(step.what);
            std::optional<Session> fresh;
            if (!in_slot) {
                forward->truncate(0);
                if (on_disk) {
                    cache->flush();
                    cache.reset();
                    cache = own.open(*forward, kv);
                }
                fresh.emplace(*forward, cache.get(), Reuse::cold);
            }
            Session& runs = in_slot ? session : *fresh;
            Sampler sampler({.temperature = 0}, {});
            GenerateOptions generate;
            generate.max_tokens = 1;
            generate.marks = step.marks;
            const Generated got = runs.generate(step.prompt, sampler, generate);
            CHECK(got.timings.reused_tokens == (in_slot ? step.slot : on_disk ? step.disk : step.memory));
            CHECK(got.timings.reused_tokens + got.timings.prompt_tokens == step.prompt.size());
            CHECK(got.ids.at(0) == cold[i].best);
            CHECK(forward->cache().save_slot(0).state == cold[i].state);
        }
        CHECK(cache->statistics().memory_states < 44);
    }
}

TEST_CASE("a slot is not cut to the position with which a window begins that was put back at a greater length") {
    const SmallModel model;
    const auto forward = on_cpu(model)(prefix_options(with_window(KvType::tq4, KvType::tq4, 64), false));
    Cache& cache = forward->cache();
    std::mt19937 random(5);
    const Ids text = random_ids(random, 400);
    const uint32_t begins = 200, length = begins + kept_window_tokens(64);
    const auto run_to = [&](uint32_t end) { forward->run(std::span(text).first(end).subspan(forward->position())); };
    run_to(length);
    cache.checkpoint(0);
    run_to(length + 30);
    CHECK(cache.cut(0, length) == length); // from the checkpoint
    CHECK(cache.window(0).begin == begins);
    run_to(length + 60);
    CHECK(cache.kept(0, begins) == 0);
    CHECK(cache.kept(0, length + 50) == length + 50);
    CHECK(cache.kept(0, length + 10) == length);
}
