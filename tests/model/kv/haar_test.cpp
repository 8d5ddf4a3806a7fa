// The Haar rotations: torch's own matrices, orthogonal, and the same words on every platform.
#include "model/kv/haar.h"
#include "tests/support/haar_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

uint64_t hash_of(const std::vector<float>& matrix) { // FNV-1a of the bytes, little-endian
    uint64_t hash = 0xcbf29ce484222325;
    for (const float entry : matrix)
        for (int i = 0; i < 4; i++) hash = (hash ^ (std::bit_cast<uint32_t>(entry) >> (8 * i) & 0xff)) * 0x100000001b3;
    return hash;
}

} // namespace

TEST_CASE("entries are torch's, up to rounding") {
    double fp64_error = 0, fp32_error = 0;
    for (const HaarVector& vector : haar_vectors) {
        const uint32_t d = vector.head_dim;
        const std::vector<float> q = haar_matrix(d, vector.seed);
        for (uint32_t i = 0; i < vector.fp64.size(); i++) {
            const double entry = q[size_t(37 * i % d) * d + 53 * i % d];
            fp64_error = std::max(fp64_error, std::fabs(entry - double(vector.fp64[i])));
            fp32_error = std::max(fp32_error, std::fabs(entry - double(vector.fp32[i])));
        }
    }
    MESSAGE("largest difference from torch: ", fp64_error, " (QR in fp64), ", fp32_error, " (QR in fp32)");
    CHECK(fp64_error < 3e-7); // torch's logarithms, sines and cosines differ in the last bit
    CHECK(fp32_error < 5e-6); // the error of its own fp32 QR: A has condition numbers up to some thousands
}

TEST_CASE("rows and columns are orthonormal within 1e-7, and no entry is tiny") {
    for (const uint32_t d : {64u, 128u, 256u})
        for (const uint64_t seed : {42, 542, 1042, 17042, 63542}) {
            CAPTURE(d);
            CAPTURE(seed);
            const std::vector<float> q = haar_matrix(d, seed);
            double error = 0;
            for (uint32_t i = 0; i < d; i++)
                for (uint32_t j = 0; j <= i; j++) {
                    double rows = 0, columns = 0;
                    for (uint32_t k = 0; k < d; k++) {
                        rows += double(q[size_t(i) * d + k]) * double(q[size_t(j) * d + k]);
                        columns += double(q[size_t(k) * d + i]) * double(q[size_t(k) * d + j]);
                    }
                    const double right = i == j ? 1 : 0;
                    error = std::max({error, std::fabs(rows - right), std::fabs(columns - right)});
                }
            CHECK(error < 1e-7);
            CHECK(std::ranges::all_of(q, [](float x) { return x == 0 || std::fabs(x) >= 0x1p-40f; }));
        }
}

TEST_CASE("the same words on every platform") {
    struct Golden {
        uint32_t head_dim;
        uint64_t seed, hash;
    };
    constexpr Golden golden[] = {
        {64, 42, 0xd051c23970cf605b},   {64, 35542, 0x396ca414d7c4963b},  {128, 42, 0xe8eb470ebc3a0d71},
        {128, 542, 0x6acc2fe2f43779df}, {128, 1042, 0xdab1705b75dbc952},  {128, 35542, 0x75ec72028a86a7e1},
        {256, 42, 0x3ba788d60625e99f},  {256, 28042, 0x56e9794ce922f604},
    };
    for (const auto& [head_dim, seed, hash] : golden) {
        CAPTURE(head_dim);
        CAPTURE(seed);
        CHECK(hash_of(haar_matrix(head_dim, seed)) == hash);
    }
}

TEST_CASE("the low 32 bits of the seed count") {
    CHECK(haar_matrix(64, 42) == haar_matrix(64, 42 + (uint64_t(1) << 32)));
    CHECK(haar_matrix(64, 42) != haar_matrix(64, 43));
}
