#include "model/kv/conditioning.h"
#include "base/dot.h"
#include "base/ensure.h"
#include "base/printable.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tq {
namespace {

using Kind = KeyConditioning::Kind;
constexpr std::array named_kinds{std::pair(Kind::automatic, "auto"), std::pair(Kind::none, "none"),
                                 std::pair(Kind::norms, "norms")};

double rms(float a, float b) { return std::sqrt((double(a) * a + double(b) * b) / 2); }

bool is_normal(double v) {
    return v == 0 || (std::fabs(v) >= std::numeric_limits<float>::min() && std::fabs(v) <= std::numeric_limits<float>::max());
}

// Returns the layer's part of `values` [layers][kv_heads][head_dim].
std::span<const float> of_layer(const KeyCalibration& c, const std::vector<float>& values, uint32_t layer) {
    const size_t count = size_t(c.kv_heads) * c.head_dim;
    return std::span(values).subspan(layer * count, count);
}

// Queries are multiplied by the scales, and keys, less the means, divided by them.
void set_conditions(HeadNorms& norms, std::span<const float> scales, std::span<const float> means, bool plain) {
    norms.q_conditions.factors.assign(scales.begin(), scales.end());
    for (const float scale : scales) norms.k_conditions.factors.push_back(1 / scale);
    if (plain || std::ranges::all_of(means, [](float mean) { return mean == 0; })) return;
    for (HeadConditions* each : {&norms.q_conditions, &norms.k_conditions}) each->means.assign(means.begin(), means.end());
}

} // namespace

KeyConditioning parse_key_conditioning(std::string_view text) {
    for (const auto& [kind, name] : named_kinds)
        if (text == name) return {kind, {}, nullptr};
    return {Kind::measured, std::string(text), nullptr};
}

std::string describe(const KeyConditioning& conditioning) {
    for (const auto& [kind, name] : named_kinds)
        if (conditioning.kind == kind) return name;
    return printable(conditioning.file);
}

void balance_norms(std::span<float> q, std::span<float> k, uint32_t rotary_dim) {
    const size_t turned = rotary_dim == 0 ? q.size() : rotary_dim, half = turned / 2;
    const auto balance = [&](size_t i, size_t j) {
        const double squared = rms(k[i], k[j]) / rms(q[i], q[j]), g = std::sqrt(squared);
        const std::array balanced{q[i] * g, q[j] * g, k[i] / g, k[j] / g};
        if (!(g > 0) || !std::ranges::all_of(balanced, is_normal)) return;
        q[i] = float(balanced[0]);
        q[j] = float(balanced[1]);
        k[i] = float(balanced[2]);
        k[j] = float(balanced[3]);
    };
    for (size_t i = 0; i < half; i++) balance(i, i + half);
    for (size_t i = turned; i < q.size(); i++) balance(i, i);
}

HeadNorms head_norms(const KeyConditioning& conditioning, uint32_t layer, std::vector<float> q, std::vector<float> k,
                     const KeyScaling& from_weights, uint32_t rotary_dim) {
    ENSURE(conditioning.kind != Kind::automatic, "layer {}: not decided", layer);
    HeadNorms norms{std::move(q), std::move(k), {}, {}};
    if (conditioning.kind == Kind::norms) balance_norms(norms.q, norms.k, rotary_dim);
    if (conditioning.kind == Kind::norms && !from_weights.scales.empty())
        set_conditions(norms, from_weights.scales, from_weights.means, conditioning.plain);
    if (conditioning.kind != Kind::measured) return norms;
    ENSURE(conditioning.calibration != nullptr, "{} was not read", conditioning.file);
    const KeyCalibration& c = *conditioning.calibration;
    ENSURE(layer < c.layers && norms.q.size() == c.head_dim, "layer {} of {}, head_dim {} for {}", layer, c.layers,
           norms.q.size(), c.head_dim);
    set_conditions(norms, of_layer(c, c.scales, layer), of_layer(c, c.means, layer), conditioning.plain);
    return norms;
}

void condition_key(std::span<float> x, const HeadConditions& conditions, uint32_t head, std::span<const float> turns) {
    const size_t half = turns.size() / 2;
    if (!conditions.means.empty()) {
        const float* mean = &conditions.means[head * x.size()];
        for (size_t i = 0; i < half; i++) {
            const float a = mean[i], b = mean[i + half], cosine = turns[2 * i], sine = turns[2 * i + 1];
            x[i] -= a * cosine - b * sine;
            x[i + half] -= b * cosine + a * sine;
        }
        for (size_t i = turns.size(); i < x.size(); i++) x[i] -= mean[i];
    }
    condition_query(x, conditions, head);
}

void condition_query(std::span<float> x, const HeadConditions& conditions, uint32_t head) {
    const float* factor = &conditions.factors[head * x.size()];
    for (size_t i = 0; i < x.size(); i++) x[i] *= factor[i];
}

// The mean turns by the angles of the page's first position, and so its product with x is a sum of their cosines and sines.
void page_scores(std::span<float> scores, std::span<const float> x, const HeadConditions& conditions, uint32_t head, float scale,
                 std::span<const float> rope_table, size_t turned) {
    const size_t half = turned / 2;
    const float* mean = &conditions.means[head * x.size()];
    std::array<float, 256> products; // as a row of the table
    ENSURE(turned <= products.size(), "{} channels", turned);
    for (size_t i = 0; i < half; i++) {
        products[2 * i] = scale * (x[i] * mean[i] + x[i + half] * mean[i + half]);
        products[2 * i + 1] = scale * (x[i + half] * mean[i] - x[i] * mean[i + half]);
    }
    for (size_t page = 0; page < scores.size(); page++)
        scores[page] = dot(products.data(), &rope_table[page * mean_positions * turned], turned);
}

} // namespace tq
