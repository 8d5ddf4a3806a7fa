// Sizes of shared memory, computed by hand, and the names of specialisation constants.
#include "runtime/specialise.h"
#include "shaders.gen.h"
#include "test_shaders.gen.h"
#include <doctest/doctest.h>
using namespace tq;

namespace {

uint64_t bytes(const AnyShader& shader, std::vector<uint32_t> constants) { return shared_memory_bytes(shader, constants); }

} // namespace

TEST_CASE("kernels take the shared memory that their sources say") {
    CHECK(bytes(shader::swiglu, {64}) == 0);
    CHECK(bytes(shader::rms_norm, {64}) == 64 * 4);
    CHECK(bytes(shader::rms_norm, {8}) == 8 * 4);
    CHECK(bytes(shader::matvec_q4_0, {64, 16, 2, 0}) == 2 * 64 * 4 + 64 / 16 * 4);
    CHECK(bytes(shader::matvec_q4_0, {8, 1, 4, 1}) == 4 + 8 * 4);
    CHECK(bytes(shader::matvec_q4_0, {64, 16, 2, 0, 1, 0, 32, 8}) == 8 * 2 * 64 * 4 + 64 / 16 * 4);
    CHECK(bytes(shader::matvec_q4_0_subgroup, {64, 16, 2, 0}) == 4 + 64 / 16 * 4);
    CHECK(bytes(shader::matvec_q4_0_subgroup, {128, 64, 4, 0, 1, 0, 32, 1}) == 4 * 128 / 32 * 4 + 128 / 64 * 4);
    CHECK(bytes(shader::matmul_q4_0, {64, 8, 2, 0}) == 0);
    CHECK(bytes(shader::matmul_tiled_q4_0, {128, 64, 32, 4, 4, 0, 1}) == (64 + 32) * 36 * 4);
}

TEST_CASE("arrays, structs, vectors and lengths that are expressions") {
    const auto expected = [](uint32_t x, uint32_t y, uint32_t length, bool wide) {
        const uint64_t rows = wide ? length * 4 : length - 1;
        const auto up = [](uint64_t at, uint64_t step) { return (at + step - 1) / step * step; };
        uint64_t end = 4;                                 // one
        end = up(end, 8) + (length + 3) / 4 * 8;          // pairs
        end = up(end, 16) + rows % 7 * 32;                // entries: weight at 0, direction at 16, used at 28
        end += rows * 2 * 4;                              // table
        return up(end, 16) + uint64_t((x * y) >> 1) * 16; // words
    };
    CHECK(bytes(test_shader::shared, {64, 5, false, 2}) == (4 + 4) + 2 * 8 + 8 + 4 * 32 + 4 * 8 + 64 * 16);
    for (const uint32_t length : {5u, 6u, 9u, 13u})
        for (const bool wide : {false, true})
            for (const auto& [x, y] : {std::pair(64u, 2u), std::pair(16u, 1u), std::pair(4u, 3u)})
                CHECK(bytes(test_shader::shared, {x, length, wide, y}) == expected(x, y, length, wide));
}

TEST_CASE("constants have the names of the source") {
    CHECK(constant_names(shader::rms_norm) == std::vector<std::string>{"workgroup"});
    CHECK(constant_names(shader::matvec_f32) == std::vector<std::string>{"workgroup", "lanes", "rows", "matvec_output",
                                                                         "interleave", "normed", "subgroup", "columns", "experts",
                                                                         "blocks"});
    CHECK(constant_names(shader::q_norm_rope) ==
          std::vector<std::string>{"workgroup", "head_dim", "rotation", "conditioned", "rotary"});
    CHECK(constant_names(test_shader::shared) == std::vector<std::string>{"workgroup", "length", "wide", "workgroup_y"});
    CHECK(constant_names(test_shader::count_up).empty());
}
