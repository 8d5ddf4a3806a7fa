// Sizes of shared memory, computed by hand, and the names of specialisation constants.
#include "base/error.h"
#include "runtime/specialise.h"
#include "shaders.gen.h"
#include "test_shaders.gen.h"
#include <doctest/doctest.h>
using namespace tq;

namespace {

uint64_t bytes(const AnyShader& shader, std::vector<uint32_t> constants) { return shared_memory_bytes(shader, constants); }

// A module from a file: a list of instructions, the first word of each its opcode.
std::vector<uint32_t> module_of(std::initializer_list<std::vector<uint32_t>> instructions) {
    std::vector<uint32_t> code(spirv::header_words);
    for (std::vector<uint32_t> one : instructions) {
        one[0] |= uint32_t(one.size()) << 16;
        code.insert(code.end(), one.begin(), one.end());
    }
    return code;
}

uint64_t shared_bytes_of(std::initializer_list<std::vector<uint32_t>> instructions) {
    const std::vector<uint32_t> code = module_of(instructions);
    const std::span<const uint32_t> words = code;
    return shared_memory_bytes({"a file's", &words, {}}, {});
}

constexpr uint32_t workgroup_storage = 4;

// Whether the specialisation constant `a OPERATION b` is `value`, as the length of an array of 4-byte words.
bool is_value(uint32_t operation, int32_t a, int32_t b, int32_t value) {
    constexpr uint32_t spec_constant_op = 52, i_equal = 170;
    return shared_bytes_of({{spirv::type_int, 1, 32, 1},
                            {spirv::constant, 1, 2, uint32_t(a)},
                            {spirv::constant, 1, 3, uint32_t(b)},
                            {spirv::constant, 1, 4, uint32_t(value)},
                            {spec_constant_op, 1, 5, operation, 2, 3},
                            {spec_constant_op, 1, 6, i_equal, 4, 5},
                            {spirv::type_array, 7, 1, 6},
                            {spirv::type_pointer, 8, workgroup_storage, 7},
                            {spirv::variable, 8, 9, workgroup_storage}}) == 4;
}

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

TEST_CASE("remainders of a file's constants, at the ends of what a word holds") {
    constexpr uint32_t s_rem = 138, s_mod = 139;
    constexpr int32_t least = INT32_MIN, greatest = INT32_MAX;
    for (const int32_t a : {least, least + 1, -7, -1, 0, 1, 7, greatest - 1, greatest})
        for (const int32_t b : {least, least + 1, -5, -1, 0, 1, 5, greatest - 1, greatest}) {
            CAPTURE(a);
            CAPTURE(b);
            const int64_t rest = b == 0 ? 0 : int64_t(a) % b,
                          with_sign_of_b = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
            CHECK(is_value(s_rem, a, b, int32_t(rest)));
            CHECK(is_value(s_mod, a, b, int32_t(with_sign_of_b)));
        }
}

TEST_CASE("a file's module may hold anything") {
    const std::vector<uint32_t> pointer{spirv::type_pointer, 6, workgroup_storage, 1},
        variable{spirv::variable, 6, 7, workgroup_storage};
    CHECK(shared_bytes_of({{spirv::type_int, 1, 7, 0}, pointer, variable, variable}) == 0); // less than a byte
    CHECK(shared_bytes_of({{spirv::type_int, 2, 32, 0}, {spirv::type_vector, 1, 2, 0}, pointer, variable, variable}) == 0);
    CHECK(shared_bytes_of({{spirv::type_int, 2, 32, 0},
                           {spirv::type_vector, 2, 2, 1u << 31},
                           {spirv::type_vector, 1, 2, 1u << 31},
                           pointer,
                           variable,
                           variable}) == 1u << 31);
    for (const uint32_t op : {20u, 21u, 22u, 23u, 24u, 28u, 30u, 32u, 41u, 42u, 43u, 44u, 48u, 49u, 50u, 51u, 59u, 71u}) {
        CAPTURE(op);
        CHECK(shared_bytes_of({{op}}) == 0); // without any operand
        CHECK(shared_bytes_of({{op, 1, 2}}) == 0);
        const std::vector<uint32_t> code = module_of({{op}, {5}, {5, 1}});
        const std::span<const uint32_t> words = code;
        CHECK(specialised({"a file's", &words, {}}, {}) == code);
        CHECK(constant_names({"a file's", &words, {}}).empty());
    }
    CHECK_THROWS_WITH_AS(is_value(4000, 1, 1, 1),
                         "a file's: a specialisation constant of operation 4000, which tq-run does not know", Error);
    CHECK_THROWS_WITH_AS(is_value(81, 1, 1, 1), "a file's: specialisation constant 5 is a part of none", Error);
    CHECK_THROWS_AS(shared_bytes_of({{52}}), Error);
}
