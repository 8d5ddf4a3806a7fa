#include "base/statistics.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tq {

Statistics statistics(std::span<const double> values) {
    if (values.empty()) return {};
    const auto count = double(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return {mean, values.size() < 2 ? 0 : std::sqrt(squares / (count - 1))};
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return values.size() % 2 != 0 ? *middle : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

bool all_finite(std::span<const float> values) {
    constexpr uint32_t exponent = 0x7f800000; // its bits are all ones if a number is not finite
    bool finite = true;
    each_passing(
        values, [](float x) { return (std::bit_cast<uint32_t>(x) & exponent) == exponent; }, [&](uint32_t) { finite = false; });
    return finite;
}

float greatest(std::span<const float> values) {
    constexpr size_t lanes = 64;
    float most[lanes];
    std::ranges::fill(most, -INFINITY);
    size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes)
        for (size_t lane = 0; lane < lanes; lane++) most[lane] = values[i + lane] > most[lane] ? values[i + lane] : most[lane];
    for (; i < values.size(); i++) most[0] = values[i] > most[0] ? values[i] : most[0];
    return *std::ranges::max_element(most);
}

uint32_t argmax(std::span<const float> values) {
    const float most = greatest(values);
    uint32_t first = UINT32_MAX;
    each_passing(
        values, [most](float x) { return x == most; }, [&](uint32_t i) { first = std::min(first, i); });
    return first == UINT32_MAX ? 0 : first;
}

} // namespace tq
