// What no kernel's SPIR-V holds, because some drivers do other things with it than it says.
#include "shaders.gen.h"
#include <doctest/doctest.h>
using namespace tq;

namespace {

// The instructions of the SPIR-V specification that are meant.
enum Op : uint32_t { spec_constant_op = 52, store = 62, composite_extract = 81, is_nan = 156, is_inf = 157 };

// How many instructions of the module are such that matches(op, words) holds.
template <class Matches> size_t count(const AnyShader& shader, Matches matches) {
    size_t found = 0;
    for (size_t at = spirv::header_words; at < shader.code.size(); at += shader.code[at] >> 16) {
        REQUIRE((shader.code[at] >> 16) != 0);
        found += matches(shader.code[at] & 0xffff, shader.code.subspan(at, shader.code[at] >> 16));
    }
    return found;
}

} // namespace

TEST_CASE("the instructions that are looked for are found where there are some") {
    size_t of_constants = 0;
    for (const AnyShader* shader : shader::all) {
        CAPTURE(shader->name);
        CHECK(count(*shader, [](uint32_t op, auto) { return op == store; }) > 0);
        of_constants += count(*shader, [](uint32_t op, auto) { return op == spec_constant_op; });
    }
    CHECK(of_constants > 0);
}

TEST_CASE("no kernel asks whether a float is a NaN: a driver may take all floats to be finite; bits tell") {
    for (const AnyShader* shader : shader::all) {
        CAPTURE(shader->name);
        CHECK(count(*shader, [](uint32_t op, auto) { return op == is_nan || op == is_inf; }) == 0);
    }
}

TEST_CASE("no constant is a part of gl_WorkGroupSize: as an array's length, compilers to Metal's language do not know it") {
    for (const AnyShader* shader : shader::all) {
        CAPTURE(shader->name);
        CHECK(count(*shader, [](uint32_t op, auto in) { return op == spec_constant_op && in[3] == composite_extract; }) == 0);
    }
}
