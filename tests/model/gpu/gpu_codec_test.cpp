// The codec's SPIR-V requires only what Vulkan promises. (The bytes that it stores: tools/check/conformance/cache.cpp.)
#include "shaders.gen.h"
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <string>

using namespace tq;

namespace {

enum : uint32_t { ext_inst = 12, decorate = 71, no_contraction = 42 };
enum : uint32_t { f_add = 129, f_sub = 131, f_mul = 133, f_div = 136, f_rem = 140, dot = 148 };
enum : uint32_t { group_all = 261, group_last = 271, group_non_uniform = 333, group_non_uniform_last = 366 };
enum : uint32_t { shuffle = 345, shuffle_xor = 346, group_i_add = 349, group_u_max = 357 }; // their order does not matter
enum : uint32_t { f_abs = 4, inverse_sqrt = 32, u_min = 38, s_min = 39, u_max = 41, find_u_msb = 75 }; // of GLSL.std.450

struct Arithmetic {
    std::set<uint32_t> never_contracted;     // results
    std::map<uint32_t, uint32_t> by_result;  // opcodes of sums and products
    std::map<uint32_t, int> count, extended; // of opcodes, of GLSL.std.450's instructions

    explicit Arithmetic(std::span<const uint32_t> code) {
        for (size_t at = spirv::header_words; at < code.size(); at += code[at] >> 16) {
            REQUIRE((code[at] >> 16) != 0);
            const uint32_t op = code[at] & 0xffff;
            count[op]++;
            if (op == decorate && code[at + 2] == no_contraction) never_contracted.insert(code[at + 1]);
            if (op == f_add || op == f_sub || op == f_mul) by_result[code[at + 2]] = op;
            if (op == ext_inst) extended[code[at + 4]]++;
        }
    }

    int between(uint32_t first, uint32_t last) const {
        int sum = 0;
        for (auto i = count.lower_bound(first); i != count.end() && i->first <= last; i++) sum += i->second;
        return sum;
    }
};

// No sum or product may be contracted, and nothing else computes floats except norm and RoPE of keys, which have one division
// and one inverse square root.
void check_exact(const AnyShader& shader, int norms) {
    const std::string kernel = shader.name;
    CAPTURE(kernel);
    Arithmetic arithmetic(shader.code());
    for (const auto& [result, op] : arithmetic.by_result) {
        CAPTURE(op);
        CHECK(arithmetic.never_contracted.contains(result));
    }
    CHECK(arithmetic.between(f_rem, dot) == 0);
    const int exact =
        arithmetic.count[shuffle] + arithmetic.count[shuffle_xor] + arithmetic.count[group_i_add] + arithmetic.count[group_u_max];
    CHECK(arithmetic.between(group_all, group_last) + arithmetic.between(group_non_uniform, group_non_uniform_last) == exact);
    CHECK((exact == 0) == (kernel.find("_subgroup") == kernel.npos));
    for (const auto& [instruction, count] : arithmetic.extended)
        if (instruction != inverse_sqrt) CHECK(std::set<uint32_t>{f_abs, u_min, s_min, u_max, find_u_msb}.contains(instruction));
    CHECK((arithmetic.count[f_add] >= 2 && arithmetic.count[f_sub] >= 1 && arithmetic.count[f_mul] >= 5));
    CHECK((arithmetic.count[f_div] == norms && arithmetic.extended[inverse_sqrt] <= 1));
}

} // namespace

// Vulkan promises correct rounding only of fp32 addition, subtraction and multiplication. Random vectors rarely reveal a
// contraction, so the instructions are read.
TEST_CASE("SPIR-V: the codec adds, subtracts and multiplies, never contracted, and nothing else") {
    check_exact(shader::kv_append, 1);
    check_exact(shader::kv_append_subgroup, 1);
    check_exact(shader::kv_append_trellis, 1);
    check_exact(shader::kv_append_subgroup_trellis, 1);
    check_exact(shader::kv_decode, 0);
}
