// The numbers that all other implementations are compared with: plain loops in fp32, one thread's result independent of how many
// there are. Each unit of pool.each() (a row of a matrix, a head of a token) is computed by one thread from beginning to end, so
// sums have one order. Codecs, rotations and conditions of keys are those of model/kv, which has its own tests.
// Speed is nothing here, but memory is bounded: a weight row is decoded once for all tokens, and a stored vector is decoded each
// time that a query reads it. Attention follows its definition: all scores, then their maximum, then the weighted sum. The
// kernels of the devices never hold all scores, and rescale their sums; a difference between the two is the fault of the kernel.
#include "model/reference/kernels.h"
#include "base/ensure.h"
#include <algorithm>
#include <cmath>
#include <functional>

namespace tq::ref {
namespace {

// turns: of the first turns.size() channels; the others only get the norm.
void norm_and_rope(std::span<float> x, std::span<const float> w, std::span<const float> turns, std::optional<float> eps) {
    const size_t half = turns.size() / 2;
    const float scale = eps ? inverse_rms(x, *eps) : 1;
    for (size_t i = turns.size(); i < x.size(); i++) x[i] = x[i] * scale * w[i];
    for (size_t i = 0; i < half; i++) {
        const float a = x[i] * scale * w[i], b = x[i + half] * scale * w[i + half];
        const float c = turns[2 * i], s = turns[2 * i + 1];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

} // namespace

void matmul(ThreadPool& pool, std::span<float> y, const Tensor& w, std::span<const float> x, bool accumulate) {
    const size_t tokens = x.size() / w.cols;
    ENSURE(y.size() == tokens * w.rows, "{}: {} outputs for {} tokens", w.name, y.size(), tokens);
    pool.each(w.rows, 16, [&](uint32_t begin, uint32_t end) {
        std::vector<float> row(w.cols);
        std::vector<std::byte> scratch;
        for (uint32_t r = begin; r < end; r++) {
            w.decode(r, row, scratch);
            for (size_t t = 0; t < tokens; t++) {
                float& out = y[t * w.rows + r];
                const float sum = dot(row.data(), &x[t * w.cols], w.cols);
                out = accumulate ? out + sum : sum;
            }
        }
    });
}

// The order matters. Page scores need q after RoPE and before the conditions, because they are products with the page's means,
// which the keys lost before they were scaled (model/kv/conditioning.h). The rotation comes last, as keys are stored in the
// rotated basis, and scores are then dot products there.
void q_norm_rope(ThreadPool& pool, std::span<float> q, std::span<const float> w, const Rope& rope, uint32_t heads,
                 std::optional<float> eps, float scale, const Rotation* rotation, const HeadConditions& conditions,
                 PageScores* page_scores) {
    const size_t d = w.size();
    const uint32_t group = conditions.empty() ? 1 : uint32_t(heads * d / conditions.factors.size());
    if (page_scores) page_scores->resize(rope.rows, heads, !conditions.means.empty());
    pool.each(uint32_t(q.size() / d), 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const std::span x = q.subspan(i * d, d);
            norm_and_rope(x, w, rope.turns(rope.rows[i / heads], d), eps);
            if (page_scores && !conditions.means.empty())
                tq::page_scores(page_scores->of(i).first(pages_of(rope.rows[i / heads].position + 1)), x, conditions,
                                i % heads / group, 1 / std::sqrt(float(d)), rope.table, rope.width(d));
            if (!conditions.empty()) condition_query(x, conditions, i % heads / group);
            if (rotation != nullptr) rotate(x, *rotation);
            for (float& v : x) v *= scale;
        }
    });
}

// A vector is stored in up to three places: as codes in its page, as fp16 beside the codes if it is among the first tokens of its
// page (FIRST_TOKENS), and as fp16 in the ring of the window. Each is made from the fp32 vector, never from another stored one.
void kv_append(ThreadPool& pool, const LayerCache& cache, KvSide which, std::span<const float> x, std::span<const float> w,
               const Rope& rope, std::optional<float> eps, const HeadConditions& conditions) {
    const CacheSide& side = cache.side(which);
    const size_t d = side.head_dim();
    pool.each(uint32_t(x.size() / d), 4, [&](uint32_t begin, uint32_t end) {
        std::vector<float> vector(d);
        for (uint32_t i = begin; i < end; i++) {
            const uint32_t head = i % side.heads;
            const Row row = rope.rows[i / side.heads];
            std::ranges::copy(x.subspan(i * d, d), vector.begin());
            if (!w.empty()) norm_and_rope(vector, w, rope.turns(row, d), eps);
            if (!conditions.empty()) condition_key(vector, conditions, head, rope.page_turns(row, d));
            const Place place = cache.place(row);
            encode(side.codec, side.codes(place, head), side.scales(place, head), vector);
            if (place.token < cache.first_tokens()) encode_window(side.codec, side.sink(place, head), vector);
            if (!cache.window) continue;
            const CacheSide& window = cache.window->side(which);
            encode_window(side.codec, window.codes(cache.window_place(row), head), vector);
        }
    });
}

// Loads the vector of a position that a query attends to.
static void load(std::span<float> x, const LayerCache& cache, KvSide which, Row at, uint32_t head, bool from_window) {
    const CacheSide& side = cache.side(which);
    if (cache.reads_sinks() && at.position < FIRST_TOKENS)
        decode_window(x, side.sink({cache.first_block(at.slot), at.position}, head));
    else if (from_window)
        decode_window(x, cache.window->side(which).codes(cache.window_place(at), head));
    else
        decode_stored(side.codec, x, side.codes(cache.place(at), head), side.scales(cache.place(at), head));
}

void attention(ThreadPool& pool, std::span<float> y, std::span<const float> q, const PageScores& page_scores,
               const LayerCache& cache, uint32_t heads, std::span<const Row> rows) {
    const size_t d = cache.k.head_dim();
    const uint32_t group = heads / cache.k.heads;
    pool.each(uint32_t(q.size() / d), 1, [&](uint32_t begin, uint32_t end) {
        std::vector<float> stored(d), scores;
        for (uint32_t i = begin; i < end; i++) {
            const uint32_t slot = rows[i / heads].slot, position = rows[i / heads].position;
            const uint32_t head = i % heads / group, length = position + 1;
            const uint32_t first_in_window = cache.window ? cache.sequences.window(slot).first(position) : length;
            const uint32_t first = cache.is_mtp ? 1 : 0;
            scores.resize(length);
            for (uint32_t p = first; p < length; p++) {
                load(stored, cache, KvSide::key, {slot, p}, head, p >= first_in_window);
                scores[p] = dot(&q[i * d], stored.data(), d);
                if (!page_scores.empty()) scores[p] += page_scores.of(i)[p / page_tokens];
            }
            const float largest = *std::max_element(scores.begin() + first, scores.end());
            float total = 0;
            const std::span out = y.subspan(i * d, d);
            std::ranges::fill(out, 0.0f);
            for (uint32_t p = first; p < length; p++) {
                const float weight = std::exp(scores[p] - largest);
                total += weight;
                load(stored, cache, KvSide::value, {slot, p}, head, p >= first_in_window);
                for (size_t c = 0; c < d; c++) out[c] += weight * stored[c];
            }
            for (float& v : out) v /= total;
            if (is_turboquant(cache.v.codec.type)) rotate_back(out, cache.v.codec.rotation);
        }
    });
}

// The sort is stable and the ids ascend before it. So equal logits stay in the order of their ids, as the device's kernel has it.
std::vector<Candidate> sample_candidates(std::span<const float> logits, std::span<const uint32_t> excluded, uint32_t count) {
    std::vector<Candidate> out;
    for (uint32_t id = 0; id < logits.size(); id++)
        if (excluded.empty() || (excluded[id / 32] >> id % 32 & 1) == 0) out.push_back({logits[id], id});
    std::ranges::stable_sort(out, std::greater(), &Candidate::logit);
    out.resize(std::min<size_t>(out.size(), count));
    return out;
}

uint32_t sample(std::span<const Candidate> candidates, const sampling_settings& settings, uint32_t random) {
    std::vector<uint32_t> weights;
    for (const Candidate& c : candidates)
        weights.push_back(sampling_weight(c.logit, candidates[0].logit, settings.inverse_temperature));
    return candidates[sampled_index(weights, settings, random)].id;
}

// All weights are integers (sampling_weight), so `mass` and `sum` have no rounding and no order of summation. top_p keeps
// candidates, from the greatest on, until their mass reaches its share; min_p drops single weights; then the kept ones are walked
// in the order of their ids, so that the device may find them in any order.
uint32_t sample_all(std::span<const Candidate> candidates, const sampling_settings& settings, uint32_t random) {
    std::vector<Weighed> all, kept;
    uint64_t sum = 0, mass = 0;
    for (const Candidate& c : candidates) {
        all.push_back({c.id, sampling_weight(c.logit, candidates[0].logit, settings.inverse_temperature)});
        sum += all.back().weight;
    }
    const uint64_t min_mass = settings.top_p == UINT32_MAX ? sum : fraction_of(sum, settings.top_p, true);
    for (const Weighed& one : all) {
        if (!kept.empty() && (mass >= min_mass || one.weight == 0)) break;
        if (one.weight >= settings.min_p) kept.push_back(one);
        mass += one.weight;
    }
    std::ranges::sort(kept, {}, &Weighed::id);
    return sampled_id(kept, random);
}

} // namespace tq::ref
