// Attention and the storing of keys and values on the CPU path against the reference, on every instruction set of this machine.
#include "model/cpu/kernels.h"
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tests/support/cpu_targets.h"
#include "tests/support/golden.h"
#include "tools/check/conformance/vectors/random.h"

using namespace tq;
using conformance::Random;
using test::on_each_target;

namespace {

struct Shape {
    KvType k, v;
    uint32_t head_dim, group, kv_heads, position, tokens;
    float deviation = 1; // of the scores
    WindowPositions window = {};
};

// Stores random codes at positions first .. end - 1, which the window does not have.
void store_codes(const host::LayerCache& cache, KvSide which, uint32_t first, uint32_t end, Random& random) {
    const host::CacheSide& side = cache.side(which);
    for (const host::Row row : host::make_rows(1, first, end - first))
        for (uint32_t head = 0; head < side.heads; head++) {
            const host::Place place = cache.place(row);
            encode(side.codec, side.codes(place, head), side.scales(place, head), random.normals(side.head_dim()));
            if (place.token < cache.first_tokens()) // another vector, so that reading the codes is noticed
                encode_window(side.codec, side.sink(place, head), random.normals(side.head_dim()));
        }
}

// Returns a cache of one layer with `capacity` tokens in slot 1, whose pages are not consecutive.
std::unique_ptr<host::HostCache> random_cache(ThreadPool& pool, const Shape& s, uint32_t capacity, Random& random) {
    KvOptions kv;
    kv.k = s.k;
    kv.v = s.v;
    const host::LayerCodecs codecs{kv.codec(5, 6, KvSide::key, s.head_dim), kv.codec(5, 6, KvSide::value, s.head_dim)};
    const Cache::Shape shape{2, 2 * pages_of(capacity) + 2, capacity + 256, s.window.tokens};
    auto all = std::make_unique<host::HostCache>(shape, s.kv_heads, std::vector{codecs}, s.tokens);
    for (uint32_t room = 0; room < capacity; room += page_tokens)
        for (const uint32_t slot : {0u, 1u}) all->reserve(slot, std::min(room + page_tokens, capacity));
    if (s.window.begin != 0) { // nothing is left of the tokens before it
        const auto table = all->table(1).first(pages_of(s.window.begin));
        const std::vector<uint32_t> pages(table.begin(), table.end());
        all->adopt(1, pages, s.window.begin, std::make_shared<SavedSlot>(SavedSlot{s.window.begin}));
        all->reserve(1, capacity - s.window.begin);
    }
    CHECK(all->window(1).begin == s.window.begin);
    const host::LayerCache& cache = all->layers()[0];
    const uint32_t end = s.position + s.tokens;
    for (const KvSide side : {KvSide::key, KvSide::value}) { // past the length too, where nothing may be read
        store_codes(cache, side, 0, capacity, random);
        if (!cache.window) continue;
        const uint32_t first = std::max(s.window.begin, end - std::min(end, cache.window->k.block_tokens));
        const std::vector<float> x = random.normals(size_t(end - first) * s.kv_heads * s.head_dim);
        ref::kv_append(pool, cache, side, x, {}, {{}, host::make_rows(1, first, end - first)}, 0);
        store_codes(cache, side, 0, end, random); // other codes than the window's, so that reading them is noticed
    }
    return all;
}

void check_attention(ThreadPool& pool, const Shape& s, Random& random) {
    const std::string k = name(s.k), v = name(s.v);
    CAPTURE(k);
    CAPTURE(v);
    CAPTURE(s.head_dim);
    CAPTURE(s.group);
    CAPTURE(s.position);
    CAPTURE(s.tokens);
    const uint32_t heads = s.group * s.kv_heads;
    const auto all = random_cache(pool, s, s.position + s.tokens + 3, random);
    const host::LayerCache& cache = all->layers()[0];
    const std::vector<host::Row> rows = host::make_rows(1, s.position, s.tokens);
    const Rotation& rotation = cache.k.codec.rotation;
    const float scale = s.deviation / std::sqrt(float(s.head_dim)) / (is_turboquant(s.k) ? std::sqrt(rotation.gain()) : 1);
    const auto q = random.normals(size_t(s.tokens) * heads * s.head_dim, scale);
    host::PageScores pages;
    pages.resize(rows, heads, true);
    for (float& score : pages.values) score = random.normal() * s.deviation;
    std::vector<float> want(q.size());
    ref::attention(pool, want, q, pages, cache, heads, rows);
    const auto check = [&](cpu::AttentionKernel kernel) {
        CAPTURE(int(kernel));
        std::vector<float> got(q.size());
        cpu::attention(pool, got, q, pages, cache, heads, rows, kernel);
        CHECK(relative_error(got, want) < 1e-5 * s.deviation);
        const size_t cols = size_t(heads) * s.head_dim, parts[] = {0, s.tokens / 2, s.tokens}; // in company as alone
        for (size_t i = 0; i < 2; i++) {
            const size_t first = parts[i], count = parts[i + 1] - first;
            std::vector<float> part(count * cols);
            host::PageScores of_part;
            of_part.resize(std::span(rows).subspan(first, count), heads, true);
            for (size_t query = 0; query < count * heads; query++)
                std::ranges::copy(pages.of(first * heads + query).first(of_part.pages), of_part.of(query).begin());
            cpu::attention(pool, part, std::span(q).subspan(first * cols, count * cols), of_part, cache, heads,
                           std::span(rows).subspan(first, count), kernel);
            CHECK(std::ranges::equal(part, std::span(got).subspan(first * cols, count * cols)));
        }
        return got;
    };
    on_each_target([&] { // in a block as alone
        const std::vector<float> alone = check(cpu::AttentionKernel::rows);
        CHECK(check(cpu::AttentionKernel::blocks) == alone);
        CHECK(check(cpu::AttentionKernel::fastest) == alone);
    });
}

} // namespace

TEST_CASE("queries, and keys and values on their way into the cache") {
    ThreadPool pool(3);
    Random random{5};
    for (const uint32_t d : {64u, 128u, 256u}) {
        Config config{};
        config.head_dim = d;
        config.rope_theta = 1e6f;
        const std::vector<float> table = rope_table(config, 40);
        const auto w = random.normals(d), q = random.normals(11 * 6 * d), k = random.normals(11 * 2 * d),
                   v = random.normals(11 * 2 * d);
        const std::vector<host::Row> rows = host::make_rows(1, 29, 11);
        const Rotation rotation = make_rotation(RotationKind::wht, 3, KvSide::key, d);
        on_each_target([&] {
            for (const Rotation* r : {&rotation, static_cast<const Rotation*>(nullptr)}) {
                std::vector<float> want = q, got = q;
                ref::q_norm_rope(pool, want, w, {table, rows}, 6, 1e-6f, 0.3f, r);
                cpu::q_norm_rope(pool, got, w, {table, rows}, 6, 1e-6f, 0.3f, r);
                CHECK(relative_error(got, want) < 1e-6);
            }
            const Shape s{KvType::f32, KvType::tq4, d, 1, 2, 0, 0};
            Random same{6};
            const auto right = random_cache(pool, s, 40, same), fast = random_cache(pool, s, 40, same = Random{6});
            const host::LayerCache &want = right->layers()[0], &got = fast->layers()[0];
            ref::kv_append(pool, want, KvSide::key, k, w, {table, rows}, 1e-6f);
            ref::kv_append(pool, want, KvSide::value, v, {}, {table, rows}, 1e-6f);
            cpu::kv_append(pool, got, k, v, w, {table, rows}, 1e-6f);
            std::vector<float> want_key(d), got_key(d);
            for (uint32_t head = 0; head < 2; head++)
                for (const host::Row row : host::make_rows(1, 0, 40)) {
                    const host::Place at = want.place(row);
                    decode_stored(want.k.codec, want_key, want.k.codes(at, head), {});
                    decode_stored(got.k.codec, got_key, got.k.codes(at, head), {});
                    CHECK(relative_error(got_key, want_key) < 1e-6);
                    CHECK(std::ranges::equal(got.v.codes(at, head), want.v.codes(at, head)));
                    CHECK(std::ranges::equal(got.v.scales(at, head), want.v.scales(at, head)));
                }
        });
    }
}

TEST_CASE("the window has the same bits as the reference's") {
    ThreadPool pool(2);
    Random random{6};
    const Shape s{KvType::tq4, KvType::tq4, 128, 1, 1, 0, 0, 1, {8}};
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    std::vector<float> v = random.normals(6 * 128);
    const std::vector<float> k(v.size(), 0.5f), w(128, 1.0f), table(6 * 128, 1.0f);
    v[0] = nan;
    v[128] = std::bit_cast<float>(0xffc12345u); // a NaN with a payload
    v[2 * 128] = -infinity;
    for (size_t i = 3 * 128; i < 4 * 128; i++) v[i] *= 1e-5f;  // subnormal in fp16
    for (size_t i = 4 * 128; i < 5 * 128; i++) v[i] *= 1e-30f; // 0 there
    for (size_t i = 5 * 128; i < 6 * 128; i++) v[i] *= 1e9f;   // infinite there
    const std::vector<host::Row> rows = host::make_rows(1, 0, 6);
    on_each_target([&] {
        Random same{6};
        const auto right = random_cache(pool, s, 40, same), fast = random_cache(pool, s, 40, same = Random{6});
        const host::LayerCache &want = right->layers()[0], &got = fast->layers()[0];
        ref::kv_append(pool, want, KvSide::value, v, {}, {table, rows}, 1e-6f);
        cpu::kv_append(pool, got, k, v, w, {table, rows}, 1e-6f);
        for (const host::Row row : rows)
            CHECK(std::ranges::equal(got.window->v.codes(got.window_place(row), 0),
                                     want.window->v.codes(want.window_place(row), 0)));
    });
}

TEST_CASE("attention on every type of cache") {
    ThreadPool pool(3);
    Random random{7};
    for (size_t i = 0; i < kv_types.size(); i++) {
        const KvType k = kv_types[i].type, v = kv_types[(i + 7) % kv_types.size()].type;
        for (const uint32_t d : {64u, 128u, 256u}) {
            check_attention(pool, {k, values_beside(v), d, 2, 2, 76, 1}, random);
            check_attention(pool, {v, values_beside(k), d, 2, 2, 40, 9}, random);
        }
    }
}

TEST_CASE("attention at every group, length and number of tokens") {
    ThreadPool pool(3);
    Random random{8};
    constexpr KvType tq4 = KvType::tq4, tq3 = KvType::tq3, tq2 = KvType::tq2, f16 = KvType::f16, q8_0 = KvType::q8_0;
    for (const uint32_t group : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 16u}) {
        for (const uint32_t tokens : {1u, 2u, 11u, 50u}) check_attention(pool, {tq4, q8_0, 128, group, 2, 13, tokens}, random);
        for (const uint32_t d : {64u, 128u, 256u}) {
            check_attention(pool, {tq4, tq3, d, group, 2, 82, 1}, random);
            check_attention(pool, {tq3, tq2, d, group, 2, 82, 1}, random);
            check_attention(pool, {tq2, tq4, d, group, 2, 82, 1}, random);
            check_attention(pool, {KvType::tq4u, tq4, d, group, 2, 82, 1}, random);
            check_attention(pool, {KvType::tq5u, f16, d, group, 2, 82, 1}, random);
        }
    }
    for (const uint32_t d : {64u, 128u})
        for (const uint32_t position : {0u, 1u, 62u, 63u, 64u, 255u, 256u, 2047u})
            for (const uint32_t tokens : {1u, 3u}) check_attention(pool, {tq3, tq4, d, 2, 1, position, tokens}, random);
    for (const uint32_t position : {510u, 8189u, 8702u, 16382u}) // ends of ranges
        check_attention(pool, {tq4, f16, 64, 3, 1, position, 5}, random);
    check_attention(pool, {f16, f16, 64, 1, 1, 0, 300}, random); // more queries than a block has, and a whole prompt
    check_attention(pool, {tq4, tq4, 128, 2, 3, 100, 130}, random);
    for (const uint32_t tokens : {1u, 9u})
        check_attention(pool, {tq4, tq4, 128, 2, 2, 300, tokens, 100}, random); // exp overflows
}

TEST_CASE("attention on a window beside codes") {
    ThreadPool pool(3);
    Random random{10};
    constexpr KvType tq4 = KvType::tq4, tq3t = KvType::tq3t, f16 = KvType::f16;
    for (const uint32_t window : {1u, 5u, 63u, 200u})
        for (const uint32_t position : {0u, 4u, 70u, 300u})
            for (const uint32_t tokens : {1u, 2u, 9u, 70u})
                check_attention(pool, {tq4, tq3t, 128, 2, 2, position, tokens, 1, {window}}, random);
    for (const uint32_t begin : {0u, 67u, 70u}) // some tokens were removed again
        for (const uint32_t tokens : {1u, 9u}) check_attention(pool, {tq3t, f16, 64, 5, 1, 70, tokens, 1, {12, begin}}, random);
    check_attention(pool, {tq4, tq4, 256, 2, 2, 300, 9, 100, {12}}, random); // exp overflows
}

TEST_CASE("a stored vector that is not finite reaches the result") {
    ThreadPool pool(2);
    Random random{9};
    for (const KvType type : {KvType::tq4, KvType::tq3, KvType::q8_0, KvType::q4_0, KvType::f16, KvType::f32, KvType::tq4u})
        for (const uint32_t tokens : {1u, 9u})
            for (const bool is_key : {true, false}) {
                const std::string type_name = name(type);
                CAPTURE(type_name);
                CAPTURE(tokens);
                CAPTURE(is_key);
                const Shape s{type, values_beside(type), 128, 2, 1, 70, tokens};
                const auto all = random_cache(pool, s, 80, random);
                const host::LayerCache& cache = all->layers()[0];
                std::vector<float> bad(128, 1.0f);
                bad[77] = std::numeric_limits<float>::quiet_NaN();
                ref::kv_append(pool, cache, is_key ? KvSide::key : KvSide::value, bad, {}, {{}, host::make_rows(1, 33, 1)}, 0);
                const auto q = random.normals(tokens * 2 * 128, 0.1f);
                on_each_target([&] {
                    std::vector<float> y(q.size());
                    cpu::attention(pool, y, q, {}, cache, 2, host::make_rows(1, 70, tokens));
                    for (size_t at = 0; at < y.size(); at += 128)
                        CHECK(!std::ranges::all_of(std::span(y).subspan(at, 128), [](float f) { return std::isfinite(f); }));
                });
            }
}

TEST_CASE("a query that is not finite reaches its own head's result, and no other's") {
    ThreadPool pool(2);
    Random random{12};
    const Shape s{KvType::tq4, KvType::tq4, 128, 2, 1, 70, 1};
    const auto all = random_cache(pool, s, 80, random);
    const auto q = random.normals(2 * 128, 0.1f);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        on_each_target([&] {
            std::vector<float> x = q, y(q.size());
            x[77] = bad;
            cpu::attention(pool, y, x, {}, all->layers()[0], 2, host::make_rows(1, 70, 1));
            const auto is_finite = [](float f) { return std::isfinite(f); };
            CHECK(!std::ranges::any_of(std::span(y).first(128), is_finite));
            CHECK(std::ranges::all_of(std::span(y).last(128), is_finite));
        });
}
