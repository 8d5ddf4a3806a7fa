// Integer products with AVX-VNNI have the bits of AVX-512 VNNI. Skipped if the processor does not have both.
#include "model/cpu/kernels.h"
#include "tests/support/cpu_targets.h"
#include "tests/support/random_matrix.h"
#include "tests/support/skip.h"
#include <cstring>
#include <limits>

using namespace tq;
using conformance::Random;

namespace {

std::vector<float> products(cpu::FixedPointSet set, ThreadPool& pool, const Tensor& w, const std::vector<float>& x) {
    std::vector<float> out(x.size() / w.cols * w.rows);
    REQUIRE(cpu::use_fixed_point(set));
    cpu::matmul(pool, {{out, w}}, x, true);
    return out;
}

} // namespace

TEST_CASE("AVX-VNNI has the bits of AVX-512 VNNI") {
    using cpu::FixedPointSet;
    if (!cpu::use_fixed_point(FixedPointSet::avx_vnni) || !cpu::use_fixed_point(FixedPointSet::vnni))
        return test::skip("this processor does not have both");
    ThreadPool pool(2);
    Random random{7};
    for (const GgmlType type : weight_formats)
        for (const uint32_t cols : {256u, 256u * 3 + 128}) {
            if (cols % block_format(type)->elements != 0 || !cpu::has_fixed_point(type, cols)) continue;
            CAPTURE(type_name(type));
            const test::Matrix m(type, 9, cols, random);
            for (const uint32_t tokens : {1u, 3u, 16u, 33u}) {
                CAPTURE(tokens);
                auto x = random.normals(size_t(tokens) * cols);
                if (tokens == 3)
                    x[5] = std::numeric_limits<float>::infinity(), x[cols + 40] = std::numeric_limits<float>::quiet_NaN();
                const auto a = products(FixedPointSet::avx_vnni, pool, m.tensor, x),
                           b = products(FixedPointSet::vnni, pool, m.tensor, x);
                CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0); // numbers that are not finite, too
            }
        }
}
