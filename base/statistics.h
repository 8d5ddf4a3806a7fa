// Mean, median and maximum of values.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

struct Statistics {
    double mean = 0, deviation = 0; // deviation: the standard deviation of a sample of these; 0 for one value
};

Statistics statistics(std::span<const double> values); // zeros for no values

// The mean of the middle two values if their number is even; 0 for no values.
double median(std::vector<double> values);

// The index of the greatest value, the first of equal ones: of logits, the most probable token. `values` is not empty.
uint32_t argmax(std::span<const float> values);

} // namespace tq
