#include "tests/support/spans.h"
#include "model/kv/window.h"
#include "tests/support/sanitized.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

// The window's vectors of a slot are nearly what its codes say of the same positions: so its bytes have one meaning everywhere.
void check_window_bytes(const Cache& cache, uint32_t slot, const SavedSlot& saved) {
    const PageLayout layout = window_layout(cache.page_layout());
    const uint32_t first = cache.position(slot) - saved.window_tokens;
    for (uint32_t layer = 0; layer < layout.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const uint32_t size = layout.vector(layer, side).words;
            if (size == 0) continue;
            StoredSide is = cache.stored(slot, layer, side);
            std::vector<uint32_t> words(size);
            std::vector<float> exact(is.codec.head_dim()), coded(exact.size());
            for (uint32_t head = 0; head < layout.kv_heads(); head++)
                for (uint32_t i = 0; i < saved.window_tokens; i++) {
                    const auto bytes = layout.codes(std::span(saved.window), saved.window_tokens, layer, side, head);
                    std::memcpy(words.data(), bytes.data() + size_t(i) * size * 4, size * 4);
                    decode_window(exact, words);
                    decode_stored(is.codec, coded, is.codes_of(head, first + i), is.scales_of(head, first + i));
                    double error = 0, squares = 0;
                    for (size_t c = 0; c < exact.size(); c++) {
                        error += std::pow(double(exact[c]) - coded[c], 2);
                        squares += std::pow(double(exact[c]), 2);
                    }
                    REQUIRE(error < 0.1 * squares);
                }
        }
}

} // namespace

KvOptions with_window(KvType k, KvType v, uint32_t tokens) {
    KvOptions kv{k, v};
    kv.window = tokens;
    return kv;
}

std::vector<KvOptions> all_types() {
    return {{KvType::tq4, KvType::tq4},
            {KvType::tq3t, KvType::tq3t},
            {KvType::q8_0, KvType::f16},
            with_window(KvType::tq4, KvType::tq3t, 40),
            with_window(KvType::q8_0, KvType::tq2, 5)};
}

ForwardOptions options_of(const KvOptions& kv, uint32_t slots) {
    return {.kv = kv, .context_size = spans_context, .slots = slots, .threads = 2, .batch_size = 32};
}

Logits run(Forward& forward, std::span<const Span> spans) {
    Logits all;
    std::span<const float> last;
    REQUIRE(forward.run(spans, [&](size_t span, uint32_t i, std::span<const float> logits) {
        REQUIRE(!all.contains({span, i}));
        all[{span, i}].assign(logits.begin(), logits.end());
        last = logits;
    }));
    const auto one_row = spans[0].logits == Span::Logits::last || spans[0].logits == Span::Logits::hidden;
    if (spans.size() == 1 && one_row) // still valid
        REQUIRE(std::ranges::equal(last, all[{0, uint32_t(spans[0].ids.size()) - 1}]));
    return all;
}

std::vector<float> run_one(Forward& forward, uint32_t slot, const Ids& ids, Span::Logits wanted) {
    const Span span{slot, ids, wanted};
    return run(forward, {&span, 1}).at({0, uint32_t(ids.size()) - 1});
}

bool same_stored(Cache& a, uint32_t slot_a, Cache& b, uint32_t slot_b) {
    const PageLayout layout = a.page_layout();
    if (a.save_slot(slot_a).state != b.save_slot(slot_b).state) return false;
    for (const KvSide side : {KvSide::key, KvSide::value})
        for (uint32_t layer = 0; layer < layout.layers(); layer++) {
            if (layout.vector(layer, side).words == 0) continue;
            const StoredSide of_a = a.stored(slot_a, layer, side), of_b = b.stored(slot_b, layer, side);
            if (of_a.codes != of_b.codes || of_a.scales != of_b.scales) return false;
        }
    return true;
}

bool same_beside(const Cache& a, uint32_t slot_a, const Cache& b, uint32_t slot_b) {
    const SavedSlot of_a = a.save_slot(slot_a), of_b = b.save_slot(slot_b);
    const uint32_t tokens = std::min(of_a.window_tokens, of_b.window_tokens);
    const PageLayout layout = window_layout(a.page_layout());
    std::vector<std::byte> last_a(layout.bytes(tokens)), last_b(last_a.size());
    copy_last_tokens(layout, last_a, tokens, of_a.window, of_a.window_tokens);
    copy_last_tokens(layout, last_b, tokens, of_b.window, of_b.window_tokens);
    return of_a.state == of_b.state && last_a == last_b && tokens + 1 >= std::min(of_a.tokens, a.shape().window_tokens);
}

void mix_pages(Cache& cache, std::mt19937& random) {
    for (int i = 0; i < 40; i++) {
        const uint32_t slot = uint32_t(random() % cache.shape().slots), room = std::min(cache.room(slot), 2 * page_tokens);
        if (random() % 3 == 0)
            cache.truncate(slot, 0);
        else
            cache.reserve(slot, room);
    }
    for (uint32_t slot = 0; slot < cache.shape().slots; slot++) cache.truncate(slot, 0);
}

void check_company(const MakeForward& make, const std::vector<KvOptions>& types) {
    for (const KvOptions& kv : types) {
        CAPTURE(describe(kv));
        constexpr uint32_t slots = 4;
        std::mt19937 random(1);
        const auto together = make(options_of(kv, slots)), alone = make(options_of(kv, slots));
        mix_pages(together->cache(), random);
        for (int round = 0; round < (test::sanitized ? 8 : 40); round++) {
            std::vector<Ids> ids;
            std::vector<Span> spans;
            ids.reserve(slots);
            for (uint32_t slot = 0; slot < slots; slot++) {
                constexpr uint32_t counts[] = {1, 1, 1, 2, 3, 5, 8, 9, 12, 13, 16, 31, 33, 64, 120};
                const uint32_t position = together->cache().position(slot), left = spans_context - position;
                if (random() % 4 == 0)
                    for (Forward* f : {together.get(), alone.get()}) f->cache().checkpoint(slot);
                if (left < 130 || random() % 8 == 0)
                    for (Forward* f : {together.get(), alone.get()}) f->cache().cut(slot, position - position / 3);
                else if (random() % 4 != 0) {
                    ids.push_back(random_ids(random, counts[random() % std::size(counts)]));
                    spans.push_back({slot, ids.back(), Span::Logits(random() % 4)});
                }
            }
            if (spans.empty()) continue;
            std::ranges::shuffle(spans, random);
            const Logits got = run(*together, spans);
            size_t wanted = 0;
            for (size_t i = 0; i < spans.size(); i++)
                for (const auto& [at, logits] : run(*alone, {&spans[i], 1})) {
                    REQUIRE(got.contains({i, at.second}));
                    REQUIRE(got.at({i, at.second}) == logits);
                    wanted++;
                }
            REQUIRE(got.size() == wanted);
            for (uint32_t slot = 0; slot < slots; slot++)
                REQUIRE(together->cache().position(slot) == alone->cache().position(slot));
        }
        for (uint32_t slot = 0; slot < slots; slot++) CHECK(same_stored(together->cache(), slot, alone->cache(), slot));
    }
}

void check_hidden(const MakeForward& make, uint32_t slots) {
    ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, slots), tapped = options;
    std::vector<float> normed;
    tapped.tap = [&](std::string_view name, std::span<const float> values) {
        if (name == "output_norm") normed.assign(values.begin(), values.end());
    };
    const auto plain = make(options), seen = make(tapped);
    std::mt19937 random(12);
    for (const uint32_t count : {1u, 2u, 7u, 1u, 30u, 64u, 65u, 100u, 1u}) {
        CAPTURE(count);
        const Ids ids = random_ids(random, count), others = random_ids(random, 1 + count % 40);
        std::vector<Span> spans{{0, ids, Span::Logits::hidden}};
        for (uint32_t slot = 1; slot < slots; slot++)
            spans.push_back({slot, others, slot % 2 == 1 ? Span::Logits::last : Span::Logits::none});
        const Logits got = run(*plain, spans);
        REQUIRE(got.size() == 1 + slots / 2);
        run_one(*seen, 0, ids);
        REQUIRE(normed.size() == 64);
        REQUIRE(got.at({0, count - 1}) == normed);
        for (uint32_t slot = 1; slot < slots; slot += 2) REQUIRE(got.at({slot, uint32_t(others.size()) - 1}).size() == 320);
    }
}

void check_fork(const MakeForward& make, const std::vector<KvOptions>& types) {
    for (const KvOptions& kv : types) {
        CAPTURE(describe(kv));
        std::mt19937 random(3);
        const auto forward = make(options_of(kv, 3)), serial = make(options_of(kv, 3)), original = make(options_of(kv, 3));
        const Ids prompt = random_ids(random, 300), more = random_ids(random, 40);
        for (const uint32_t wanted : {300u, 299u, 257u, 256u, 255u, 100u, 1u, 0u, 290u}) {
            CAPTURE(wanted);
            for (uint32_t slot = 0; slot < 3; slot++) forward->cache().truncate(slot, 0);
            for (Forward* f : {forward.get(), serial.get(), original.get()}) {
                f->truncate(0);
                for (const uint32_t end : {96u, 256u, 300u}) {
                    run_one(*f, 0, {prompt.begin() + f->position(), prompt.begin() + end});
                    f->cache().checkpoint(0);
                }
            }
            const uint32_t cut = serial->cache().cut(0, wanted);
            CHECK((cut == wanted || kv.window != 0));
            serial->cache().checkpoint(0);
            forward->cache().fork(0, 1, cut);
            forward->cache().fork(1, 2, cut);
            const Ids next = random_ids(random, 1);
            const Span spans[] = {{0, next}, {1, more}}; // both write to what they share
            const Logits both = run(*forward, spans);
            CHECK(both.at({0, 0}) == run_one(*original, 0, next));
            CHECK(both.at({1, 39}) == run_one(*serial, 0, more));
            serial->truncate(cut);
            const auto after = run_one(*forward, 2, next);
            CHECK(after == run_one(*serial, 0, next));
            CHECK(run_one(*forward, 0, more) == run_one(*original, 0, more));
        }
    }
}

void check_deterministic(const MakeForward& make, const std::vector<KvOptions>& types) {
    for (const KvOptions& kv : types) {
        CAPTURE(describe(kv));
        std::mt19937 random(4);
        ForwardOptions options = options_of(kv, 3);
        options.deterministic = true;
        const Ids ids = random_ids(random, 300);
        const auto whole = make(options);
        options.batch_size = 37;
        const auto divided = make(options);
        const Span all{0, ids, Span::Logits::all};
        const Logits expected = run(*whole, {&all, 1});
        for (uint32_t done[3] = {}; std::ranges::any_of(done, [](uint32_t n) { return n < 300; });) {
            std::vector<Span> spans;
            for (uint32_t slot = 0; slot < 3; slot++) {
                const uint32_t count = std::min(300 - done[slot], uint32_t(random() % 2 ? random() % 4 : random() % 70));
                if (count > 0) spans.push_back({slot, std::span(ids).subspan(done[slot], count), Span::Logits::all});
            }
            if (spans.empty()) continue;
            for (const auto& [at, logits] : run(*divided, spans))
                REQUIRE(logits == expected.at({0, done[spans[at.first].slot] + at.second}));
            for (const Span& span : spans) done[span.slot] += uint32_t(span.ids.size());
        }
        for (uint32_t slot = 0; slot < 3; slot++) CHECK(same_stored(whole->cache(), 0, divided->cache(), slot));
        for (Forward* f : {whole.get(), divided.get()}) f->truncate(0);
        const auto state = run_one(*whole, 0, ids, Span::Logits::hidden);
        run_one(*divided, 0, {ids.begin(), ids.begin() + 263}, Span::Logits::hidden);
        CHECK(run_one(*divided, 0, {ids.begin() + 263, ids.end()}, Span::Logits::hidden) == state);
    }
}

void check_restored(const MakeForward& make) {
    std::vector<KvOptions> all = storage_types();
    for (const uint32_t tokens : {5u, 64u}) all.push_back(with_window(KvType::tq4, KvType::tq3t, tokens));
    all.back().layers = parse_kv_layers("0=f16"); // a layer without a window
    for (const KvOptions& kv : all) {
        CAPTURE(describe(kv));
        std::mt19937 random(6);
        const auto a = make(options_of(kv, 3)), b = make(options_of(kv, 3));
        mix_pages(a->cache(), random);
        for (const uint32_t length : {300u, 1u, 256u}) {
            a->cache().truncate(2, 0);
            run_one(*a, 2, random_ids(random, length));
            const SavedSlot saved = a->cache().save_slot(2);
            b->cache().restore(1, length, pages_of_slot(a->cache(), 2), saved);
            CHECK(saved.window_tokens == (kv.window == 0 ? 0 : std::min(length, kept_window_tokens(kv.window))));
            check_window_bytes(a->cache(), 2, saved);
            CHECK(b->cache().save_slot(1).window == saved.window);
            CHECK(b->cache().save_slot(1).state == saved.state);
            CHECK(b->cache().position(1) == length);
            CHECK(same_stored(a->cache(), 2, b->cache(), 1));
            const Ids next = random_ids(random, 3);
            CHECK(run_one(*a, 2, next) == run_one(*b, 1, next));
        }
        const SavedSlot states{.tokens = 5, .state = a->cache().save_slot(2).state};
        CHECK_THROWS_WITH_AS(b->cache().restore(
                                 1, 5, [](uint32_t, std::span<std::byte>) { fail("no such file"); }, states),
                             "no such file", Error);
        CHECK(b->cache().position(1) == 0);
    }
}

void check_pages(const MakeForward& make) {
    ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 3);
    options.cache_tokens = 1000;
    const auto forward = make(options);
    CHECK(forward->cache().shape().pages == 4);
    std::mt19937 random(7);
    const Ids ids = random_ids(random, 513);
    const Span fitting[] = {{0, std::span(ids).first(100)}, {1, std::span(ids).first(20)}};
    std::vector<uint32_t> seen;
    bool any = false;
    const auto none = [&](size_t, uint32_t, std::span<const float>) { any = true; };
    CHECK_FALSE(forward->run(fitting, none, [&](uint32_t done, uint32_t total) {
        CHECK(total == 120);
        if (done > 0 && (seen.empty() || seen.back() != done)) seen.push_back(done); // also called within a block
        return done < 64;
    }));
    CHECK(seen == std::vector<uint32_t>{32, 64});
    CHECK(forward->cache().position(0) == 64);
    CHECK(forward->cache().position(1) == 0);
    const Span spans[] = {{1, std::span(ids).first(5)}, {2, ids}};
    CHECK_THROWS_WITH_AS(forward->run(spans, none), doctest::Contains("room for 1024 tokens"), OutOfMemory);
    CHECK(forward->cache().position(1) == 0);
    CHECK_FALSE(any);
    CHECK(run_one(*forward, 2, random_ids(random, 512)).size() == 320);
}

void check_nonfinite(const MakeForward& make) {
    const auto forward = make(options_of({KvType::f16, KvType::f16}, 2));
    std::mt19937 random(8);
    const Ids ids = random_ids(random, 20), next = random_ids(random, 2);
    const Span first[] = {{0, ids}, {1, ids}}, second[] = {{0, next}, {1, next}};
    run(*forward, first);
    forward->cache().restore(1, 20, [&](uint32_t position, std::span<std::byte> bytes) {
        pages_of_slot(forward->cache(), 0)(position, bytes);
        const auto values = forward->cache().page_layout().codes(bytes, 20, 1, KvSide::value, 2);
        const uint32_t infinity = 0x7c00;
        std::memcpy(values.data() + 7 * values.size() / 20, &infinity, sizeof infinity);
    });
    const auto ignored = [](size_t, uint32_t, std::span<const float>) {};
    CHECK_THROWS_WITH_AS(forward->run(second, ignored),
                         doctest::Contains("the value of layer 1, kv head 2, position 7 of slot 1"), NonFinite);
    CHECK(forward->cache().position(0) == 20);
    CHECK(forward->cache().position(1) == 20);
    const Span hidden{1, next, Span::Logits::hidden};
    CHECK_THROWS_AS(forward->run({&hidden, 1}, ignored), NonFinite);
    CHECK(forward->cache().position(1) == 20);
    CHECK(run(*forward, {second, 1}).size() == 1);
}

} // namespace tq
