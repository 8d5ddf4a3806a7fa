#include "tools/page_lab/levels.h"
#include "base/ensure.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>

namespace tq::page_lab {
namespace {

double density(double x) { return std::isinf(x) ? 0 : std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846); }
double below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

// Lloyd's iteration on the normal density itself.
Levels make_normal_levels(uint32_t bits) {
    const size_t n = size_t(1) << bits;
    std::vector<double> values(n);
    for (size_t i = 0; i < n; i++) values[i] = n == 1 ? 0 : -3 + 6 * (double(i) + 0.5) / double(n);
    double second = 0;
    for (int iteration = 0; iteration < 4000; iteration++) {
        second = 0;
        std::vector<double> fresh(n);
        for (size_t i = 0; i < n; i++) {
            const double from = i == 0 ? -INFINITY : (values[i - 1] + values[i]) / 2;
            const double to = i + 1 == n ? INFINITY : (values[i] + values[i + 1]) / 2;
            const double mass = below(to) - below(from);
            fresh[i] = mass > 0 ? (density(from) - density(to)) / mass : values[i];
            second += mass * fresh[i] * fresh[i];
        }
        values = fresh;
    }
    return {{values.begin(), values.end()}, 1 - second};
}

} // namespace

float Levels::nearest(float x) const {
    const auto above = std::ranges::lower_bound(values, x);
    if (above == values.begin()) return values.front();
    if (above == values.end()) return values.back();
    return *above - x < x - above[-1] ? *above : above[-1];
}

const Levels& normal_levels(uint32_t bits) {
    static const auto all = [] {
        std::vector<Levels> out;
        for (uint32_t b = 0; b <= 8; b++) out.push_back(make_normal_levels(b));
        return out;
    }();
    ENSURE(bits <= 8, "{} bits", bits);
    return all[bits];
}

void fit_levels(std::vector<float>& values, std::span<const float> x) {
    for (int iteration = 0; iteration < 12; iteration++) {
        std::vector<double> sums(values.size(), 0.0);
        std::vector<size_t> counts(values.size(), 0);
        for (const float v : x) {
            size_t at = size_t(std::ranges::lower_bound(values, v) - values.begin());
            if (at == values.size() || (at > 0 && v - values[at - 1] < values[at] - v)) at--;
            sums[at] += v;
            counts[at]++;
        }
        for (size_t i = 0; i < values.size(); i++)
            if (counts[i] > 0) values[i] = float(sums[i] / double(counts[i]));
        std::ranges::sort(values);
    }
}

Trellis::Trellis(uint32_t bits, uint32_t memory, uint32_t entering)
    : bits_(bits), memory_(memory), entering_(entering), levels_(size_t(1) << (memory + bits)) {
    ENSURE(entering <= bits && entering <= memory && memory <= 10 && bits <= 8, "{} {} {}", bits, memory, entering);
    train();
}

double Trellis::search(std::vector<Step>& path, std::span<const float> x) const {
    const uint32_t states = 1u << memory_, codes = 1u << bits_;
    path.resize(x.size());
    std::vector<Step> all(x.size() * states); // [samples][states]: the step that leads there
    std::vector<float> cost(states, std::numeric_limits<float>::infinity()), fresh(states);
    cost[0] = 0;
    for (size_t i = 0; i < x.size(); i++) {
        std::ranges::fill(fresh, std::numeric_limits<float>::infinity());
        Step* const steps = &all[i * states];
        for (uint32_t s = 0; s < states; s++) {
            if (std::isinf(cost[s])) continue;
            for (uint32_t c = 0; c < codes; c++) {
                const float error = x[i] - levels_[s * codes + c], sum = cost[s] + error * error;
                const uint32_t to = next(s, c);
                if (sum < fresh[to]) fresh[to] = sum, steps[to] = {uint16_t(s), uint16_t(c)};
            }
        }
        std::swap(cost, fresh);
    }
    uint32_t state = uint32_t(std::ranges::min_element(cost) - cost.begin());
    const double least = cost[state];
    for (size_t i = x.size(); i-- > 0; state = path[i].state) path[i] = all[i * states + state];
    return least;
}

double Trellis::code(std::span<float> y, std::span<const float> x) const {
    std::vector<Step> path;
    const double error = search(path, x);
    for (size_t i = 0; i < x.size(); i++) y[i] = levels_[(size_t(path[i].state) << bits_) + path[i].code];
    return error;
}

void Trellis::train() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const uint32_t codes = 1u << bits_;
    for (size_t s = 0; s < levels_.size(); s += codes) { // spread evenly within a state, shifted from state to state
        const float shift = std::uniform_real_distribution<float>(-0.5f, 0.5f)(random);
        std::vector<float> of_state(normal_levels(bits_).values);
        const float step = bits_ == 0 ? 1 : of_state[codes / 2] - of_state[codes / 2 - 1];
        for (float& v : of_state) v = v * 1.05f + shift * step;
        for (uint32_t c = 0; c < codes; c++) { // neighbouring levels lead to different states
            const uint32_t parts = 1u << entering_, high = c % parts, low = c / parts;
            levels_[s + (high << (bits_ - entering_) | low)] = of_state[c];
        }
    }
    std::vector<float> x(256);
    std::vector<Step> path;
    const size_t runs = std::max<size_t>(60, levels_.size() / 4);
    for (int iteration = 0; iteration < 24; iteration++) {
        std::vector<double> sums(levels_.size(), 0.0), counts(levels_.size(), 0.0);
        std::mt19937 samples(uint32_t(2 + iteration % 4));
        for (size_t run = 0; run < std::min<size_t>(runs, 300); run++) {
            for (float& v : x) v = normal(samples);
            search(path, x);
            for (size_t i = 0; i < x.size(); i++) {
                const size_t at = (size_t(path[i].state) << bits_) + path[i].code;
                sums[at] += x[i];
                counts[at] += 1;
            }
        }
        for (size_t i = 0; i < levels_.size(); i++)
            if (counts[i] > 2) levels_[i] = float(sums[i] / counts[i]);
    }
}

const Trellis& trellis(uint32_t bits, uint32_t memory, uint32_t entering) {
    static std::mutex mutex;
    static std::map<std::array<uint32_t, 3>, std::unique_ptr<Trellis>> all;
    const std::lock_guard lock(mutex);
    auto& one = all[{bits, memory, entering}];
    if (!one) one = std::make_unique<Trellis>(bits, memory, entering);
    return *one;
}

} // namespace tq::page_lab
