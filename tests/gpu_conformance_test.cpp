// Every kernel against its reference in model/cpu, at shapes that break things: one row, primes, tails, real sizes, slices.
// Outputs are poisoned with NaN before a kernel runs, so that an element it forgets fails the row.
#include "base/half.h"
#include "base/thread_pool.h"
#include "model/cpu/reference.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/kernels.h"
#include "model/rope.h"
#include "runtime/uploader.h"
#include "tests/golden.h"
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <random>

using namespace tq;

namespace {

constexpr GgmlType formats[] = {GgmlType::F32,  GgmlType::F16,  GgmlType::BF16, GgmlType::Q8_0,
                                GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K};

std::mt19937 rng(1);

std::vector<float> random_floats(size_t n, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(n);
    for (float& v : values) v = normal(rng);
    return values;
}

// A matrix of random blocks in a weight format, with scales that keep products near 1.
struct RandomTensor {
    std::vector<std::byte> bytes;
    Tensor tensor;

    RandomTensor(GgmlType type, uint32_t rows, uint32_t cols) : bytes(row_bytes(type, cols) * rows) {
        const uint32_t block = block_format(type)->bytes;
        for (size_t at = 0; at < bytes.size(); at += block) fill_block(type, {&bytes[at], block});
        tensor = {"random", type, rows, cols, bytes};
    }

  private:
    static void store_half(std::byte* to, float v) {
        const uint16_t bits = float_to_half(v);
        std::memcpy(to, &bits, 2);
    }
    static void fill_block(GgmlType type, std::span<std::byte> block) {
        const float value = random_floats(1)[0];
        if (type == GgmlType::F32) std::memcpy(block.data(), &value, 4);
        if (type == GgmlType::F16) store_half(block.data(), value);
        if (type == GgmlType::BF16) {
            const uint32_t bits = std::bit_cast<uint32_t>(value);
            std::memcpy(block.data(), reinterpret_cast<const char*>(&bits) + 2, 2);
        }
        if (block.size() <= 4) return;
        for (std::byte& b : block) b = std::byte(rng());
        if (type == GgmlType::Q8_0 || type == GgmlType::Q4_0) store_half(block.data(), value / 64);
        if (type == GgmlType::Q4_K || type == GgmlType::Q5_K)
            store_half(block.data(), value / 512), store_half(block.data() + 2, value / 64);
        if (type == GgmlType::Q6_K) store_half(block.data() + 208, value / 2048);
    }
};

// What one row needs: a device, buffers filled from the host, one recording.
struct Bench {
    Device device;
    gpu::Tuning tuning = gpu::choose_tuning(device.capabilities());
    ThreadPool pool{1};

    Buffer buffer(std::span<const float> values) { return bytes(std::as_bytes(values)); }
    Buffer poisoned(size_t n) { return buffer(std::vector<float>(n, NAN)); }
    Buffer bytes(std::span<const std::byte> content) {
        Buffer result = device.allocate("test", std::max<size_t>(content.size(), 16));
        Uploader uploader(device);
        for (size_t at = 0; at < content.size(); at += Uploader::max_piece_bytes()) {
            const auto piece = content.subspan(at, std::min(Uploader::max_piece_bytes(), content.size() - at));
            std::ranges::copy(piece, uploader.begin(View(result, at, piece.size())).begin());
            uploader.end();
        }
        uploader.finish();
        return result;
    }
    std::vector<float> read(const Buffer& from, size_t n) {
        const Buffer copy = device.allocate("test read back", from.bytes(), Memory::readback);
        Recorder recorder(device);
        recorder.copy(copy, from);
        recorder.finish().run();
        const auto* values = reinterpret_cast<const float*>(copy.host().data());
        return {values, values + n};
    }
    Buffer context(uint32_t position, uint32_t tokens, std::span<const float> rope = {}) {
        std::vector<float> content(4 + rope.size());
        const uint32_t header[] = {position, tokens, 0, 0};
        std::memcpy(content.data(), header, sizeof header);
        std::ranges::copy(rope, content.begin() + 4);
        return buffer(content);
    }
    // `most_rows` per slice cuts the matrix into several.
    gpu::Matrix matrix(const Tensor& t, uint32_t most_rows = ~0u) {
        gpu::Matrix m{t.type, t.rows, t.cols, {}};
        const size_t row = t.data.size() / t.rows, device_row = gpu::device_row_bytes(t.type, t.cols);
        for (uint32_t first = 0; first < t.rows; first += most_rows) {
            const uint32_t rows = std::min(most_rows, t.rows - first);
            std::vector<std::byte> packed(device_row * rows);
            gpu::repack_rows(t.type, packed, t.data.subspan(first * row, rows * row), rows, t.cols);
            m.slices.push_back({bytes(packed), first, rows});
        }
        return m;
    }
    // Records body(pass) for up to `tokens` tokens and runs it.
    void run(const Buffer& context, uint32_t tokens, uint32_t head_dim, const std::function<void(gpu::Pass&)>& body) {
        Recorder recorder(device);
        const gpu::Step step{0, tokens};
        gpu::Pass pass{recorder, tuning, context, tokens, head_dim, step};
        body(pass);
        recorder.finish().run();
    }
    uint32_t padded(uint32_t tokens) const { return (tokens + tuning.matmul_tile - 1) / tuning.matmul_tile * tuning.matmul_tile; }
};

Config rope_config(uint32_t head_dim) { return {1, 64, 64, 1, 1, 1, head_dim, 1 << 16, 1e6f, 1e-6f}; }

} // namespace

TEST_CASE("embed") {
    Bench bench;
    for (const GgmlType type : formats)
        for (const auto& [rows, cols, most_rows] : {std::tuple{1u, 256u, 1u}, {37u, 512u, 10u}, {300u, 256u, ~0u}}) {
            const std::string at = fmt::format("type {}, rows {}, cols {}", type_name(type), rows, cols);
            CAPTURE(at);
            const RandomTensor w(type, rows, cols);
            std::vector<uint32_t> ids(5);
            for (uint32_t& id : ids) id = rng() % rows;
            ids[4] = rows - 1;
            std::vector<float> want(ids.size() * cols);
            ref::embed(bench.pool, want, w.tensor, ids);
            const Buffer h = bench.poisoned(want.size()), on_device = bench.bytes(std::as_bytes(std::span(ids))),
                         context = bench.context(0, 5);
            const gpu::Matrix matrix = bench.matrix(w.tensor, most_rows);
            bench.run(context, 8, 128, [&](gpu::Pass& pass) { gpu::embed(pass, h, matrix, on_device); });
            CHECK(relative_error(bench.read(h, want.size()), want) <= 1e-6);
        }
}

TEST_CASE("rms_norm") {
    Bench bench;
    for (const uint32_t cols : {32u, 96u, 1024u, 5120u})
        for (const uint32_t tokens : {1u, 3u, 8u}) {
            const std::string at = fmt::format("cols {}, tokens {}", cols, tokens);
            CAPTURE(at);
            const auto x = random_floats(tokens * cols), w = random_floats(cols);
            std::vector<float> want(x.size());
            ref::rms_norm(bench.pool, want, x, w, 1e-6f);
            const Buffer y = bench.poisoned(x.size()), last = bench.poisoned(cols), x_buffer = bench.buffer(x),
                         w_buffer = bench.buffer(w), context = bench.context(7, tokens);
            bench.run(context, 8, 128, [&](gpu::Pass& pass) {
                gpu::rms_norm(pass, y, x_buffer, w_buffer, cols, 1e-6f);
                gpu::rms_norm(pass, last, x_buffer, w_buffer, cols, 1e-6f, true);
            });
            CHECK(relative_error(bench.read(y, x.size()), want) <= 1e-6);
            CHECK(relative_error(bench.read(last, cols), std::span(want).last(cols)) <= 1e-6);
        }
}

TEST_CASE("matmul and matvec") {
    Bench bench;
    for (const GgmlType type : formats)
        for (const auto& [rows, cols, tokens, most_rows] : {std::tuple{1u, 256u, 1u, ~0u},
                                                            {7u, 256u, 2u, ~0u},
                                                            {67u, 512u, 8u, 30u},
                                                            {129u, 2816u, 9u, ~0u},
                                                            {257u, 768u, 1u, 100u},
                                                            {64u, 1024u, 17u, ~0u}}) {
            const std::string at = fmt::format("type {}, rows {}, cols {}, tokens {}", type_name(type), rows, cols, tokens);
            CAPTURE(at);
            const RandomTensor w(type, rows, cols);
            const gpu::Matrix matrix = bench.matrix(w.tensor, most_rows);
            auto x = random_floats(tokens * cols);
            std::vector<float> want(tokens * rows), y0 = random_floats(tokens * rows), twice = y0;
            ref::matmul(bench.pool, want, w.tensor, x);
            ref::matmul(bench.pool, twice, w.tensor, x, true);
            x.resize(bench.padded(tokens) * cols, NAN); // rows past the last token may hold anything
            y0.resize(bench.padded(tokens) * rows, NAN);
            const Buffer x_buffer = bench.buffer(x), y = bench.poisoned(y0.size()), sum = bench.buffer(y0),
                         context = bench.context(0, tokens);
            bench.run(context, tokens, 128, [&](gpu::Pass& pass) {
                gpu::matmul(pass, y, matrix, x_buffer);
                gpu::matmul(pass, sum, matrix, x_buffer, true);
            });
            CHECK(relative_error(bench.read(y, want.size()), want) <= 2e-6);
            CHECK(relative_error(bench.read(sum, want.size()), twice) <= 2e-6);
        }
}

TEST_CASE("matmul with 32-column tails of the formats with small blocks") {
    Bench bench;
    for (const GgmlType type : {GgmlType::F32, GgmlType::F16, GgmlType::BF16, GgmlType::Q8_0, GgmlType::Q4_0})
        for (const uint32_t cols : {32u, 96u, 288u}) {
            const std::string at = fmt::format("type {}, cols {}", type_name(type), cols);
            CAPTURE(at);
            const RandomTensor w(type, 13, cols);
            const gpu::Matrix matrix = bench.matrix(w.tensor);
            const auto x = random_floats(cols);
            std::vector<float> want(13);
            ref::matmul(bench.pool, want, w.tensor, x);
            const Buffer x_buffer = bench.buffer(x), y = bench.poisoned(13), context = bench.context(0, 1);
            bench.run(context, 1, 128, [&](gpu::Pass& pass) { gpu::matmul(pass, y, matrix, x_buffer); });
            CHECK(relative_error(bench.read(y, 13), want) <= 2e-6);
        }
}

TEST_CASE("q_norm_rope") {
    Bench bench;
    for (const uint32_t d : {64u, 128u, 256u})
        for (const auto& [heads, tokens, position] : {std::tuple{1u, 1u, 0u}, {5u, 3u, 1000u}, {16u, 2u, 31u}})
            for (const bool rotated : {false, true}) {
                const std::string at = fmt::format("d {}, heads {}, position {}, rotated {}", d, heads, position, rotated);
                CAPTURE(at);
                const auto rope = rope_table(rope_config(d), position + tokens);
                const auto q = random_floats(tokens * heads * d), w = random_floats(d);
                const Signs signs = rotation_signs(3, KvSide::key);
                auto want = q;
                ref::q_norm_rope(bench.pool, want, w, {rope, position}, heads, 1e-6f, 0.5f, rotated ? &signs : nullptr);
                const Buffer q_buffer = bench.buffer(q), w_buffer = bench.buffer(w),
                             context = bench.context(position, tokens, rope);
                bench.run(context, 4, d, [&](gpu::Pass& pass) {
                    gpu::q_norm_rope(pass, q_buffer, w_buffer, heads, 1e-6f, 0.5f, rotated ? &signs : nullptr);
                });
                CHECK(relative_error(bench.read(q_buffer, want.size()), want) <= 2e-6);
            }
}

namespace {

struct AttentionRow {
    KvOptions types;
    uint32_t head_dim, heads, kv_heads, length, tokens; // the last `tokens` of `length` positions attend
    uint32_t heads_per_slice;
};

// The bytes of a host cache in the device's layout.
std::vector<uint32_t> slice_words(const cpu::LayerCache& cache, const gpu::CacheLayout& at, uint32_t first_head, uint32_t heads) {
    std::vector<uint32_t> words(at.words);
    for (const bool is_key : {true, false}) {
        const cpu::CacheSide& side = is_key ? cache.k : cache.v;
        const uint32_t codes = is_key ? at.k_codes : at.v_codes, scales = is_key ? at.k_scales : at.v_scales;
        const size_t vector_words = code_words(side.type, side.head_dim);
        for (uint32_t i = 0; i < heads * side.capacity; i++) {
            const auto vector = side.vector(first_head + i / side.capacity, i % side.capacity);
            std::ranges::copy(vector, words.begin() + std::ptrdiff_t(codes + i * vector_words));
            if (is_turboquant(side.type))
                words[scales + i / 2] |= uint32_t(side.scale(first_head + i / side.capacity, i % side.capacity))
                                         << (16 * (i % 2));
        }
    }
    return words;
}

void check_attention(Bench& bench, const AttentionRow& row) {
    const std::string at = fmt::format("k {}, v {}, head_dim {}, heads {}, kv_heads {}, length {}, tokens {}", name(row.types.k),
                                       name(row.types.v), row.head_dim, row.heads, row.kv_heads, row.length, row.tokens);
    CAPTURE(at);
    const uint32_t d = row.head_dim, capacity = row.length + 3, position = row.length - row.tokens;
    const cpu::LayerCache cache{{row.types.k, KvSide::key, 5, row.kv_heads, d, capacity},
                                {row.types.v, KvSide::value, 5, row.kv_heads, d, capacity}};
    for (const cpu::CacheSide* side :
         {&cache.k, &cache.v}) // past the length too: what a kernel must not read as if it were there
        ref::kv_append(bench.pool, *side, random_floats(capacity * row.kv_heads * d), {}, {{}, 0}, 0);
    const float q_scale = 1 / std::sqrt(float(d)) / (is_turboquant(row.types.k) ? float(d) : 1);
    const auto q = random_floats(row.tokens * row.heads * d, q_scale * (is_turboquant(row.types.k) ? std::sqrt(float(d)) : 1));
    std::vector<float> want(q.size());
    ref::attention(bench.pool, want, q, cache, row.heads, position);

    gpu::KvCache on_device(bench.device, {1, 64, 64, 0, row.heads, row.kv_heads, d, capacity, 1e6f, 1e-6f}, row.types, capacity);
    gpu::LayerCache& layer = on_device.layers.emplace_back(gpu::LayerCache{cache.k.signs, cache.v.signs, {}});
    for (uint32_t head = 0; head < row.kv_heads; head += row.heads_per_slice) {
        const uint32_t heads = std::min(row.heads_per_slice, row.kv_heads - head);
        const gpu::CacheLayout layout(row.types, d, heads, capacity);
        const std::vector<uint32_t> words = slice_words(cache, layout, head, heads);
        layer.slices.push_back({bench.bytes(std::as_bytes(std::span(words))), head, heads, layout});
    }
    const Buffer y = bench.poisoned(q.size()), q_buffer = bench.buffer(q), context = bench.context(position, row.tokens),
                 partials = bench.poisoned(gpu::partials_bytes(bench.tuning, row.tokens, row.heads, d) / 4);
    bench.run(context, row.tokens, d,
              [&](gpu::Pass& pass) { gpu::attention(pass, y, partials, q_buffer, on_device, 0, row.heads, row.kv_heads); });
    CHECK(relative_error(bench.read(y, want.size()), want) <= 5e-6);
}

} // namespace

TEST_CASE("attention on every pair of cache types") {
    Bench bench;
    for (const KvType k : {KvType::f32, KvType::f16, KvType::tq4, KvType::tq3, KvType::tq2})
        for (const KvType v : {KvType::f32, KvType::f16, KvType::tq4, KvType::tq3, KvType::tq2})
            check_attention(bench, {{k, v}, 128, 4, 2, 77, 1, 2});
}

TEST_CASE("attention at lengths, GQA ratios, blocks and head_dims that break things") {
    Bench bench;
    const KvOptions tq4{KvType::tq4, KvType::tq4}, mixed{KvType::f16, KvType::tq3};
    for (const uint32_t length : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 513u})
        check_attention(bench, {tq4, 128, 2, 1, length, 1, 1});
    for (const uint32_t group : {1u, 2u, 4u, 5u, 8u}) {
        check_attention(bench, {tq4, 128, 2 * group, 2, 40, 1, 2});
        check_attention(bench, {mixed, 128, 2 * group, 2, 40, 11, 2});
    }
    for (const uint32_t d : {64u, 256u}) check_attention(bench, {{KvType::tq3, KvType::tq2}, d, 4, 2, 50, 7, 2});
    check_attention(bench, {tq4, 128, 6, 3, 33, 33, 2}); // a whole prompt, and a cache in two slices of 2 and 1 heads
}

TEST_CASE("swiglu") {
    Bench bench;
    for (const auto& [cols, tokens] : {std::tuple{32u, 1u}, {96u, 3u}, {768u, 8u}, {12288u, 2u}}) {
        const std::string at = fmt::format("cols {}, tokens {}", cols, tokens);
        CAPTURE(at);
        const auto gate = random_floats(cols * tokens, 4), up = random_floats(cols * tokens);
        auto want = gate;
        ref::swiglu(bench.pool, want, up);
        const Buffer gate_buffer = bench.buffer(gate), up_buffer = bench.buffer(up), context = bench.context(0, tokens);
        bench.run(context, 8, 128, [&](gpu::Pass& pass) { gpu::swiglu(pass, gate_buffer, up_buffer, cols); });
        CHECK(relative_error(bench.read(gate_buffer, want.size()), want) <= 1e-5);
    }
}
