// A compiled kernel as a constant: name, SPIR-V and interface, which the build makes of each .comp file (shaders/embed.cmake).
#pragma once
#include "runtime/reflect.h"
#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
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

// A kernel whose push constants are the struct P.
template <class P> struct Shader : AnyShader {
    using Params = P;
};

struct no_params {}; // for a kernel without push constants

template <const auto& shader> using ParamsOf = typename std::remove_cvref_t<decltype(shader)>::Params;

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
    return true;
}();

// The kernels of one source, one for each weight format (shaders/shaders.cmake); nullptr if a format has none. All have the same
// buffers, constants and parameters.
template <class P, size_t N> struct Family {
    using Params = P;
    std::array<const Shader<P>*, N> members;
    Interface interface; // the same for all
};

consteval bool has_interface(const AnyShader* member, const Interface& one) {
    return member->interface.bindings == one.bindings && member->interface.constants == one.constants;
}
consteval bool has_interface(std::nullptr_t, const Interface&) { return true; }

// Types tell the members that are nullptr: gcc 12 with -fsanitize=undefined compares no address with it at compile time.
template <class P, class... M> consteval Family<P, sizeof...(M)> make_family(M... members) {
    const std::array<const Shader<P>*, sizeof...(M)> all{members...};
    const Interface& one = all.back()->interface;
    if (!(... && has_interface(members, one))) throw "the kernels of a family have as many buffers and specialisation constants";
    return {all, one};
}

// Values of specialisation constants 0 .. N - 1: exactly N of them, so that none is forgotten.
template <size_t N> struct Constants : std::array<uint32_t, N> {
    template <std::convertible_to<uint32_t>... T>
        requires(sizeof...(T) == N)
    constexpr Constants(T... values) : std::array<uint32_t, N>{static_cast<uint32_t>(values)...} {}
};

} // namespace tq
