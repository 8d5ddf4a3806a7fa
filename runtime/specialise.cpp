// A small interpreter of SPIR-V's constants. A kernel's shared arrays have lengths that are expressions of specialisation
// constants (workgroup, head_dim, tiles), so the shared memory of a variant is not in the module as a number, and Vulkan has
// no query for it. Here it is known before a driver sees the kernel: ensure_fits() refuses one that the device cannot run, and
// a tuning can be checked for any device on any machine (model/gpu/tuning_fields.cpp).
// Declarations are evaluated in one pass, because SPIR-V declares before use. Supported are numbers of one word and the
// operations that our kernels use; another one is an Error with its number, so that a new kernel that needs it is noticed at
// once. A module of --replay comes from a file, and may hold anything. The size is that of all variables in order, aligned as
// std430 does. A driver may need more for itself.
#include "runtime/specialise.h"
#include "base/error.h"
#include "base/sizes.h"
#include <algorithm>
#include <map>

namespace tq {
namespace {

// More opcodes of the SPIR-V specification: the operations that can define the lengths of shared arrays.
enum Op : uint32_t {
    type_bool = 20,
    type_matrix = 24,
    constant_true = 41,
    constant_false = 42,
    constant_composite = 44,
    spec_constant_true = 48,
    spec_constant_false = 49,
    spec_constant_op = 52,
    composite_extract = 81,
    s_negate = 126,
    i_add = 128,
    i_sub = 130,
    i_mul = 132,
    u_div = 134,
    s_div = 135,
    u_mod = 137,
    s_rem = 138,
    s_mod = 139,
    logical_equal = 164,
    logical_not_equal = 165,
    logical_or = 166,
    logical_and = 167,
    logical_not = 168,
    select = 169,
    i_equal = 170,
    i_not_equal = 171,
    u_greater = 172,
    s_greater = 173,
    u_greater_equal = 174,
    s_greater_equal = 175,
    u_less = 176,
    s_less = 177,
    u_less_equal = 178,
    s_less_equal = 179,
    shift_right_logical = 194,
    shift_right_arithmetic = 195,
    shift_left_logical = 196,
    bitwise_or = 197,
    bitwise_xor = 198,
    bitwise_and = 199,
    bitwise_not = 200,
};
constexpr uint32_t workgroup_storage = 4;
constexpr uint64_t too_much = uint64_t(1) << 31; // bytes; larger sizes of a file's types count as this, and no sum overflows

using spirv::Words;

// The remainder that has the sign of b. The sum does not overflow: its parts have different signs.
uint32_t s_mod_of(int32_t a, int32_t b) {
    const int32_t rest = b == -1 ? 0 : a % b;
    return uint32_t(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// All numbers are words; signed operations convert. If C++ does not define a result (a division by 0 or of the minimum by -1, a
// shift by 32 or more), this function does, because the module may hold such an expression in a branch that is not taken.
uint32_t apply(const char* shader, uint32_t op, uint32_t a, uint32_t b, uint32_t c) {
    const auto sa = int32_t(a), sb = int32_t(b);
    const bool divides = op == u_div || op == u_mod || op == s_div || op == s_rem || op == s_mod;
    if (divides && b == 0) return 0; // undefined; an untaken branch may contain one
    switch (op) {
    case s_negate: return 0 - a;
    case i_add: return a + b;
    case i_sub: return a - b;
    case i_mul: return a * b;
    case u_div: return a / b;
    case u_mod: return a % b;
    case s_div: return b == ~0u ? 0 - a : uint32_t(sa / sb);
    case s_rem: return b == ~0u ? 0 : uint32_t(sa % sb);
    case s_mod: return s_mod_of(sa, sb);
    case logical_equal: return (a != 0) == (b != 0);
    case logical_not_equal: return (a != 0) != (b != 0);
    case logical_or: return a != 0 || b != 0;
    case logical_and: return a != 0 && b != 0;
    case logical_not: return a == 0;
    case select: return a != 0 ? b : c;
    case i_equal: return a == b;
    case i_not_equal: return a != b;
    case u_greater: return a > b;
    case s_greater: return sa > sb;
    case u_greater_equal: return a >= b;
    case s_greater_equal: return sa >= sb;
    case u_less: return a < b;
    case s_less: return sa < sb;
    case u_less_equal: return a <= b;
    case s_less_equal: return sa <= sb;
    case shift_right_logical: return b < 32 ? a >> b : 0;
    case shift_right_arithmetic: return uint32_t(sa >> std::min(b, 31u));
    case shift_left_logical: return b < 32 ? a << b : 0;
    case bitwise_or: return a | b;
    case bitwise_xor: return a ^ b;
    case bitwise_and: return a & b;
    case bitwise_not: return ~a;
    }
    fail("{}: a specialisation constant of operation {}, which tq-run does not know", shader, op); // in a kernel of ours: add it
}

struct Layout {
    uint64_t bytes = 0, alignment = 1;
};

// The declarations of a module, evaluated in order: each refers to earlier ones only.
class Declarations {
  public:
    Declarations(const AnyShader& shader, std::span<const uint32_t> constants) : shader_(shader.name), constants_(constants) {
        spirv::each(shader.code(), [&](uint32_t op, Words in) { read(op, in); });
    }
    uint64_t shared_bytes() const { return shared_bytes_; }

  private:
    void read(uint32_t op, Words in);
    void read_constant(uint32_t op, Words in);
    void read_type(uint32_t op, Words in);
    uint32_t evaluate(Words in);
    uint32_t value(Words in, size_t operand) const {
        const auto found = operand < in.size() ? values_.find(in[operand]) : values_.end();
        return found == values_.end() ? 0 : found->second;
    }
    uint32_t specialised(uint32_t id, uint32_t otherwise) const {
        const auto found = spec_ids_.find(id);
        return found != spec_ids_.end() && found->second < constants_.size() ? constants_[found->second] : otherwise;
    }

    const char* shader_;
    std::span<const uint32_t> constants_;
    std::map<uint32_t, uint32_t> spec_ids_, values_, pointees_; // by the ids of constants, of constants, of pointer types
    std::map<uint32_t, std::vector<uint32_t>> composites_;      // the values of their parts
    std::map<uint32_t, Layout> types_;
    uint64_t shared_bytes_ = 0;
};

uint32_t Declarations::evaluate(Words in) {
    if (in[3] == composite_extract) {
        const auto found = composites_.find(in[4]);
        if (found == composites_.end() || in.size() != 6 || in[5] >= found->second.size())
            fail("{}: specialisation constant {} is a part of none", shader_, in[2]);
        return found->second[in[5]];
    }
    return apply(shader_, in[3], value(in, 4), value(in, 5), value(in, 6));
}

void Declarations::read_constant(uint32_t op, Words in) {
    if (op == spirv::constant) values_[in[2]] = in[3];
    if (op == constant_true || op == constant_false) values_[in[2]] = op == constant_true;
    if (op == spirv::spec_constant) values_[in[2]] = specialised(in[2], in[3]);
    if (op == spec_constant_true || op == spec_constant_false) values_[in[2]] = specialised(in[2], op == spec_constant_true);
    if (op == spec_constant_op) values_[in[2]] = evaluate(in);
    if (op == constant_composite || op == spirv::spec_constant_composite)
        for (size_t part = 3; part < in.size(); part++) composites_[in[2]].push_back(value(in, part));
}

void Declarations::read_type(uint32_t op, Words in) {
    Layout& out = types_[in[1]];
    if (op == type_bool) out = {4, 4};
    if (op == spirv::type_int || op == spirv::type_float) out = {in[2] / 8, in[2] / 8};
    if (op == spirv::type_vector || op == type_matrix) {
        const Layout part = types_[in[2]];
        const uint64_t padded = in[3] == 3 ? 4 : in[3];
        out = op == spirv::type_vector ? Layout{in[3] * part.bytes, padded * part.bytes}
                                       : Layout{in[3] * round_up(part.bytes, part.alignment), part.alignment};
    }
    if (op == spirv::type_array) {
        const Layout element = types_[in[2]];
        out = {uint64_t(value(in, 3)) * round_up(element.bytes, element.alignment), element.alignment};
    }
    if (op == spirv::type_struct) {
        for (size_t member = 2; member < in.size(); member++) {
            const Layout part = types_[in[member]];
            out.bytes = round_up(out.bytes, part.alignment) + part.bytes;
            out.alignment = std::max(out.alignment, part.alignment);
        }
        out.bytes = round_up(out.bytes, out.alignment);
    }
    out = {std::min(out.bytes, too_much), std::clamp<uint64_t>(out.alignment, 1, too_much)};
}

void Declarations::read(uint32_t op, Words in) {
    if (op == spirv::decorate && in[2] == spirv::spec_id) spec_ids_[in[1]] = in[3];
    if ((op >= constant_true && op <= constant_composite) || (op >= spec_constant_true && op <= spec_constant_op))
        read_constant(op, in);
    if (op >= type_bool && op <= spirv::type_struct) read_type(op, in);
    if (op == spirv::type_pointer) pointees_[in[1]] = in[3];
    if (op == spirv::variable && in[3] == workgroup_storage) {
        const Layout variable = types_[pointees_[in[1]]];
        shared_bytes_ = std::min(round_up(shared_bytes_, variable.alignment) + variable.bytes, too_much);
    }
}

} // namespace

uint64_t shared_memory_bytes(const AnyShader& shader, std::span<const uint32_t> constants) {
    return Declarations(shader, constants).shared_bytes();
}

// The literal of each OpSpecConstant is replaced; nothing moves, so the module has the same words otherwise. Its constants can
// still be specialised, and then have these defaults.
std::vector<uint32_t> specialised(const AnyShader& shader, std::span<const uint32_t> constants) {
    std::map<uint32_t, uint32_t> values; // by the id of the result
    spirv::each(shader.code(), [&](uint32_t op, Words in) {
        if (op == spirv::decorate && in[2] == spirv::spec_id && in[3] < constants.size()) values[in[1]] = constants[in[3]];
    });
    std::vector<uint32_t> out(shader.code().begin(), shader.code().end());
    spirv::each(shader.code(), [&](uint32_t op, Words in) {
        const auto value = values.find(op == spirv::spec_constant ? in[2] : 0);
        if (value != values.end() && in.size() > 3) out[size_t(&in.words[3] - shader.code().data())] = value->second;
    });
    return out;
}

} // namespace tq
