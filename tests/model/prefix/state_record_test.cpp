// States: what slots have beside their pages, as records on the disk.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/engine/speculation/speculation.h"
#include "model/prefix/page_store.h"
#include "model/prefix/state_record.h"
#include "tests/support/hybrids.h"
#include "tests/support/one_drafter.h"
#include "tests/support/prefix_sessions.h"
#include "tests/support/text.h"
#include <fstream>

using namespace tq;
using tq::test::contains;

namespace {

std::string refusal(std::span<const std::byte> content, uint32_t tokens, const StateLayout& layout) {
    try {
        read_state(content, tokens, layout);
        return "none";
    } catch (const Error& error) {
        return error.what();
    }
}

std::vector<std::filesystem::path> files_with(const std::filesystem::path& directory, const char* extension) {
    std::vector<std::filesystem::path> out;
    for (const auto& file : std::filesystem::recursive_directory_iterator(directory))
        if (file.path().extension() == extension) out.push_back(file.path());
    return out;
}

} // namespace

TEST_CASE("a state is read back as it was, and refused where it is another, cut, longer, or lacks a part of the window") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const auto forward =
        make_cpu_forward(model.config, model.weights, prefix_options(with_window(KvType::tq4, KvType::tq4, 64), false));
    forward->run(test::ids_of(1, 300));
    const StateLayout layout(forward->cache());
    const SavedSlot saved = forward->cache().save_slot(0);
    const std::vector<std::byte> content = state_content(saved);
    CHECK(content.size() == layout.max_bytes());
    const SavedSlot read = read_state(content, 300, layout);
    CHECK(read.tokens == 300);
    CHECK(read.window_tokens == saved.window_tokens);
    CHECK(read.window == saved.window);
    CHECK(read.state == saved.state);
    CHECK(refusal(content, 299, layout) == "it is the state after 300 tokens instead of 299");
    CHECK(refusal({}, 300, layout) == "0 bytes of a state");
    for (const size_t size : {size_t(8), size_t(100), content.size() - 1})
        CHECK(refusal(std::span(content).first(size), 300, layout) != "none");
    auto longer = content;
    longer.push_back({});
    CHECK(refusal(longer, 300, layout) != "none");
    for (const uint32_t tokens : {0u, 62u, 81u, 1u << 31, UINT32_MAX}) {
        auto wrong = content;
        std::memcpy(wrong.data() + 4, &tokens, 4);
        CHECK(contains(refusal(wrong, 300, layout), "instead of 63 to 80"));
    }
}

TEST_CASE("a state's head follows its page, and neither file is taken for the other") {
    const PageHead page = make_page_head({1, 2}, {3, 4}, test::ids_of(2, 256), 256), state = make_state_head(page);
    CHECK(state.parent == page.name);
    CHECK(state.name == name_of_state(page.name));
    CHECK(state.name != page.name);
    const std::vector<std::byte> content(10);
    for (const PageHead& head : {page, state}) {
        const PageHead read = read_page_head(page_head_bytes(head, content));
        CHECK((read.kind == head.kind && read.name == head.name && read.parent == head.parent && read.ids == head.ids));
        const auto entry = parse_entry(entry_of(head).file_name());
        REQUIRE(entry);
        CHECK(*entry == entry_of(head));
        PageHead other = head;
        other.kind = head.kind == RecordKind::page ? RecordKind::state : RecordKind::page;
        CHECK_THROWS_WITH_AS(read_page_head(page_head_bytes(other, content)), "its name is not that of its ids", Error);
    }
}

TEST_CASE("a damaged state is a miss, reported once and deleted, and the pages before it are still of use") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const PrefixPlace place{model, [&](const ForwardOptions& o) { return make_cpu_forward(model.config, model.weights, o); }, {}};
    const auto text = test::ids_of(5, 800);
    const auto forward = place.make(prefix_options(kv, false)), cold = place.make(prefix_options(kv, false));
    const auto wanted = copy_of(cold->run(text));
    const auto prefill = [&](uint32_t found, size_t warnings) {
        const auto cache = place.open(*forward, kv);
        forward->truncate(0);
        Session session(*forward, cache.get(), Reuse::cold);
        Sampler sampler({.temperature = 0}, {});
        GenerateOptions options;
        options.max_tokens = 1;
        options.marks = {300};
        const Generated got = session.generate(text, sampler, options);
        CHECK(got.timings.reused_tokens == found);
        CHECK(got.ids[0] == uint32_t(std::ranges::max_element(wanted) - wanted.begin()));
        cache->flush();
        const auto said = cache->take_warnings();
        CHECK(said.size() == warnings);
        for (const std::string& warning : said) CHECK(contains(warning, "a damaged state of the prefix cache"));
    };
    prefill(0, 0);
    prefill(768, 0);
    const auto states = files_with(place.directory.path(), ".state");
    REQUIRE(states.size() == 3); // of 256, 768 and all
    for (const auto& path : states) {
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(1200);
        file.put('x');
    }
    prefill(0, 2);
    prefill(768, 0);
    const auto pages = files_with(place.directory.path(), ".page");
    prune_pages(place.directory.path() / "prefix", 1); // states go before the pages that they follow
    CHECK(files_with(place.directory.path(), ".state").empty());
    CHECK(files_with(place.directory.path(), ".page").empty());
    CHECK(pages.size() == 4);
    prefill(0, 0);
}

TEST_CASE("states and pages make room for each other in memory, those used least recently first; two of each slot have room") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_5")));
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const PrefixPlace place{model, [&](const ForwardOptions& o) { return make_cpu_forward(model.config, model.weights, o); }, {}};
    ForwardOptions options = prefix_options(kv, false);
    options.slots = 4; // so that no page has to leave the device
    const auto forward = place.make(options);
    const uint64_t state = forward->cache().state_bytes();
    for (const uint64_t memory : {uint64_t(0), 8 * state}) {
        const auto cache = place.open(*forward, kv, memory, false);
        const auto found = [&](uint32_t seed) {
            forward->truncate(0);
            Session session(*forward, cache.get(), Reuse::cold);
            Sampler sampler({.temperature = 0}, {});
            session.generate(test::ids_of(seed, 300), sampler, {.max_tokens = 30});
            const auto statistics = cache->statistics();
            CHECK(statistics.memory_bytes <= 8 * StateLayout(forward->cache()).max_bytes());
            CHECK(statistics.memory_bytes >= statistics.memory_states * state);
            return session.timings().reused_tokens;
        };
        for (const uint32_t seed : {1u, 2u, 3u, 4u}) CHECK(found(seed) == 0);
        CHECK(cache->statistics().memory_states == 8); // after a page, and of the whole prompt
        CHECK(found(1) == 287);                        // what a prompt of 300 may reuse
        CHECK(found(5) == 0); // in the place of the states that were used least recently: 1's first, and 2's last
        CHECK(found(3) == 287);
        CHECK(found(1) == 287);
        CHECK(found(2) == 256);
        CHECK(cache->statistics().memory_states_found == 4);
    }
}

namespace {

// Drafts two right tokens and a wrong one, as it is told what the answer is.
class HalfRight final : public OneDrafter {
  public:
    HalfRight(const std::vector<uint32_t>& all) : all_(all) {}
    std::vector<uint32_t> propose(std::span<const uint32_t> ids, uint32_t max) override {
        std::vector<uint32_t> out;
        for (size_t i = ids.size(); i < ids.size() + 3 && i < all_.size() && out.size() < max; i++)
            out.push_back(i < ids.size() + 2 ? all_[i] : all_[i] ^ 1);
        return out;
    }

  private:
    const std::vector<uint32_t>& all_;
};

} // namespace

TEST_CASE("no state that is kept has tokens that were drafted and not verified, wherever an answer ends") {
    const SmallModel model;
    const KvOptions kv = with_window(KvType::tq4, KvType::tq4, 16);
    const PrefixPlace place{model, [&](const ForwardOptions& o) { return make_cpu_forward(model.config, model.weights, o); }, {}};
    ForwardOptions with_drafts = prefix_options(kv, true); // what is resumed has the bits of a cold run
    with_drafts.speculative = true;
    const auto forward = place.make(with_drafts), cold = place.make(with_drafts);
    const auto prompt = test::ids_of(8, 250);
    Sampler greedy({.temperature = 0}, {});
    GenerateOptions plain;
    plain.max_tokens = 40;
    std::vector<uint32_t> all = prompt;
    for (const uint32_t id : Session(*cold).generate(prompt, greedy, plain).ids) all.push_back(id);
    for (uint32_t stop_after = 1; stop_after < 30; stop_after++) {
        CAPTURE(stop_after);
        const auto cache = place.open(*forward, kv, 1 << 30, false);
        Speculation speculation(std::make_unique<HalfRight>(all), {.adaptive = false});
        GenerateOptions options;
        uint32_t tokens = 0;
        options.speculation = &speculation;
        options.on_token = [&](uint32_t) { tokens++; };
        options.interrupted = [&] { return tokens >= stop_after; };
        std::vector<uint32_t> known;
        {
            forward->truncate(0);
            Session session(*forward, cache.get(), Reuse::all);
            Sampler sampler({.temperature = 0}, {});
            const Generated got = session.generate(prompt, sampler, options);
            if (stop_after > 5) CHECK(got.timings.accepted_tokens > 0);
            known = session.cached_ids();
            REQUIRE(known.size() >= 250 + stop_after - 1);
        }
        known.push_back(7);
        forward->truncate(0);
        Session next(*forward, cache.get());
        CHECK(next.resume(known) == known.size() - 1); // the state after the last token
        const auto logits = copy_of(next.prefill(known));
        CHECK(next.timings().reused_tokens == known.size() - 1);
        cold->truncate(0);
        CHECK(logits == copy_of(cold->run(known)));
        CHECK(same_beside(forward->cache(), 0, cold->cache(), 0));
    }
}
