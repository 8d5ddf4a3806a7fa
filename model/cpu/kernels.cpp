// Norms, rotary positions and storing into the cache, one vector at a time.
// The first part is compiled once for each instruction set, the second (HWY_ONCE) once; HWY_DYNAMIC_DISPATCH takes the best that
// the processor has. Norms, RoPE and codes are computed a vector at a time, each by one thread.
#include "model/cpu/kernels.h"
#include <algorithm>
#include <fmt/format.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/kernels.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {
namespace {

void norm_rows(float* y, const float* x, std::span<const float> w, float eps, size_t rows) {
    const size_t cols = w.size();
    for (size_t row = 0; row < rows * cols; row += cols)
        scale_by(y + row, x + row, w.data(), inverse_rms(x + row, cols, eps), cols);
}

void norm_and_rope_vector(std::span<float> x, std::span<const float> w, std::span<const float> turns, std::optional<float> eps) {
    norm_and_rope(x.data(), w.data(), turns.data(), x.size(), turns.size(), eps);
}

// Like encode_window of model/kv/window.h, but overwrites x.
void encode_window_vector(const KvCodec& codec, uint32_t* words, std::span<float> x) {
    if (is_turboquant(codec.type)) rotate(x, codec.rotation);
    auto* const fp16 = reinterpret_cast<uint16_t*>(words);
    for (size_t i = 0; i < x.size(); i += lanes) store_fp16(fp16 + i, hn::Mul(hn::LoadU(F(), &x[i]), hn::Set(F(), window_unit)));
}

} // namespace
} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq::cpu {
namespace {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_and_rope_vector);
HWY_EXPORT(encode_window_vector);

// Stores vector i of x[rows][kv heads][head_dim], a key or value: norm and RoPE (keys), conditioning, coding. The exact vector is
// kept beside it in fp16 for the first tokens of a page and for a window, in the same space as the codes, rotated if they are.
void append(const LayerCache& cache, KvSide which, std::span<const float> x, std::span<const float> w, const Rope& rope,
            std::optional<float> eps, const HeadConditions& conditions, uint32_t i) {
    const CacheSide& side = cache.side(which);
    const size_t d = side.head_dim();
    const uint32_t head = i % side.heads;
    const Row row = rope.rows[i / side.heads];
    const host::Place place = cache.place(row);
    std::array<float, 256> storage;
    const std::span vector(storage.data(), d);
    std::ranges::copy(x.subspan(i * d, d), vector.begin());
    if (!w.empty()) HWY_DYNAMIC_DISPATCH(norm_and_rope_vector)(vector, w, rope.turns(row, d), eps);
    if (!conditions.empty()) condition_key(vector, conditions, head, rope.page_turns(row, d));
    encode(side.codec, side.codes(place, head), side.scales(place, head), vector);
    const bool is_sink = place.token < cache.first_tokens();
    if (!is_sink && !cache.window) return;
    const std::span<uint32_t> in_window =
        cache.window ? cache.window->side(which).codes(cache.window_place(row), head) : std::span<uint32_t>();
    const std::span<uint32_t> exact = is_sink ? side.sink(place, head) : in_window;
    HWY_DYNAMIC_DISPATCH(encode_window_vector)(side.codec, exact.data(), vector); // which it may overwrite
    if (is_sink) std::copy_n(exact.begin(), in_window.size(), in_window.begin());
}

} // namespace

std::string instruction_set() { return fmt::format("{:x}", hwy::SupportedTargets()); }

void embed(ThreadPool& pool, std::span<float> h, const Tensor& embedding, std::span<const uint32_t> ids) {
    pool.each(uint32_t(ids.size()), 8, [&](uint32_t begin, uint32_t end) {
        std::vector<std::byte> scratch;
        for (uint32_t t = begin; t < end; t++) {
            const std::span to = h.subspan(size_t(t) * embedding.cols, embedding.cols);
            decode_weights(embedding.type, to, embedding.read(ids[t], 1, scratch));
            embedding.apply_factor(ids[t], to);
        }
    });
}

void rms_norm(ThreadPool& pool, std::span<float> y, std::span<const float> x, std::span<const float> w, float eps) {
    pool.each(uint32_t(x.size() / w.size()), 4, [&](uint32_t begin, uint32_t end) {
        const size_t at = begin * w.size();
        HWY_DYNAMIC_DISPATCH(norm_rows)(&y[at], &x[at], w, eps, end - begin);
    });
}

void broadcast(std::span<float> y, std::span<const float> x) {
    for (size_t row = 0; row < y.size(); row += x.size()) std::copy(x.begin(), x.end(), y.begin() + std::ptrdiff_t(row));
}

void q_norm_rope(ThreadPool& pool, std::span<float> q, std::span<const float> w, const Rope& rope, uint32_t heads,
                 std::optional<float> eps, float scale, const Rotation* rotation, const HeadConditions& conditions,
                 PageScores* page_scores) {
    const size_t d = w.size();
    const uint32_t group = conditions.empty() ? 1 : uint32_t(heads * d / conditions.factors.size());
    if (page_scores) page_scores->resize(rope.rows, heads, !conditions.means.empty());
    pool.each(uint32_t(q.size() / d), 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const std::span x = q.subspan(i * d, d);
            HWY_DYNAMIC_DISPATCH(norm_and_rope_vector)(x, w, rope.turns(rope.rows[i / heads], d), eps);
            if (page_scores && !conditions.means.empty())
                tq::page_scores(page_scores->of(i).first(pages_of(rope.rows[i / heads].position + 1)), x, conditions,
                                i % heads / group, 1 / std::sqrt(float(d)), rope.table, rope.width(d));
            if (!conditions.empty()) condition_query(x, conditions, i % heads / group);
            if (rotation != nullptr) rotate(x, *rotation);
            for (float& v : x) v *= scale;
        }
    });
}

void kv_append(ThreadPool& pool, const LayerCache& cache, std::span<const float> k, std::span<const float> v,
               std::span<const float> w, const Rope& rope, std::optional<float> eps, const HeadConditions& k_conditions) {
    pool.each(uint32_t(k.size() / cache.k.head_dim()), 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            append(cache, KvSide::key, k, w, rope, eps, k_conditions, i);
            append(cache, KvSide::value, v, {}, rope, {}, {}, i);
        }
    });
}

} // namespace tq::cpu
#endif
