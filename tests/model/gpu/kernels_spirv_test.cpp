// Instructions that no kernel's SPIR-V may contain, because some drivers execute them differently than specified.
#include "shaders.gen.h"
#include <doctest/doctest.h>
#include <set>
#include <string>
using namespace tq;

namespace {

// Opcodes of the SPIR-V specification.
enum Op : uint32_t {
    type_pointer = 32,
    spec_constant_op = 52,
    variable = 59,
    store = 62,
    decorate = 71,
    composite_extract = 81,
    is_nan = 156,
    is_inf = 157,
};
constexpr uint32_t array_stride = 6, function = 7, private_ = 6; // a Decoration, two StorageClasses

// The number of the module's instructions for which matches(op, words) is true.
template <class Matches> size_t count(const AnyShader& shader, Matches matches) {
    size_t found = 0;
    for (size_t at = spirv::header_words; at < shader.code().size(); at += shader.code()[at] >> 16) {
        REQUIRE((shader.code()[at] >> 16) != 0);
        found += matches(shader.code()[at] & 0xffff, shader.code().subspan(at, shader.code()[at] >> 16));
    }
    return found;
}

} // namespace

TEST_CASE("the instructions that are looked for are found where there are some") {
    size_t of_constants = 0;
    for (const AnyShader* shader : shader::all) {
        INFO(std::string(shader->name));
        CHECK(count(*shader, [](uint32_t op, auto) { return op == store; }) > 0);
        of_constants += count(*shader, [](uint32_t op, auto) { return op == spec_constant_op; });
    }
    CHECK(of_constants > 0);
}

TEST_CASE("no kernel asks whether a float is a NaN: a driver may take all floats to be finite; bits tell") {
    for (const AnyShader* shader : shader::all) {
        INFO(std::string(shader->name));
        CHECK(count(*shader, [](uint32_t op, auto) { return op == is_nan || op == is_inf; }) == 0);
    }
}

// glslang gives a local array the type of a block's array that has as many elements.
TEST_CASE("no variable of a function or an invocation has the layout of a buffer: validation refuses it since 2026") {
    size_t with_stride = 0;
    for (const AnyShader* shader : shader::all) {
        INFO(std::string(shader->name));
        std::set<uint32_t> strided, pointers;
        count(*shader, [&](uint32_t op, auto in) {
            if (op == decorate && in[2] == array_stride) strided.insert(in[1]);
            if (op == type_pointer && (in[2] == function || in[2] == private_) && strided.contains(in[3])) pointers.insert(in[1]);
            return false;
        });
        CHECK(count(*shader, [&](uint32_t op, auto in) { return op == variable && pointers.contains(in[1]); }) == 0);
        with_stride += strided.size();
    }
    CHECK(with_stride > 0);
}

TEST_CASE("no constant is a part of gl_WorkGroupSize: as an array's length, compilers to Metal's language do not know it") {
    for (const AnyShader* shader : shader::all) {
        INFO(std::string(shader->name));
        CHECK(count(*shader, [](uint32_t op, auto in) { return op == spec_constant_op && in[3] == composite_extract; }) == 0);
    }
}
