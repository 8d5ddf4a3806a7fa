#include "base/statistics.h"
#include <algorithm>
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

uint32_t argmax(std::span<const float> values) { return uint32_t(std::ranges::max_element(values) - values.begin()); }

} // namespace tq
