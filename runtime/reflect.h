// Reads a compute shader's interface from its SPIR-V at build time (shaders/embed.cpp): the shader's source is the single
// source of truth for its bindings, access, push constants and specialisation constants, and a mismatch is a compile error.
// There are no tables of ids: each question goes through the declarations again, because a kernel has few. Modules from files
// are read by the same code when the program runs (recorded rows of conformance), and need not be valid: words past an
// instruction's end are 0, a length of 0 ends the reading, and types are followed to a bounded depth.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tq {

struct Interface {
    static constexpr uint32_t literal = ~0u;

    uint32_t bindings = 0;                                                 // buffers 0 .. bindings - 1 of set 0
    uint32_t texels = 0;                                                   // bit b: binding b is a texel buffer, only read
    uint32_t reads = 0;                                                    // bit b: binding b is not declared writeonly
    uint32_t writes = 0;                                                   // bit b: binding b is not declared readonly
    uint32_t push_bytes = 0;                                               // push constants
    uint32_t constants = 0;                                                // specialisation constants with ids 0 .. constants - 1
    std::array<uint32_t, 3> workgroup{1, 1, 1};                            // its literal or default size
    std::array<uint32_t, 3> workgroup_constant{literal, literal, literal}; // the constant that sets it instead
    bool gaps = false; // gaps in the numbers of the bindings or specialisation constants, or a buffer that may not be accessed
    bool subgroups = false;   // uses subgroup operations
    bool cooperative = false; // uses cooperative matrices
    bool foreign = false;     // uses other resources (images, uniform blocks) or other sets
};

namespace spirv {

// The instructions of the SPIR-V 1.5 specification (chapter 3) that a storage-buffer kernel can contain and that matter here.
enum Op : uint32_t {
    name = 5,
    execution_mode = 16,
    capability = 17,
    type_int = 21,
    type_float = 22,
    type_vector = 23,
    type_image = 25,
    type_sampled_image = 27,
    type_array = 28,
    type_struct = 30,
    type_pointer = 32,
    constant = 43,
    spec_constant = 50,
    spec_constant_composite = 51,
    function = 54,
    variable = 59,
    decorate = 71,
    member_decorate = 72,
};
enum Decoration : uint32_t {
    spec_id = 1,
    builtin = 11,
    non_writable = 24,
    non_readable = 25,
    binding = 33,
    set = 34,
    offset = 35
};
enum Storage : uint32_t { uniform_constant = 0, uniform = 2, push_constant = 9, storage_buffer = 12 };
constexpr uint32_t cooperative_matrix_capability = 6022;                          // of SPV_KHR_cooperative_matrix
constexpr uint32_t first_subgroup_capability = 61, last_subgroup_capability = 68; // GroupNonUniform ... GroupNonUniformQuad
constexpr uint32_t local_size = 17, workgroup_size = 25, dim_buffer = 5, header_words = 5;

// Words of an instruction. Reads 0 after its last word, which happens only if a module is not valid.
struct Words {
    std::span<const uint32_t> words{};
    constexpr uint32_t operator[](size_t i) const { return i < words.size() ? words[i] : 0; }
    constexpr size_t size() const { return words.size(); }
    constexpr operator std::span<const uint32_t>() const { return words; }
};

// Calls visit(op, instruction words) for all declarations, which end at the first function. Reading on would cost compilers
// much time.
template <class Visit> constexpr void each(std::span<const uint32_t> code, Visit visit) {
    size_t at = header_words;
    while (at < code.size() && (code[at] & 0xffff) != function) {
        const size_t length = code[at] >> 16, rest = code.size() - at;
        visit(code[at] & 0xffff, Words{code.subspan(at, length < rest ? length : rest)});
        at += length == 0 ? code.size() : length;
    }
}

// Returns the value of the integer constant `id`; its default if it can be specialised.
constexpr uint32_t constant_value(std::span<const uint32_t> code, uint32_t id) {
    uint32_t value = 0;
    each(code, [&](uint32_t op, auto in) {
        if ((op == constant || op == spec_constant) && in[2] == id) value = in[3];
    });
    return value;
}

// The deepest nesting of types; in a module that is not valid, a type may contain itself.
constexpr int deepest_type = 16;

constexpr uint32_t type_bytes(std::span<const uint32_t> code, uint32_t id, int depth = 0);

// Returns the size in bytes of a struct: it ends where its last member does.
constexpr uint32_t struct_bytes(std::span<const uint32_t> code, Words type, int depth) {
    uint32_t last = 0, last_offset = 0;
    each(code, [&](uint32_t op, auto in) {
        if (op != member_decorate || in[1] != type[1] || in[3] != offset || in[4] < last_offset) return;
        last = in[2];
        last_offset = in[4];
    });
    return last_offset + type_bytes(code, type[2 + size_t(last)], depth + 1);
}

constexpr uint32_t type_bytes(std::span<const uint32_t> code, uint32_t id, int depth) {
    Words type;
    uint32_t kind = 0;
    each(code, [&](uint32_t op, auto in) {
        const bool is_type = op == type_int || op == type_float || op == type_vector || op == type_array || op == type_struct;
        if (!is_type || in[1] != id) return;
        kind = op;
        type = in;
    });
    if (kind == type_int || kind == type_float) return type[2] / 8;
    if (kind == 0 || depth > deepest_type) return 0;
    if (kind == type_vector) return type[3] * type_bytes(code, type[2], depth + 1);
    if (kind == type_array) return constant_value(code, type[3]) * type_bytes(code, type[2], depth + 1);
    return struct_bytes(code, type, depth);
}

// True if `type` is a samplerBuffer in GLSL.
constexpr bool is_texel_buffer(std::span<const uint32_t> code, uint32_t type) {
    uint32_t image = 0;
    bool found = false;
    each(code, [&](uint32_t op, auto in) {
        if (op == type_sampled_image && in[1] == type) image = in[2];
    });
    each(code, [&](uint32_t op, auto in) {
        if (op == type_image && in[1] == image) found = in[3] == dim_buffer;
    });
    return found;
}

// Adds the storage buffer or texel buffer `variable` of type `block` to `out`. Two blocks may share a binding, so that a shader
// can read one buffer as two types.
constexpr void reflect_buffer(std::span<const uint32_t> code, uint32_t variable_id, uint32_t block, Interface& out) {
    uint32_t number = 0, members = 0, readonly_members = 0, writeonly_members = 0;
    bool readonly = false, writeonly = false;
    each(code, [&](uint32_t op, auto in) {
        if (op == type_struct && in[1] == block) members = uint32_t(in.size()) - 2;
        if (op == member_decorate && in[1] == block) {
            readonly_members += in[3] == non_writable;
            writeonly_members += in[3] == non_readable;
        }
        if (op == decorate && in[1] == variable_id) {
            readonly |= in[2] == non_writable;
            writeonly |= in[2] == non_readable;
            if (in[2] == binding) number = in[3];
            if (in[2] == set && in[3] != 0) out.foreign = true;
        }
    });
    if (number >= 32) {
        out.gaps = true;
        return;
    }
    if (number >= out.bindings) out.bindings = number + 1;
    if (is_texel_buffer(code, block)) {
        out.texels |= 1u << number;
        out.reads |= 1u << number;
        return;
    }
    if (!readonly && readonly_members < members) out.writes |= 1u << number;
    if (!writeonly && writeonly_members < members) out.reads |= 1u << number;
}

// Reads the workgroup's size if parts of it are specialisation constants.
constexpr void reflect_workgroup(std::span<const uint32_t> code, uint32_t composite, Interface& out) {
    std::array<uint32_t, 3> parts{};
    each(code, [&](uint32_t op, auto in) {
        if (op == spec_constant_composite && in[2] == composite) parts = {in[3], in[4], in[5]};
    });
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (parts[axis] == 0) continue;
        out.workgroup[axis] = constant_value(code, parts[axis]);
        each(code, [&](uint32_t op, auto in) {
            if (op == decorate && in[1] == parts[axis] && in[2] == spec_id) out.workgroup_constant[axis] = in[3];
        });
    }
}

} // namespace spirv

// Returns the interface of the compute shader `code`, a valid SPIR-V module.
constexpr Interface reflect(std::span<const uint32_t> code) {
    Interface out;
    uint32_t constant_ids = 0, workgroup_composite = 0;
    auto block_of = [&](uint32_t pointer) {
        uint32_t block = 0;
        spirv::each(code, [&](uint32_t op, auto in) {
            if (op == spirv::type_pointer && in[1] == pointer) block = in[3];
        });
        return block;
    };
    spirv::each(code, [&](uint32_t op, auto in) {
        if (op == spirv::execution_mode && in[2] == spirv::local_size) out.workgroup = {in[3], in[4], in[5]};
        if (op == spirv::capability) {
            out.subgroups |= in[1] >= spirv::first_subgroup_capability && in[1] <= spirv::last_subgroup_capability;
            out.cooperative |= in[1] == spirv::cooperative_matrix_capability;
        }
        if (op == spirv::decorate && in[2] == spirv::spec_id) {
            if (in[3] < 31)
                constant_ids |= 1u << in[3];
            else
                out.gaps = true;
        }
        if (op == spirv::decorate && in[2] == spirv::builtin && in[3] == spirv::workgroup_size) workgroup_composite = in[1];
        if (op != spirv::variable) return;
        const uint32_t storage = in[3];
        if (storage == spirv::storage_buffer) spirv::reflect_buffer(code, in[2], block_of(in[1]), out);
        if (storage == spirv::push_constant) out.push_bytes = spirv::type_bytes(code, block_of(in[1]));
        const bool is_texel_buffer = storage == spirv::uniform_constant && spirv::is_texel_buffer(code, block_of(in[1]));
        if (is_texel_buffer) spirv::reflect_buffer(code, in[2], block_of(in[1]), out);
        if (storage == spirv::uniform || (storage == spirv::uniform_constant && !is_texel_buffer)) out.foreign = true;
    });
    if (workgroup_composite) spirv::reflect_workgroup(code, workgroup_composite, out);
    while (constant_ids >> out.constants & 1) out.constants++;
    const uint32_t all = out.bindings == 32 ? ~0u : (1u << out.bindings) - 1;
    out.gaps |= constant_ids >> out.constants != 0 || (out.reads | out.writes) != all;
    return out;
}

// Returns the constants' names in the shader's source, by id; a workgroup size has none there and gets "workgroup",
// "workgroup_y" or "workgroup_z".
inline std::vector<std::string> constant_names(std::span<const uint32_t> code, const Interface& io) {
    std::vector<std::string> out(io.constants);
    const auto name_of = [&](uint32_t id) {
        std::string name;
        spirv::each(code, [&](uint32_t op, auto in) {
            if (op != spirv::name || in[1] != id || in.size() < 3) return;
            const auto* text = reinterpret_cast<const char*>(&in.words[2]);
            name.assign(text, std::find(text, text + (in.size() - 2) * 4, '\0'));
        });
        return name;
    };
    spirv::each(code, [&](uint32_t op, auto in) {
        if (op == spirv::decorate && in[2] == spirv::spec_id && in[3] < out.size()) out[in[3]] = name_of(in[1]);
    });
    const char* const workgroup[] = {"workgroup", "workgroup_y", "workgroup_z"};
    for (size_t axis = 0; axis < 3; axis++)
        if (const uint32_t id = io.workgroup_constant[axis]; id < out.size()) out[id] = workgroup[axis];
    return out;
}

} // namespace tq
