#include "tools/check/conformance/vectors/random.h"
#include <cmath>

namespace tq::conformance {

float Random::normal() {
    int sum = -4 * 65535;
    for (int half = 0; half < 2; half++)
        for (uint64_t word = bits(), i = 0; i < 4; i++) sum += int(word >> (16 * i) & 0xffff);
    return float(sum) * 0x1.3988e2p-16f;
}

std::vector<float> Random::normals(size_t n, float deviation) {
    std::vector<float> out(n);
    for (float& v : out) v = normal() * deviation;
    return out;
}

HeadConditions random_conditions(Random& random, uint32_t kv_heads, uint32_t head_dim) {
    HeadConditions out;
    for (uint32_t i = 0; i < kv_heads * head_dim; i++) {
        out.factors.push_back(std::exp2(random.normal()));
        out.means.push_back(random.normal() / 2);
    }
    return out;
}

std::vector<float> random_value_scales(Random& random, uint32_t kv_heads, uint32_t head_dim) {
    std::vector<float> out(size_t(kv_heads) * head_dim);
    for (float& scale : out) scale = std::ldexp(1.0f, int(random.below(7)) - 3);
    return out;
}

} // namespace tq::conformance
