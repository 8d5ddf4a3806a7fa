// C's roundf: to the nearest whole number, halves away from zero. The library's own makes 1 of 0.49999997 in MinGW.
#pragma once
#include <cmath>

namespace tq::test {

inline int rounded(float x) {
    const int away = int(std::floor(std::fabs(double(x)) + 0.5));
    return x < 0 ? -away : away;
}

} // namespace tq::test
