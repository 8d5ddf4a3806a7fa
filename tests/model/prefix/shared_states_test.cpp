// States in a store that machines share: what one has run of a hybrid's prompt, or with a window, another goes on with.
#include "model/cpu/forward.h"
#include "tests/support/fake_store.h"
#include "tests/support/hybrids.h"
#include "tests/support/prefix_sessions.h"

using namespace tq;
using namespace std::chrono_literals;
using test::Shelf;

namespace {

struct Setup {
    const SmallModel& model;
    KvOptions kv;

    MakeForward make() const {
        return [this](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); };
    }
};

// A machine with a prefix cache, and sessions that have nothing but that.
struct Machine {
    std::unique_ptr<Forward> forward;
    std::unique_ptr<PrefixCache> cache;

    Machine(const Setup& setup, const std::shared_ptr<Shelf>& shelf, uint64_t memory = 1 << 28) {
        ForwardOptions options = prefix_options(setup.kv, false);
        options.context_size = 3500;
        forward = setup.make()(options);
        PrefixCache::Options prefix{.memory_bytes = memory};
        prefix.shared = test::on(shelf);
        const OwnerTexts owner =
            prefix_owner_texts({setup.model.config, setup.kv, "a fingerprint", "a model", forward->computation()});
        cache = std::make_unique<PrefixCache>(*forward, owner, prefix);
    }
    // Returns the tokens that were found.
    uint32_t run(const Ids& prompt, const std::vector<uint32_t>& marks = {}) {
        forward->truncate(0);
        Session session(*forward, cache.get(), Reuse::cold);
        Sampler sampler({.temperature = 0}, {});
        GenerateOptions options;
        options.max_tokens = 3;
        options.marks = marks;
        session.generate(prompt, sampler, options);
        cache->flush();
        return session.timings().reused_tokens;
    }
    std::vector<float> logits(const Ids& prompt) {
        forward->truncate(0);
        Session session(*forward, cache.get(), Reuse::cold);
        return copy_of(session.prefill(prompt));
    }
};

} // namespace

TEST_CASE("what one machine has run of a hybrid's prompt, or with a window, another goes on with, to the bit") {
    const SmallModel hybrid(test::small_config(*find_model_type("qwen3_5"))), plain;
    for (const Setup& setup :
         {Setup{hybrid, {KvType::tq4, KvType::tq4}}, Setup{plain, with_window(KvType::tq4, KvType::tq4, 64)}}) {
        CAPTURE(describe(setup.kv));
        const auto shelf = std::make_shared<Shelf>();
        Machine a(setup, shelf), b(setup, shelf), c(setup, shelf);
        std::mt19937 random(3);
        const Ids text = random_ids(random, 3300);
        Ids branch(text.begin(), text.begin() + 1100), other = random_ids(random, 300);
        branch.insert(branch.end(), other.begin(), other.end());
        CHECK(a.run(text, {1100, 3200}) == 0);
        CHECK(b.run(text) == 3072);
        CHECK(b.cache->statistics().shared_states_found == 1);
        CHECK(b.cache->statistics().shared_tokens == 3072);
        CHECK(c.run(branch, {1100}) == 1024); // the state before the mark
        CHECK(c.cache->statistics().shared_tokens == 1024);
        Machine d(setup, shelf), cold(setup, std::make_shared<Shelf>());
        CHECK(d.logits(text) == cold.logits(text));
        CHECK(d.cache->statistics().shared_states_found == 1);
        for (const Machine* machine : {&a, &b, &c, &d}) CHECK(machine->cache->take_warnings().empty());
        Machine none(setup, shelf, 0); // memory for two states of each slot, and none for pages
        CHECK(none.run(text) == 3072);
        CHECK(none.cache->statistics().memory_pages == 0);
    }
}

TEST_CASE("a state in the store that is none of its page is a miss") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const Setup setup{model, {KvType::tq4, KvType::tq4}};
    const auto shelf = std::make_shared<Shelf>();
    std::mt19937 random(3);
    const Ids text = random_ids(random, 700);
    Machine a(setup, shelf), b(setup, shelf);
    CHECK(a.run(text) == 0);
    uint32_t states = 0;
    for (auto& [name, bytes] : shelf->pages)
        if (name.ends_with(".state")) {
            bytes[bytes.size() / 2] ^= std::byte(1);
            states++;
        }
    CHECK(states == 1);
    CHECK(b.run(text) == 0);
    CHECK(b.cache->statistics().shared->rejected == 1);
    CHECK(b.cache->take_warnings().size() == 1);
}
