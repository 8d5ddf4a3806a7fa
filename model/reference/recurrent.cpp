// The recurrent layers by their definition (model/reference/recurrent.h has the formulas): a causal convolution of a few taps,
// then the gated delta rule, whose state is a matrix [key][value] of fp32 for each value head. Tokens are taken one by one; the
// devices take them in chunks. The hard part is which tokens count. of.state = {begin, end} of a slot's rows says which tokens
// the stored state shall take in: those from begin on are pending (their inputs are kept, the state does not have them), and the
// state is written when it has had token end - 1. Tokens from end on are only tried, as drafts are: they are computed from the
// state in `m` or `last`, which is then forgotten, and are kept as pending for a later pass that knows which of them were
// accepted. So each function first runs through the pending tokens, then through its rows, and writes once.
#include "model/reference/recurrent.h"
#include "base/ensure.h"
#include "model/reference/elementwise.h"
#include <algorithm>
#include <cmath>

namespace tq::ref {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float silu(float x) { return x / (1 + std::exp(-x)); }
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Computes one token of one value head. The order is fixed, because it is the definition that kernels are compared with: first
// the state decays, then it is read with k, then the difference between the value and the result is written, and only then q
// reads it. All sums run over keys in ascending order.
void delta_step(std::span<float> y, std::span<float> m, std::span<const float> q, std::span<const float> k,
                std::span<const float> v, float beta, float alpha) {
    const size_t d = v.size();
    std::vector<float> u(d);
    for (float& one : m) one *= alpha;
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) u[c] += k[key] * m[key * d + c];
    for (size_t c = 0; c < d; c++) u[c] = beta * (v[c] - u[c]);
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) m[key * d + c] += k[key] * u[c];
    std::ranges::fill(y, 0.0f);
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) y[c] += q[key] * m[key * d + c];
}

// The convolution of one channel of a slot's rows.
void conv_silu_channel(std::span<float> x, std::span<const float> w, LayerStates& states, const SlotRows& of, uint32_t c) {
    const uint32_t channels = states.shape.channels(), kernel = states.shape.conv_kernel;
    const std::span history = states.history(of.slot);
    std::vector<float> last(kernel - 1); // of the tokens before
    for (uint32_t j = 0; j + 1 < kernel; j++) last[j] = history[j * channels + c];
    const auto add = [&](uint32_t position, float own) {
        std::shift_left(last.begin(), last.end(), 1);
        last.back() = own;
        for (uint32_t j = 0; j + 1 < kernel && position + 1 == of.state.end; j++) history[j * channels + c] = last[j];
    };
    for (uint32_t at = of.state.begin; at < of.position; at++) add(at, states.pending_input({of.slot, at})[c]);
    for (size_t t = of.first; t < of.end; t++) {
        const uint32_t at = of.position + uint32_t(t - of.first);
        const float own = x[t * channels + c];
        float sum = 0;
        for (uint32_t j = 0; j + 1 < kernel; j++) sum += w[c * kernel + j] * last[j];
        sum += w[c * kernel + kernel - 1] * own;
        if (at >= of.state.end) states.pending_input({of.slot, at})[c] = own;
        add(at, own);
        x[t * channels + c] = silu(sum);
    }
}

// A token of a recurrent layer: its row after the norms, and beta and alpha of value head h at h times the stride.
struct Token {
    std::span<const float> x;
    const float *beta, *alpha;
    size_t stride;
};
Token pending_token(LayerStates& states, Row at) {
    const std::span gates = states.pending_gates(at);
    return {states.pending_output(at), gates.data(), gates.data() + 1, 2};
}

// The tokens of a slot in one value head: the pending ones, then its rows. y(t) is the output of row t, and token(t) its inputs.
template <class Y, class GetToken>
void delta_rule_head(LayerStates& states, const SlotRows& of, uint32_t head, const Y& y, const GetToken& token) {
    const Recurrent& shape = states.shape;
    const uint32_t d = shape.head_dim, keys = shape.key_size(), key_head = shape.key_head(head);
    const std::span matrix = states.matrix(of.slot, head);
    std::vector<float> m(matrix.begin(), matrix.end()), unused(d);
    const auto step = [&](uint32_t position, std::span<float> out, const Token& of_token) {
        delta_step(out, m, of_token.x.subspan(key_head * d, d), of_token.x.subspan(keys + key_head * d, d),
                   of_token.x.subspan(2 * keys + head * d, d), of_token.beta[head * of_token.stride],
                   of_token.alpha[head * of_token.stride]);
        if (position + 1 == of.state.end) std::ranges::copy(m, matrix.begin());
    };
    for (uint32_t at = of.state.begin; at < of.position; at++) step(at, unused, pending_token(states, {of.slot, at}));
    for (size_t t = of.first; t < of.end; t++) step(of.position + uint32_t(t - of.first), y(t), token(t));
}

// Keeps the rows of a slot from state.end on.
void keep_pending(LayerStates& states, const SlotRows& of, std::span<const float> x, std::span<const float> beta,
                  std::span<const float> alpha) {
    const uint32_t channels = states.shape.channels(), heads = states.shape.value_heads;
    for (uint32_t at = std::max(of.state.end, of.position); at < of.end_position(); at++) {
        const size_t t = of.first + at - of.position;
        std::ranges::copy(x.subspan(t * channels, channels), states.pending_output({of.slot, at}).begin());
        const std::span gates = states.pending_gates({of.slot, at});
        for (uint32_t head = 0; head < heads; head++) {
            gates[2 * head] = beta[t * heads + head];
            gates[2 * head + 1] = alpha[t * heads + head];
        }
    }
}

} // namespace

void conv_silu(ThreadPool& pool, std::span<float> x, std::span<const float> w, LayerStates& states, std::span<const Row> rows) {
    const uint32_t channels = states.shape.channels(), kernel = states.shape.conv_kernel;
    ENSURE(x.size() == rows.size() * channels && w.size() == size_t(channels) * kernel, "{} values of {} rows", x.size(),
           rows.size());
    const std::vector<SlotRows> slots = host::by_slot(rows);
    pool.each(channels, 64, [&](uint32_t begin, uint32_t end) {
        for (uint32_t c = begin; c < end; c++)
            for (const SlotRows& of : slots) conv_silu_channel(x, w, states, of, c);
    });
}

void l2_norm(ThreadPool& pool, std::span<float> x, const Recurrent& shape, float eps) {
    const uint32_t d = shape.head_dim, heads = 2 * shape.key_heads;
    pool.each(uint32_t(x.size() / shape.channels()) * heads, 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const uint32_t head = i % heads;
            const std::span of = x.subspan(size_t(i / heads) * shape.channels() + head * d, d);
            const float scale = inverse_root(dot(of.data(), of.data(), d) + eps);
            const float query = head < shape.key_heads ? 1 / std::sqrt(float(d)) : 1;
            for (float& v : of) v = v * scale * query;
        }
    });
}

void state_gates(ThreadPool& pool, std::span<float> beta, std::span<float> alpha, std::span<const float> a,
                 std::span<const float> dt) {
    pool.each(uint32_t(beta.size()), 256, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const size_t head = i % a.size();
            beta[i] = sigmoid(beta[i]);
            alpha[i] = std::exp(a[head] * softplus(alpha[i] + dt[head]));
        }
    });
}

void delta_rule(ThreadPool& pool, std::span<float> y, std::span<const float> x, std::span<const float> beta,
                std::span<const float> alpha, LayerStates& states, std::span<const Row> rows) {
    const Recurrent& shape = states.shape;
    const uint32_t d = shape.head_dim, heads = shape.value_heads;
    ENSURE(y.size() == rows.size() * shape.value_size() && x.size() == rows.size() * shape.channels(), "{} values of {} rows",
           x.size(), rows.size());
    const std::vector<SlotRows> slots = host::by_slot(rows);
    const auto token = [&](size_t t) {
        return Token{x.subspan(t * shape.channels(), shape.channels()), &beta[t * heads], &alpha[t * heads], 1};
    };
    pool.each(heads, 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t head = begin; head < end; head++)
            for (const SlotRows& of : slots)
                delta_rule_head(
                    states, of, head, [&](size_t t) { return y.subspan((t * heads + head) * d, d); }, token);
    });
    for (const SlotRows& of : slots) keep_pending(states, of, x, beta, alpha);
}

// Takes no rows, only the pending tokens from `from` to `to`, through the same functions with an empty range of rows, so that
// settling and computing cannot differ. The convolution needs no weights, as only its history moves.
void settle(LayerStates& states, uint32_t slot, uint32_t from, uint32_t to) {
    const SlotRows none{slot, 0, 0, to, {from, to}};
    for (uint32_t c = 0; c < states.shape.channels(); c++) conv_silu_channel({}, {}, states, none, c);
    for (uint32_t head = 0; head < states.shape.value_heads; head++)
        delta_rule_head(
            states, none, head, [](size_t) { return std::span<float>(); }, [](size_t) { return Token{}; });
}

void gated_norm(ThreadPool& pool, std::span<float> y, std::span<const float> z, std::span<const float> w, float eps) {
    const size_t d = w.size();
    pool.each(uint32_t(y.size() / d), 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const std::span of = y.subspan(i * d, d);
            const float scale = inverse_rms(of, eps);
            for (size_t c = 0; c < d; c++) of[c] = of[c] * scale * w[c] * silu(z[i * d + c]);
        }
    });
}

void split_gates(ThreadPool& pool, std::span<float> q, std::span<float> gate, std::span<const float> both, uint32_t head_dim) {
    pool.each(uint32_t(q.size() / head_dim), 64, [&](uint32_t begin, uint32_t end) {
        for (size_t i = begin; i < end; i++) {
            std::ranges::copy(both.subspan(2 * i * head_dim, head_dim), &q[i * head_dim]);
            std::ranges::copy(both.subspan((2 * i + 1) * head_dim, head_dim), &gate[i * head_dim]);
        }
    });
}

void apply_gates(ThreadPool& pool, std::span<float> y, std::span<const float> gate) {
    pool.each(uint32_t(y.size()), 1024, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) y[i] = y[i] * sigmoid(gate[i]);
    });
}

void share_gate(ThreadPool& pool, std::span<float> y, std::span<const float> w, std::span<const float> x) {
    const size_t tokens = x.size() / w.size(), cols = y.size() / tokens;
    pool.each(uint32_t(tokens), 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            const float share = sigmoid(dot(w.data(), &x[t * w.size()], w.size()));
            for (float& v : y.subspan(t * cols, cols)) v *= share;
        }
    });
}

} // namespace tq::ref
