// A compiled kernel as a constant: name, SPIR-V and interface, which the build makes of each .comp file (shaders/embed.cmake).
#pragma once
#include "runtime/reflect.h"
#include <array>
#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tq {

struct AnyShader {
    const char* name;
    const std::span<const uint32_t>* words; // by address: a header with their number would change with every edit of the kernel
    Interface interface;

    std::span<const uint32_t> code() const { return *words; } // SPIR-V
};

// A kernel with values of its specialisation constants.
struct Variant {
    const AnyShader* shader;
    std::vector<uint32_t> constants;

    auto operator<=>(const Variant&) const = default;
};

// The maximum number of buffers of a kernel; a device that allows fewer is not used.
inline constexpr uint32_t max_bindings = 4;

// The value of a specialisation constant. A kernel has a struct of these, with the names of its source (shaders/embed.cpp):
// there is no default, so that a constant that is forgotten does not compile.
struct Constant {
    uint32_t value;

    constexpr Constant(std::convertible_to<uint32_t> auto v) : value(static_cast<uint32_t>(v)) {}
};

// Returns the values of a kernel's constants, by their ids.
template <class C> constexpr auto constant_values(const C& constants) {
    if constexpr (std::is_empty_v<C>)
        return std::array<uint32_t, 0>{};
    else
        return std::bit_cast<std::array<uint32_t, sizeof(C) / sizeof(Constant)>>(constants);
}

// A kernel whose push constants are the struct P, and whose specialisation constants are the struct C.
template <class P, class C> struct Shader : AnyShader {
    using Params = P;
    using Constants = C;
};

struct no_params {}; // for a kernel without push constants

template <const auto& shader> using ParamsOf = typename std::remove_cvref_t<decltype(shader)>::Params;
template <const auto& shader> using ConstantsOf = typename std::remove_cvref_t<decltype(shader)>::Constants;

// Checked once for every kernel, in the generated header, whether the program uses the kernel or not.
template <const auto& shader> inline constexpr bool well_formed = [] {
    using Params = ParamsOf<shader>;
    constexpr Interface io = shader.interface;
    static_assert(!io.foreign, "a kernel has storage and texel buffers of set 0 and push constants, nothing else");
    static_assert(!io.gaps, "bindings and specialisation constants count up from 0, and every buffer is used");
    static_assert(io.bindings > 0 && io.bindings <= max_bindings, "a kernel has one to max_bindings buffers");
    static_assert(io.push_bytes <= 128, "every device has 128 bytes of push constants, and no device need have more");
    static_assert(io.push_bytes == (std::is_empty_v<Params> ? 0 : sizeof(Params)), "the shader's push constants are its params");
    static_assert(std::is_trivially_copyable_v<Params>);
    static_assert(io.constants == decltype(constant_values(std::declval<ConstantsOf<shader>>())){}.size());
    return true;
}();

// The kernels of one source, one for each weight format (shaders/shaders.cmake); nullptr if a format has none. All have the same
// buffers, constants and parameters.
template <class P, class C, size_t N> struct Family {
    using Params = P;
    using Constants = C;
    std::array<const Shader<P, C>*, N> members;
    Interface interface; // the same for all
};

consteval bool has_bindings(const AnyShader* member, uint32_t bindings) { return member->interface.bindings == bindings; }
consteval bool has_bindings(std::nullptr_t, uint32_t) { return true; }

// Types tell the members that are nullptr: gcc 12 with -fsanitize=undefined compares no address with it at compile time.
template <const auto& last, class... M>
consteval Family<ParamsOf<last>, ConstantsOf<last>, sizeof...(M)> make_family(M... members) {
    if (!(... && has_bindings(members, last.interface.bindings))) throw "the kernels of a family have as many buffers";
    return {{members...}, last.interface};
}

} // namespace tq
