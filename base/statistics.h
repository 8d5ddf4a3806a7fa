// Statistics of values, and searches in floats that take as long as reading them: a vocabulary's logits are a megabyte.
#pragma once
#include <algorithm>
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

bool all_finite(std::span<const float> values); // true for no values
float greatest(std::span<const float> values);  // NaNs do not count; -INFINITY if there is nothing else
// The index of the greatest value, the first of equal ones: of logits, the most probable token. 0 for no values and for NaNs.
uint32_t argmax(std::span<const float> values);
// Calls use(index) for each value that passes, in order; best if few pass. passes(value) is tested for 64 values at a time,
// without a branch: loops of a fixed length become vector instructions with all compilers' options.
template <class Passes, class Use> void each_passing(std::span<const float> values, const Passes& passes, const Use& use) {
    constexpr size_t at_once = 64;
    for (size_t begin = 0; begin < values.size(); begin += at_once) {
        const std::span<const float> part = values.subspan(begin, std::min(at_once, values.size() - begin));
        uint32_t any = 1;
        if (part.size() == at_once) {
            any = 0;
            for (size_t i = 0; i < at_once; i++) any |= uint32_t(passes(part[i]));
        }
        for (size_t i = 0; any != 0 && i < part.size(); i++)
            if (passes(part[i])) use(uint32_t(begin + i));
    }
}

} // namespace tq
