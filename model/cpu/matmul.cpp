// Products of weight matrices and inputs: in integers (fixed_point.h), or in fp32. There are two ways in fp32.
// - Separate tokens: memory decides, so weights are read once, and decoded in registers as they are multiplied. Eight rows of
//   weights stay in the cache for all tokens; each few tokens decode them anew (multiply_few), because sums of more do not fit
//   registers. Each token's sums are as if it were alone.
// - A block: arithmetic decides, so a panel of rows is decoded once for all tokens into memory that fits the cache, and
//   multiplied in register tiles (tile-inl.h) with tokens as lanes: pack_tokens() transposes the inputs once for all matrices
//   that share them.
// Rows of a panel are not a power of two apart, because they would then share few lines of the L1 cache.
// Products of a list (q, k and v) are one parallel loop over the rows of all, so threads meet once.
#include "model/cpu/matmul.h"
#include "base/ensure.h"
#include "base/per_thread.h"
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/matmul.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/elementwise-inl.h"
#include "model/cpu/tile-inl.h"
#include "model/cpu/weight_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {
namespace {

struct Store {
    float* HWY_RESTRICT y;
    HWY_INLINE void operator()(size_t at0, V w0, size_t at1, V w1) const {
        hn::StoreU(w0, F(), y + at0);
        hn::StoreU(w1, F(), y + at1);
    }
};

// The products of a row with `count` tokens; each is summed as if it were alone. The tokens are not a loop: gcc would leave an
// indexed array in memory.
template <size_t count> struct Dots : Dots<count - 1> {
    V s0 = hn::Zero(F()), s1 = s0, s2 = s0, s3 = s0; // the accumulators, used in rotation to avoid one long dependency chain
    HWY_INLINE Dots(const float* x, size_t cols) : Dots<count - 1>(x, cols) {}
    HWY_INLINE void operator()(size_t at0, V w0, size_t at1, V w1) {
        Dots<count - 1>::operator()(at0, w0, at1, w1);
        const float* const of_token = this->x + (count - 1) * this->cols;
        const V sum0 = hn::MulAdd(w0, hn::LoadU(F(), of_token + at0), s0),
                sum1 = hn::MulAdd(w1, hn::LoadU(F(), of_token + at1), s1);
        s0 = s2;
        s1 = s3;
        s2 = sum0;
        s3 = sum1;
    }
    HWY_INLINE void totals(float* out) const {
        Dots<count - 1>::totals(out);
        out[count - 1] = sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
    }
};
template <> struct Dots<0> {
    const float* HWY_RESTRICT x;
    size_t cols;
    HWY_INLINE Dots(const float* x, size_t cols) : x(x), cols(cols) {}
    HWY_INLINE void operator()(size_t, V, size_t, V) {}
    HWY_INLINE void totals(float*) const {}
};

void decode_fast(GgmlType type, std::span<float> y, std::span<const std::byte> row) {
    Store store{y.data()};
    if (!each_vector(type, reinterpret_cast<const uint8_t*>(row.data()), y.size(), store)) tq::decode_row(type, y, row);
}

// Rows of weights that stay in the cache for all tokens, and tokens whose sums fit into the registers.
constexpr size_t shared_rows = 8, shared_tokens = many_registers ? 4 : 2;

// Prefetches the bytes at `distance` after these into the L2 cache: after the last row there may be other memory, or none.
HWY_INLINE void prefetch_after(const uint8_t* bytes, size_t count, size_t distance) {
    const auto address = reinterpret_cast<uintptr_t>(bytes) + distance; // a pointer there may be out of range
    for (size_t at = 0; at < count; at += 64) __builtin_prefetch(reinterpret_cast<const void*>(address + at), 0, 2);
}

// Computes `rows` rows from `first` on, whose bytes these are, for groups of `count` tokens from `token` on, as long as a full
// group is left. Returns the first token that is left; all are left if the format has no vectors.
template <size_t count> HWY_INLINE size_t multiply_few(const Product& p, std::span<const float> x, uint32_t first, uint32_t rows,
                                                       std::span<const std::byte> bytes, size_t token) {
    const size_t cols = p.w.cols, row_bytes = p.w.row_bytes();
    for (; token + count <= x.size() / cols; token += count) {
        for (uint32_t r = 0; r < rows; r++) {
            const auto* weights = reinterpret_cast<const uint8_t*>(&bytes[r * row_bytes]);
            if (token == 0) prefetch_after(weights, row_bytes, shared_rows * row_bytes);
            Dots<count> dots(&x[token * cols], cols);
            if (!each_vector(p.w.type, weights, cols, dots)) return token;
            float totals[count];
            dots.totals(totals);
            for (size_t t = 0; t < count; t++) put(p, token + t, first + r, totals[t]);
        }
    }
    return token;
}

// Computes rows begin .. end - 1 for separate tokens.
void multiply_rows(const Product& p, std::span<const float> x, Scratch& scratch, uint32_t begin, uint32_t end) {
    const size_t cols = p.w.cols, tokens = x.size() / cols, row_bytes = p.w.row_bytes();
    const std::span decoded = scratch.panel.first(cols);
    for (uint32_t first = begin; first < end; first += uint32_t(shared_rows)) {
        const uint32_t rows = std::min(uint32_t(shared_rows), end - first);
        const auto bytes = p.w.read(first, rows, scratch.bytes);
        size_t token = 0;
        if (cols % 32 == 0) {
            token = multiply_few<shared_tokens>(p, x, first, rows, bytes, token);
            if constexpr (shared_tokens > 3) token = multiply_few<3>(p, x, first, rows, bytes, token);
            if constexpr (shared_tokens > 2) token = multiply_few<2>(p, x, first, rows, bytes, token);
            token = multiply_few<1>(p, x, first, rows, bytes, token);
        }
        for (uint32_t r = 0; r < rows && token < tokens; r++) {
            decode_fast(p.w.type, decoded, bytes.subspan(r * row_bytes, row_bytes));
            for (size_t t = token; t < tokens; t++) put(p, t, first + r, dot(decoded.data(), &x[t * cols], cols));
        }
    }
}

// Returns the padded width of the tile of tokens that begins at `token`: whole vectors.
HWY_INLINE size_t width_at(size_t token, size_t tokens) {
    return std::min(tile_width, (tokens - token + lanes - 1) / lanes * lanes);
}

size_t token_tile() { return tile_width; }

// packed[tile][col][token of the tile], tiles begin .. end - 1; tokens beyond the last are 0.
void pack_tokens(std::span<float> packed, std::span<const float> x, size_t cols, uint32_t begin, uint32_t end) {
    const size_t tokens = x.size() / cols;
    for (size_t first = begin * tile_width; first < std::min(end * tile_width, tokens); first += tile_width) {
        const size_t width = width_at(first, tokens), count = std::min(width, tokens - first);
        float* to = &packed[first * cols];
        if (count < width) std::fill_n(to, width * cols, 0.0f);
        for (size_t col = 0; col < cols; col += 16) // 16 columns of a token are a cache line
            for (size_t t = 0; t < count; t++)
                for (size_t k = col; k < std::min(col + 16, cols); k++) to[k * width + t] = x[(first + t) * cols + k];
    }
}

// Computes rows first .. first + count - 1, decoded in `panel`, for all tokens.
void multiply_panel(const Product& p, std::span<const float> packed, size_t tokens, const float* panel, size_t stride,
                    uint32_t first, uint32_t count) {
    constexpr size_t depth = std::max<size_t>(128, 4096 / tile_width); // of a block of `packed` that stays in the L1 cache
    const size_t cols = p.w.cols, rows = (count + tile_rows - 1) / tile_rows * tile_rows;
    HWY_ALIGN float sums[max_panel_rows * tile_width];
    for (size_t token = 0; token < tokens; token += tile_width) {
        const size_t width = width_at(token, tokens);
        const float* x = &packed[token * cols];
        std::fill_n(sums, rows * width, 0.0f);
        for (size_t k = 0; k < cols; k += depth)
            multiply_tiles(sums, {panel + k, stride, 1}, x + k * width, std::min(depth, cols - k), rows, width / lanes);
        for (size_t t = 0; t < std::min(width, tokens - token); t++)
            for (uint32_t r = 0; r < count; r++) put(p, token + t, first + r, sums[r * width + t]);
    }
}

// Computes rows begin .. end - 1 for a block of tokens.
void multiply_panels(const Product& p, std::span<const float> packed, size_t tokens, Scratch& scratch, uint32_t begin,
                     uint32_t end) {
    const size_t cols = p.w.cols, row_bytes = p.w.row_bytes();
    const size_t stride = (cols + 15) / 16 * 16 + 16; // not a power of two: its rows would share few lines of the L1 cache
    const size_t fitting = panel_bytes / (stride * sizeof(float)) / tile_rows * tile_rows;
    const auto step = uint32_t(std::clamp(fitting, tile_rows, max_panel_rows));
    const std::span panel = scratch.panel.first(step * stride);
    for (uint32_t first = begin; first < end; first += step) {
        const uint32_t count = std::min(step, end - first);
        const auto bytes = p.w.read(first, count, scratch.bytes);
        for (size_t r = 0; r < (count + tile_rows - 1) / tile_rows * tile_rows; r++) {
            const std::span row = panel.subspan(r * stride, cols);
            if (r < count)
                decode_fast(p.w.type, row, bytes.subspan(r * row_bytes, row_bytes));
            else
                std::ranges::fill(row, 0.0f);
        }
        multiply_panel(p, packed, tokens, panel.data(), stride, first, count);
    }
}

void swiglu_rows(float* gate, const float* up, size_t count) { swiglu(gate, up, count); }

} // namespace
} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq::cpu {
namespace {

HWY_EXPORT(decode_fast);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(token_tile);
HWY_EXPORT(pack_tokens);
HWY_EXPORT(multiply_panels);
HWY_EXPORT(swiglu_rows);

bool in_fixed_point(const Product& p, bool separate) {
    return separate ? has_fixed_point(p.w.type, p.w.cols) : has_fixed_point_blocks(p.w.type, p.w.cols);
}

// Inputs are prepared once for all products of a list, in each form that one of them needs: fixed point for integer products,
// fp32 for the others.
Inputs pack(ThreadPool& pool, std::span<const Product> products, std::span<const float> x, bool separate) {
    const size_t cols = products[0].w.cols, tokens = x.size() / cols;
    auto& storage = per_thread<AlignedFloats, struct Aligned>(); // kept, since fresh memory costs page faults
    auto& fixed = per_thread<AlignedFloats, struct InFixedPoint>();
    Inputs inputs{separate, {}, tokens, {}};
    const auto in_integers = [&](const Product& p) { return in_fixed_point(p, separate); };
    if (std::ranges::any_of(products, in_integers))
        inputs.fixed = to_fixed_point(&pool, fixed.first(fixed_point_floats(tokens, cols)), x, cols);
    if (std::ranges::all_of(products, in_integers)) return inputs;
    if (separate) {
        const std::span aligned = storage.first(x.size()); // loads across two cache lines take twice as long
        std::ranges::copy(x, aligned.begin());
        inputs.x = aligned;
        return inputs;
    }
    const size_t tile = token_tile(), tiles = (tokens + tile - 1) / tile;
    const std::span to = storage.first(tiles * tile * cols);
    pool.each(uint32_t(tiles), 1, [&](uint32_t begin, uint32_t end) { pack_tokens(to, x, cols, begin, end); });
    inputs.x = to;
    return inputs;
}

// Stores sums[tokens][dots_rows], the products of `count` rows from `first` on with a few tokens from `token` on.
void put_sums(const Product& p, const float* sums, size_t token, size_t tokens, uint32_t first, uint32_t count) {
    for (size_t t = 0; t < tokens; t++) {
        float* const y = &p.y[(token + t) * p.w.rows + first];
        const float* const of_token = sums + t * dots_rows;
        for (uint32_t r = 0; r < count; r++) {
            const float product = of_token[r] * p.w.factor(first + r);
            y[r] = p.accumulate ? y[r] + product : product;
        }
    }
}

// Computes rows begin .. end - 1 in integers: of 32 at a time, which stay in the cache for all tokens.
void multiply_fixed(const Product& p, const FixedPoint& x, Scratch& scratch, uint32_t begin, uint32_t end) {
    constexpr uint32_t chunk = 32;
    const size_t row_bytes = p.w.row_bytes();
    float sums[max_fixed_point_tokens * dots_rows];
    for (uint32_t first = begin; first < end; first += chunk) {
        const uint32_t count = std::min(chunk, end - first);
        const auto read = p.w.read(first, count, scratch.bytes);
        const auto memory = p.w.data.empty() ? read : p.w.data; // a row of the file may be followed by others
        const auto* bytes = reinterpret_cast<const uint8_t*>(read.data());
        const auto* end = reinterpret_cast<const uint8_t*>(memory.data() + memory.size());
        for (size_t token = 0; token < x.tokens; token += max_fixed_point_tokens) {
            const size_t tokens = std::min(max_fixed_point_tokens, x.tokens - token);
            for (uint32_t i = 0; i < count; i += dots_rows) {
                const auto rows = std::min(uint32_t(dots_rows), count - i);
                const uint8_t* of_rows[dots_rows]; // the last is repeated if there are fewer
                for (uint32_t r = 0; r < dots_rows; r++) of_rows[r] = bytes + (i + std::min(r, rows - 1)) * row_bytes;
                dots(p.w.type, sums, of_rows, end, x, token, tokens);
                put_sums(p, sums, token, tokens, first + i, rows);
            }
        }
    }
}

void check(const Product& p, std::span<const float> x) {
    ENSURE(x.size() % p.w.cols == 0 && p.y.size() == x.size() / p.w.cols * p.w.rows, "{}: {} outputs for {} inputs", p.w.name,
           p.y.size(), x.size());
}

} // namespace

void multiply(const Product& p, const Inputs& x, uint32_t begin, uint32_t end) {
    auto& scratch = per_thread<Scratch>();
    if (x.fixed.tokens != 0 && in_fixed_point(p, x.separate))
        multiply_fixed(p, x.fixed, scratch, begin, end);
    else if (!x.separate)
        HWY_DYNAMIC_DISPATCH(multiply_panels)(p, x.x, x.tokens, scratch, begin, end);
    else
        HWY_DYNAMIC_DISPATCH(multiply_rows)(p, x.x, scratch, begin, end);
}

size_t token_tile() { return HWY_DYNAMIC_DISPATCH(token_tile)(); }

void pack_tokens(std::span<float> packed, std::span<const float> x, size_t cols, uint32_t begin, uint32_t end) {
    HWY_DYNAMIC_DISPATCH(pack_tokens)(packed, x, cols, begin, end);
}

void swiglu(float* gate, const float* up, size_t count) { HWY_DYNAMIC_DISPATCH(swiglu_rows)(gate, up, count); }

void decode_weights(GgmlType type, std::span<float> y, std::span<const std::byte> row) {
    HWY_DYNAMIC_DISPATCH(decode_fast)(type, y, row);
}

namespace {

// Whether all matrices of a network have a property, but for the small ones: the router, ssm_beta and ssm_alpha.
template <class Has> bool all_matrices(const Network& net, const Has& has) {
    const auto all_of = [&](std::initializer_list<const host::Linear*> linears) {
        return std::ranges::all_of(linears, [&](const host::Linear* l) { return has(l->tensor); });
    };
    const auto of_layer = [&](const host::Layer& l) {
        const auto& r = l.recurrence;
        return all_of({&l.ffn_gate_up.gate, &l.ffn_gate_up.up, &l.ffn_down}) &&
               (!l.shared || all_of({&l.shared->gate_up.gate, &l.shared->gate_up.up, &l.shared->down})) &&
               (r ? all_of({&r->attn_qkv, &r->attn_gate, &r->ssm_out})
                  : all_of({&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output}));
    };
    return has(net.output.tensor) && std::ranges::all_of(net.layers, of_layer) &&
           (!net.mtp || (has(net.mtp->eh_proj.tensor) && of_layer(net.mtp->layer)));
}

} // namespace

uint32_t max_separate_rows(const Network& net) {
    constexpr uint32_t max_integer_rows = 16; // which decode them once
    constexpr uint32_t max_decoded_rows = 8;  // every few of them decode the weights anew: a block of more is faster
    const bool all = all_matrices(net, [](const Tensor& t) { return has_fixed_point(t.type, t.cols); });
    return all ? max_integer_rows : max_decoded_rows;
}

bool has_alike_rows(const Network& net) {
    return all_matrices(net, [](const Tensor& t) { return has_fixed_point_blocks(t.type, t.cols); });
}

void matmul(ThreadPool& pool, std::span<const Product> products, std::span<const float> x, bool separate) {
    uint32_t rows = 0;
    for (const Product& p : products) {
        check(p, x);
        rows += p.w.rows;
    }
    const Inputs inputs = pack(pool, products, x, separate);
    pool.each(rows, 16, [&](uint32_t begin, uint32_t end) {
        uint32_t first = 0; // of this product, among the rows of all
        for (const Product& p : products) {
            const uint32_t from = std::max(begin, first), to = std::min(end, first + p.w.rows);
            if (from < to) multiply(p, inputs, from - first, to - first);
            first += p.w.rows;
        }
    });
}

void gated_matmul(ThreadPool& pool, std::span<float> gate, std::span<float> up, const Tensor& w_gate, const Tensor& w_up,
                  std::span<const float> x, bool separate) {
    const Product products[] = {{gate, w_gate}, {up, w_up}};
    for (const Product& p : products) check(p, x);
    const Inputs inputs = pack(pool, products, x, separate);
    pool.each(w_gate.rows, 16, [&](uint32_t begin, uint32_t end) {
        for (const Product& p : products) multiply(p, inputs, begin, end);
        for (size_t t = 0; t < inputs.tokens; t++) {
            const size_t at = t * w_gate.rows + begin;
            swiglu(&gate[at], &up[at], end - begin);
        }
    });
}

} // namespace tq::cpu
#endif
