// The recurrence of a layer: its state stays in place, and each thread has a few of its columns for all tokens of a slot.
// Columns of a state are independent: a value channel needs its own column, and q and k of the head, which all share
// (shaders/delta_rule.comp has the formula). So a thread takes 32 columns, 16 KiB, which stay in its cache for all tokens of
// the pass, and no thread waits for another. A step goes over its columns twice, to read with k and to update; the first time
// it stores nothing, so the decay is applied in both.
// A slot's tokens come in three parts (StateRange of model/pass_rows.h). First the updates of pending tokens that stayed are
// applied to the state. Rows that are certain follow, in place. Pending tokens and rows that may still be rejected run on a copy
// of the state, which is then dropped; its inputs are kept (keep_pending), so that a later pass can apply them. Each part runs
// the operations of plain decoding in the same order, so the bits are the same. The convolution treats its last three inputs in
// the same way.
#include "model/cpu/recurrent.h"
#include "base/ensure.h"
#include "base/per_thread.h"
#include <algorithm>
#include <array>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/recurrent.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/elementwise-inl.h"

#ifndef TQ_CPU_RECURRENT_SHAPES
#define TQ_CPU_RECURRENT_SHAPES
namespace tq::cpu {

constexpr uint32_t taps = 4, state_dim = 128; // Recurrent::conv_kernel and head_dim of every model that is read
constexpr uint32_t conv_columns = 128;        // channels that a thread takes at once
constexpr uint32_t state_columns = 32;        // columns of a state that a thread takes at once

// Tokens of a slot: row i of `x` and `y` is at i times the stride.
struct ConvRows {
    float* x;
    size_t stride, count, history_stride;
};
struct DeltaRows {
    float* y;
    const float *q, *k, *v, *beta, *alpha;
    size_t y_stride, x_stride, heads, count;
};

} // namespace tq::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE V silu(V x) { return hn::Div(x, hn::Add(hn::Set(F(), 1), exp_of(hn::Neg(x)))); }
HWY_INLINE V sigmoid(V x) { return hn::Div(hn::Set(F(), 1), hn::Add(hn::Set(F(), 1), exp_of(hn::Neg(x)))); }

// `conv_columns` channels. history: [taps - 1][history_stride], w: [channels][taps]
void conv_silu_columns(const ConvRows& rows, float* history, const float* w) {
    for (size_t c = 0; c < conv_columns; c += lanes) {
        V w0, w1, w2, w3;
        hn::LoadInterleaved4(F(), w + c * taps, w0, w1, w2, w3);
        V p0 = hn::LoadU(F(), history + c), p1 = hn::LoadU(F(), history + rows.history_stride + c),
          p2 = hn::LoadU(F(), history + 2 * rows.history_stride + c);
        for (size_t t = 0; t < rows.count; t++) {
            float* const x = rows.x + t * rows.stride + c;
            const V own = hn::LoadU(F(), x);
            const V sum = hn::MulAdd(w3, own, hn::MulAdd(w2, p2, hn::MulAdd(w1, p1, hn::Mul(w0, p0))));
            hn::StoreU(silu(sum), F(), x);
            p0 = p1;
            p1 = p2;
            p2 = own;
        }
        hn::StoreU(p0, F(), history + c);
        hn::StoreU(p1, F(), history + rows.history_stride + c);
        hn::StoreU(p2, F(), history + 2 * rows.history_stride + c);
    }
}

void l2_norm_head(std::span<float> head, float eps, float factor) {
    float* const x = head.data();
    const V scale = hn::Set(F(), inverse_root(dot(x, x, head.size()) + eps)), by = hn::Set(F(), factor);
    for (size_t i = 0; i < head.size(); i += lanes) hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(F(), x + i), scale), by), F(), x + i);
}

constexpr size_t vectors = state_columns / lanes;             // of a row of the state
constexpr size_t ways = lanes >= 16 ? 4 : lanes >= 8 ? 2 : 1; // keys that are summed apart, so that no sum waits for itself
static_assert(state_dim % ways == 0 && state_columns % lanes == 0);

struct ColumnSums {
    V sums[ways][vectors];
    HWY_INLINE ColumnSums() {
        HWY_UNROLL(16)
        for (size_t i = 0; i < ways * vectors; i++) sums[i / vectors][i % vectors] = hn::Zero(F());
    }
    HWY_INLINE V total(size_t i) const {
        V sum = sums[0][i];
        for (size_t way = 1; way < ways; way++) sum = hn::Add(sum, sums[way][i]);
        return sum;
    }
};

// One token. With M the state, [key][column], and D = alpha M: u = beta (v - k D), M = D + k u, y = q M. m: these columns of the
// state's [state_dim] rows.
HWY_INLINE void delta_step(float* y, float* m, size_t stride, const float* q, const float* k, const float* v, float beta,
                           float alpha) {
    const V decay = hn::Set(F(), alpha);
    ColumnSums read;
    for (size_t key = 0; key < state_dim; key += ways) {
        HWY_UNROLL(16)
        for (size_t i = 0; i < ways * vectors; i++) {
            const size_t way = i / vectors, at = i % vectors;
            const V row = hn::Mul(decay, hn::LoadU(F(), m + (key + way) * stride + at * lanes));
            read.sums[way][at] = hn::MulAdd(hn::Set(F(), k[key + way]), row, read.sums[way][at]);
        }
    }
    V u[vectors];
    for (size_t at = 0; at < vectors; at++)
        u[at] = hn::Mul(hn::Set(F(), beta), hn::Sub(hn::LoadU(F(), v + at * lanes), read.total(at)));
    ColumnSums out;
    for (size_t key = 0; key < state_dim; key += ways) {
        HWY_UNROLL(16)
        for (size_t i = 0; i < ways * vectors; i++) {
            const size_t way = i / vectors, at = i % vectors;
            float* const to = m + (key + way) * stride + at * lanes;
            const V row = hn::MulAdd(hn::Set(F(), k[key + way]), u[at], hn::Mul(decay, hn::LoadU(F(), to)));
            hn::StoreU(row, F(), to);
            out.sums[way][at] = hn::MulAdd(hn::Set(F(), q[key + way]), row, out.sums[way][at]);
        }
    }
    for (size_t at = 0; at < vectors; at++) hn::StoreU(out.total(at), F(), y + at * lanes);
}

// `state_columns` columns of a state whose rows are `state_stride` long. In a power of two's distance these would share few lines
// of the L1 cache: for several tokens they are copied together.
void delta_columns(const DeltaRows& rows, float* state, size_t state_stride) {
    constexpr size_t few = 3;
    HWY_ALIGN float copy[state_dim * state_columns];
    float* m = state;
    size_t stride = state_stride;
    if (rows.count > few && state_stride != state_columns) {
        for (size_t key = 0; key < state_dim; key++)
            std::copy_n(state + key * state_stride, state_columns, copy + key * state_columns);
        m = copy;
        stride = state_columns;
    }
    for (size_t t = 0; t < rows.count; t++)
        delta_step(rows.y + t * rows.y_stride, m, stride, rows.q + t * rows.x_stride, rows.k + t * rows.x_stride,
                   rows.v + t * rows.x_stride, rows.beta[t * rows.heads], rows.alpha[t * rows.heads]);
    if (m == state) return;
    for (size_t key = 0; key < state_dim; key++)
        std::copy_n(copy + key * state_columns, state_columns, state + key * state_stride);
}

void gated_norm_head(std::span<float> head, const float* z, const float* w, float eps) {
    float* const y = head.data();
    const V scale = hn::Set(F(), inverse_rms(y, head.size(), eps));
    for (size_t i = 0; i < head.size(); i += lanes) {
        const V normed = hn::Mul(hn::Mul(hn::LoadU(F(), y + i), scale), hn::LoadU(F(), w + i));
        hn::StoreU(hn::Mul(normed, silu(hn::LoadU(F(), z + i))), F(), y + i);
    }
}

// count: a multiple of 16
void apply_gates_range(float* y, const float* gate, size_t count) {
    for (size_t i = 0; i < count; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(F(), y + i), sigmoid(hn::LoadU(F(), gate + i))), F(), y + i);
}

void share_gate_row(float* y, size_t cols, const float* w, const float* x, size_t count) {
    const V share = hn::Set(F(), 1 / (1 + std::exp(-dot(w, x, count))));
    for (size_t i = 0; i < cols; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(F(), y + i), share), F(), y + i);
}

} // namespace
} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq::cpu {
namespace {

HWY_EXPORT(conv_silu_columns);
HWY_EXPORT(l2_norm_head);
HWY_EXPORT(delta_columns);
HWY_EXPORT(gated_norm_head);
HWY_EXPORT(apply_gates_range);
HWY_EXPORT(share_gate_row);

// From 20 on, ln(1 + exp(x)) is x in fp32: the difference, exp(-x), is less than half a unit in the last place. exp(x) itself
// would become infinite at 89.
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// The inputs of the convolution of `conv_columns` channels of a slot, from `column` on: history becomes that after one more
// token.
void shift_history(float* history, size_t stride, const float* own) {
    for (size_t j = 0; j + 2 < taps; j++) std::copy_n(history + (j + 1) * stride, conv_columns, history + j * stride);
    std::copy_n(own, conv_columns, history + (taps - 2) * stride);
}

// The convolution of `conv_columns` channels of a slot's rows.
void conv_silu_part(float* x, const float* w, LayerStates& states, const host::SlotRows& of, size_t column) {
    const size_t channels = states.shape.channels();
    const auto [from, to] = of.state;
    const auto pending = [&](uint32_t at) { return &states.pending_input({of.slot, at})[column]; };
    const auto convolve = [&](uint32_t first, uint32_t end, float* history, size_t stride) {
        if (first < end) HWY_DYNAMIC_DISPATCH(conv_silu_columns)
        ({x + (of.first + first - of.position) * channels + column, channels, end - first, stride}, history, w + column * taps);
    };
    float* const history = &states.history(of.slot)[column];
    for (uint32_t at = from; at < std::min(of.position, to); at++) shift_history(history, channels, pending(at));
    const uint32_t settled = std::max(of.position, to); // rows from there on stay pending
    convolve(of.position, settled, history, channels);
    if (settled == of.end_position()) return;
    std::array<float, (taps - 1) * conv_columns> after;
    for (size_t j = 0; j + 1 < taps; j++) std::copy_n(history + j * channels, conv_columns, &after[j * conv_columns]);
    for (uint32_t at = std::max(from, to); at < of.position; at++) shift_history(after.data(), conv_columns, pending(at));
    for (uint32_t at = settled; at < of.end_position(); at++)
        std::copy_n(x + (of.first + at - of.position) * channels + column, conv_columns, pending(at));
    convolve(settled, of.end_position(), after.data(), conv_columns);
}

// The operands of the delta rule: [rows][...]
struct DeltaOperands {
    float* y;
    const float *x, *beta, *alpha;
};

// `state_columns` columns of one value head, from `column` on, of a slot's rows.
void delta_rule_part(const DeltaOperands& rows, LayerStates& states, const host::SlotRows& of, uint32_t head, uint32_t column) {
    const Recurrent& shape = states.shape;
    const size_t channels = shape.channels(), heads = shape.value_heads, values = shape.value_size();
    const size_t q = size_t(shape.key_head(head)) * state_dim, k = shape.key_size() + q,
                 v = 2 * size_t(shape.key_size()) + head * state_dim + column;
    std::array<float, state_columns> unused;
    const auto pending = [&](uint32_t first, uint32_t end, float* m, size_t stride) {
        for (uint32_t at = first; at < end; at++) {
            const float *x = states.pending_output({of.slot, at}).data(), *gates = &states.pending_gates({of.slot, at})[2 * head];
            HWY_DYNAMIC_DISPATCH(delta_columns)
            ({.y = unused.data(),
              .q = x + q,
              .k = x + k,
              .v = x + v,
              .beta = gates,
              .alpha = gates + 1,
              .y_stride = 0,
              .x_stride = 0,
              .heads = 0,
              .count = 1},
             m, stride);
        }
    };
    const auto run = [&](uint32_t first, uint32_t end, float* m, size_t stride) {
        const size_t t = of.first + first - of.position;
        const float* x = rows.x + t * channels;
        if (first < end) HWY_DYNAMIC_DISPATCH(delta_columns)
        ({.y = rows.y + t * values + head * state_dim + column,
          .q = x + q,
          .k = x + k,
          .v = x + v,
          .beta = rows.beta + t * heads + head,
          .alpha = rows.alpha + t * heads + head,
          .y_stride = values,
          .x_stride = channels,
          .heads = heads,
          .count = end - first},
         m, stride);
    };
    const auto [from, to] = of.state;
    float* const m = &states.matrix(of.slot, head)[column];
    pending(from, std::min(of.position, to), m, state_dim);
    const uint32_t settled = std::max(of.position, to);
    run(of.position, settled, m, state_dim);
    if (settled == of.end_position()) return;
    alignas(64) std::array<float, state_dim * state_columns> after;
    for (size_t key = 0; key < state_dim; key++) std::copy_n(m + key * state_dim, state_columns, &after[key * state_columns]);
    pending(std::max(from, to), of.position, after.data(), state_columns);
    run(settled, of.end_position(), after.data(), state_columns);
}

// Keeps the rows of a slot that stay pending.
void keep_pending(const DeltaOperands& rows, LayerStates& states, const host::SlotRows& of) {
    const size_t channels = states.shape.channels(), heads = states.shape.value_heads;
    for (uint32_t at = std::max(of.position, of.state.end); at < of.end_position(); at++) {
        const size_t t = of.first + at - of.position;
        std::copy_n(rows.x + t * channels, channels, states.pending_output({of.slot, at}).data());
        float* const gates = states.pending_gates({of.slot, at}).data();
        for (size_t head = 0; head < heads; head++) {
            gates[2 * head] = rows.beta[t * heads + head];
            gates[2 * head + 1] = rows.alpha[t * heads + head];
        }
    }
}

} // namespace

void conv_silu(ThreadPool& pool, std::span<float> x, std::span<const float> w, LayerStates& states,
               std::span<const host::Row> rows) {
    const uint32_t channels = states.shape.channels(), parts = channels / conv_columns;
    ENSURE(states.shape.conv_kernel == taps && channels % conv_columns == 0 && x.size() == rows.size() * channels,
           "{} values of {} rows, {} channels", x.size(), rows.size(), channels);
    const std::vector<host::SlotRows> slots = host::by_slot(rows);
    pool.each(uint32_t(slots.size()) * parts, 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++)
            conv_silu_part(x.data(), w.data(), states, slots[i / parts], size_t(i % parts) * conv_columns);
    });
}

void l2_norm(ThreadPool& pool, std::span<float> x, const Recurrent& shape, float eps) {
    const uint32_t heads = 2 * shape.key_heads;
    ENSURE(shape.head_dim == state_dim, "heads of {}", shape.head_dim);
    pool.each(uint32_t(x.size() / shape.channels()) * heads, 16, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const uint32_t head = i % heads;
            HWY_DYNAMIC_DISPATCH(l2_norm_head)
            (x.subspan(size_t(i / heads) * shape.channels() + head * state_dim, state_dim), eps,
             head < shape.key_heads ? 1 / std::sqrt(float(state_dim)) : 1);
        }
    });
}

void state_gates(ThreadPool& pool, std::span<float> beta, std::span<float> alpha, std::span<const float> a,
                 std::span<const float> dt) {
    pool.each(uint32_t(beta.size()), 256, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const size_t head = i % a.size();
            beta[i] = 1 / (1 + std::exp(-beta[i]));
            alpha[i] = std::exp(a[head] * softplus(alpha[i] + dt[head]));
        }
    });
}

void delta_rule(ThreadPool& pool, std::span<float> y, std::span<const float> x, std::span<const float> beta,
                std::span<const float> alpha, LayerStates& states, std::span<const host::Row> rows) {
    const Recurrent& shape = states.shape;
    const uint32_t heads = shape.value_heads, parts = state_dim / state_columns;
    ENSURE(shape.head_dim == state_dim && y.size() == rows.size() * shape.value_size() &&
               x.size() == rows.size() * shape.channels(),
           "{} values of {} rows, heads of {}", x.size(), rows.size(), shape.head_dim);
    const DeltaOperands operands{y.data(), x.data(), beta.data(), alpha.data()};
    const std::vector<host::SlotRows> slots = host::by_slot(rows);
    pool.each(uint32_t(slots.size()) * heads * parts, 2, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++)
            delta_rule_part(operands, states, slots[i / (heads * parts)], i / parts % heads, i % parts * state_columns);
    });
    for (const host::SlotRows& of : slots) keep_pending(operands, states, of);
}

void settle(LayerStates& states, uint32_t slot, uint32_t from, uint32_t to) {
    const host::SlotRows none{slot, 0, 0, to, {from, to}};
    for (size_t column = 0; column < states.shape.channels(); column += conv_columns)
        conv_silu_part(nullptr, nullptr, states, none, column);
    for (uint32_t head = 0; head < states.shape.value_heads; head++)
        for (uint32_t column = 0; column < state_dim; column += state_columns) delta_rule_part({}, states, none, head, column);
}

void gated_norm(ThreadPool& pool, std::span<float> y, std::span<const float> z, std::span<const float> w, float eps) {
    ENSURE(w.size() == state_dim, "heads of {}", w.size());
    pool.each(uint32_t(y.size() / state_dim), 16, [&](uint32_t begin, uint32_t end) {
        for (size_t at = begin * size_t(state_dim); at < end * size_t(state_dim); at += state_dim)
            HWY_DYNAMIC_DISPATCH(gated_norm_head)(y.subspan(at, state_dim), &z[at], w.data(), eps);
    });
}

void split_gates(ThreadPool& pool, std::span<float> q, std::span<float> gate, std::span<const float> both, uint32_t head_dim) {
    pool.each(uint32_t(q.size() / head_dim), 64, [&](uint32_t begin, uint32_t end) {
        for (size_t i = begin; i < end; i++) {
            std::copy_n(&both[2 * i * head_dim], head_dim, &q[i * head_dim]);
            std::copy_n(&both[(2 * i + 1) * head_dim], head_dim, &gate[i * head_dim]);
        }
    });
}

void apply_gates(ThreadPool& pool, std::span<float> y, std::span<const float> gate) {
    constexpr uint32_t unit = 64; // of every head's size
    pool.each(uint32_t(y.size() / unit), 16, [&](uint32_t begin, uint32_t end) {
        HWY_DYNAMIC_DISPATCH(apply_gates_range)
        (&y[size_t(begin) * unit], &gate[size_t(begin) * unit], size_t(end - begin) * unit);
    });
}

void share_gate(ThreadPool& pool, std::span<float> y, std::span<const float> w, std::span<const float> x) {
    const size_t tokens = x.size() / w.size(), cols = y.size() / tokens;
    pool.each(uint32_t(tokens), 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++)
            HWY_DYNAMIC_DISPATCH(share_gate_row)(&y[t * cols], cols, w.data(), &x[t * w.size()], w.size());
    });
}

} // namespace tq::cpu
#endif
