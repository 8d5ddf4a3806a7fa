// Scales of channels that follow from the weights alone, for models whose file says nothing about keys and values. The squares of
// a matrix's rows say how large each channel of its product is, if the inputs of all columns are alike; the input norm's weights
// are counted in.
// - Values: a channel's scale balances its size against the columns of attn_output that multiply it, so that an error of the
//   cache counts alike in all channels. It is a power of two, so dividing and multiplying by it changes no bits.
// - Keys of models without norms of heads: each pair of channels that RoPE turns gets g with g^2 = rms(key) / rms(query), by
//   which keys and queries become equally large.
// The results decide about stored bits, so they must be equal on every machine and for any number of threads: sums are in a fixed
// order, and logarithms are computed by integers, as libraries' differ in the last bit.
#include "model/weights/channel_scales.h"
#include "base/ensure.h"
#include "base/mapped_file.h"
#include "model/rope.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

namespace tq {
namespace {

constexpr uint32_t enough_rows = 512; // of attn_output
constexpr uint32_t run = 32;          // rows whose squares are added up first
constexpr int64_t one = 1 << 16;      // of logarithms
constexpr int64_t max_exponent = 20;

// Sums of squares of the matrix's rows times `norm`, and of the bias.
std::vector<double> row_squares(ThreadPool& pool, const Tensor& w, std::span<const float> norm,
                                const std::optional<Tensor>& bias) {
    std::vector<double> out(w.rows);
    pool.each(w.rows, 8, [&](uint32_t begin, uint32_t end) {
        std::vector<float> row(w.cols);
        std::vector<std::byte> scratch;
        for (uint32_t r = begin; r < end; r++) {
            w.decode(r, row, scratch);
            for (uint32_t i = 0; i < w.cols; i++) {
                const double product = double(row[i]) * norm[i];
                out[r] += product * product;
            }
        }
    });
    const std::vector<float> b = bias ? to_floats(*bias) : std::vector<float>();
    for (size_t r = 0; r < b.size(); r++) out[r] += double(b[r]) * b[r];
    return out;
}

// Sums of squares of the columns over rows 0, step, 2 step, ...: run by run, so that the order of additions does not depend on
// the threads.
std::vector<double> column_squares(ThreadPool& pool, const Tensor& w) {
    const uint32_t step = std::max(1u, w.rows / enough_rows), rows = (w.rows + step - 1) / step, runs = (rows + run - 1) / run;
    std::vector<std::vector<double>> sums(runs, std::vector<double>(w.cols));
    pool.each(runs, 1, [&](uint32_t begin, uint32_t end) {
        std::vector<float> row(w.cols);
        std::vector<std::byte> scratch;
        for (uint32_t r = begin * run; r < std::min(end * run, rows); r++) {
            w.decode(r * step, row, scratch);
            std::vector<double>& sum = sums[r / run];
            for (uint32_t c = 0; c < w.cols; c++) sum[c] += double(row[c]) * row[c];
        }
    });
    std::vector<double> out(w.cols);
    for (const std::vector<double>& sum : sums)
        for (uint32_t c = 0; c < w.cols; c++) out[c] += sum[c];
    return out;
}

// Returns log2(x) in units of 2^-16, rounded down; nullopt for 0 and numbers that are not finite. Computed by integers and
// squares alone: libraries' logarithms differ.
std::optional<int64_t> logarithm(double x) {
    const auto bits = std::bit_cast<uint64_t>(x);
    const auto field = int64_t(bits >> 52);
    if (field <= 0 || field >= 2047) return std::nullopt;
    double mantissa = std::bit_cast<double>((bits & 0xfffffffffffff) | 1023ull << 52);
    int64_t out = field - 1023;
    for (int64_t bit = 1; bit < one; bit *= 2) {
        mantissa *= mantissa;
        const bool above = mantissa >= 2;
        if (above) mantissa *= 0.5;
        out = 2 * out + above;
    }
    return out;
}

// Rounds down also for negative numbers, for which C++ rounds towards 0.
int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// squares: g^4 of a head's channels. Writes the power of two next to g over the geometric mean.
void scales_of_head(std::span<float> scales, std::span<const double> squares) {
    std::vector<std::optional<int64_t>> logarithms;
    for (const double square : squares) logarithms.push_back(logarithm(square));
    const auto count = int64_t(std::ranges::count_if(logarithms, [](const auto& l) { return l.has_value(); }));
    const int64_t sum = std::accumulate(logarithms.begin(), logarithms.end(), int64_t(0),
                                        [](int64_t all, const auto& l) { return all + l.value_or(0); });
    for (size_t c = 0; c < scales.size(); c++) {
        scales[c] = 1;
        if (!logarithms[c]) continue;
        const int64_t unit = 4 * count * one; // of the exponent of g
        const int64_t exponent = floor_divide(2 * (count * *logarithms[c] - sum) + unit, 2 * unit);
        const int64_t kept = std::clamp(exponent, -max_exponent, max_exponent);
        scales[c] = std::bit_cast<float>(uint32_t(kept + 127) << 23);
    }
}

// Returns g of each pair of channels: g^2 = rms(key) / rms(query); neither is taken to be below 10^-6 of that of all pairs. g is
// 1 if that is not a number.
std::vector<float> scales_of_pairs(std::span<const double> keys, std::span<const double> queries) {
    constexpr double min = 1e-12, largest = 1 << 16;
    const auto mean = [](std::span<const double> x) { return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size()); };
    const double min_key = min * mean(keys), min_query = min * mean(queries);
    std::vector<float> out(keys.size(), 1.0f);
    for (size_t i = 0; i < keys.size(); i++) {
        const double g = std::sqrt(std::sqrt(std::max(keys[i], min_key) / std::max(queries[i], min_query)));
        if (g > 0 && std::isfinite(g)) out[i] = float(std::clamp(g, 1 / largest, largest));
    }
    return out;
}

} // namespace

AttentionSquares attention_squares(ThreadPool& pool, const LayerWeights& w) {
    if (w.attn_v.rows == 0 || w.attn_output.rows == 0) return {};
    const std::vector<float> norm = to_floats(w.attn_norm);
    AttentionSquares out{{}, {}, row_squares(pool, w.attn_v, norm, w.attn_v_bias), column_squares(pool, w.attn_output)};
    if (!w.attn_q_norm && !w.attn_k_norm) {
        out.queries = row_squares(pool, w.attn_q, norm, w.attn_q_bias);
        out.keys = row_squares(pool, w.attn_k, norm, w.attn_k_bias);
    }
    check_mapped_files();
    return out;
}

KeyScaling key_scaling(const Config& c, const AttentionSquares& squares, std::span<const float> k_bias) {
    if (squares.keys.empty() && k_bias.empty()) return {};
    const size_t d = c.head_dim, half = d / 2, kv_heads = c.num_key_value_heads, group = c.num_attention_heads / kv_heads;
    KeyScaling out{std::vector<float>(kv_heads * d, 1.0f), std::vector<float>(kv_heads * d)};
    if (!k_bias.empty()) out.means = rope_mean(c, k_bias, mean_positions);
    if (squares.keys.empty()) return out;
    ENSURE(squares.keys.size() == kv_heads * d && squares.queries.size() == group * squares.keys.size(), "{} keys, {} queries",
           squares.keys.size(), squares.queries.size());
    for (size_t head = 0; head < kv_heads; head++) {
        std::vector<double> keys(half), queries(half); // of pairs of channels; the mean is subtracted from keys
        for (size_t i = 0; i < half; i++)
            for (const size_t at : {head * d + i, head * d + i + half}) {
                keys[i] += squares.keys[at] - double(out.means[at]) * out.means[at];
                for (size_t h = 0; h < group; h++)
                    queries[i] += squares.queries[(head * group + h) * d + at - head * d] / double(group);
            }
        const std::vector<float> scales = scales_of_pairs(keys, queries);
        std::ranges::copy(scales, out.scales.begin() + ptrdiff_t(head * d));
        std::ranges::copy(scales, out.scales.begin() + ptrdiff_t(head * d + half));
    }
    return out;
}

std::vector<float> value_scales(const Config& c, const AttentionSquares& squares) {
    if (squares.values.empty()) return {};
    const size_t d = c.head_dim, group = c.num_attention_heads / c.num_key_value_heads;
    ENSURE(squares.values.size() == c.num_key_value_heads * d && squares.columns.size() == squares.values.size() * group,
           "{} values, {} columns", squares.values.size(), squares.columns.size());
    std::vector<float> out(squares.values.size());
    std::vector<double> ratios(d);
    for (size_t head = 0; head < c.num_key_value_heads; head++) {
        for (size_t i = 0; i < d; i++) {
            double columns = 0;
            for (size_t h = head * group; h < (head + 1) * group; h++) columns += squares.columns[h * d + i];
            ratios[i] = columns > 0 ? squares.values[head * d + i] / columns : 0;
        }
        scales_of_head(std::span(out).subspan(head * d, d), ratios);
    }
    return out;
}

} // namespace tq
