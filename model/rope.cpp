#include "model/rope.h"
#include <cmath>

namespace tq {

std::vector<float> rope_table(const Config& config, uint32_t positions) {
    const uint32_t pairs = config.head_dim / 2;
    std::vector<float> table(size_t(positions) * pairs * 2);
    for (uint32_t i = 0; i < pairs; i++) {
        const double frequency = std::pow(double(config.rope_theta), -2.0 * i / config.head_dim);
        for (uint32_t p = 0; p < positions; p++) {
            table[(size_t(p) * pairs + i) * 2] = float(std::cos(p * frequency));
            table[(size_t(p) * pairs + i) * 2 + 1] = float(std::sin(p * frequency));
        }
    }
    return table;
}

} // namespace tq
