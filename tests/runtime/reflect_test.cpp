// The SPIR-V reader, on compiled shaders and on modules written by hand; and that misuse of a kernel does not compile.
#include "runtime/recorder.h"
#include "runtime/reflect.h"
#include "test_shaders.gen.h"
#include <doctest/doctest.h>
#include <vector>
using namespace tq;

namespace {

constexpr Interface scale = test_shader::scale.interface, sum = test_shader::sum.interface,
                    count_up = test_shader::count_up.interface;

static_assert(scale.bindings == 2 && scale.reads == 0b10 && scale.writes == 0b01);
static_assert(scale.push_bytes == 8 && scale.constants == 1 && scale.workgroup_constant[0] == 0);
static_assert(scale.workgroup_constant[1] == Interface::literal && scale.workgroup[1] == 1);

static_assert(sum.bindings == 3 && sum.reads == 0b110 && sum.writes == 0b001, "two blocks share binding 2");
static_assert(sum.push_bytes == 16, "an array of three words ends the params");
static_assert(sum.constants == 2 && sum.workgroup == std::array<uint32_t, 3>{128, 1, 1});

static_assert(count_up.bindings == 1 && count_up.reads == 1 && count_up.writes == 1 && count_up.push_bytes == 0);

template <const auto& shader, class Params, class Constants, class... Views>
concept dispatches = requires(Recorder recorder, Params params, Constants constants, Views... views) {
    recorder.template dispatch<shader>(Groups{}, constants, params, Work{}, views...);
};
static_assert(dispatches<test_shader::scale, scale_params, test_shader::scale_constants, View, View>);
static_assert(!dispatches<test_shader::scale, scale_params, test_shader::scale_constants, View>, "a buffer is missing");
static_assert(!dispatches<test_shader::scale, scale_params, test_shader::scale_constants, View, View, View>, "a buffer too many");
static_assert(!dispatches<test_shader::scale, sum_params, test_shader::scale_constants, View, View>, "another kernel's params");
static_assert(!dispatches<test_shader::scale, scale_params, test_shader::sum_constants, View, View>,
              "another kernel's constants");
static_assert(!dispatches<test_shader::scale, scale_params, test_shader::scale_constants, View, int>, "not a buffer");

template <class C>
concept with_both = requires { C{.which = 1u, .bias = 2u}; };
template <class C>
concept with_one = requires { C{.which = 1u}; };
template <class C>
concept with_text = requires { C{.which = 1u, .bias = "2"}; };
static_assert(with_both<test_shader::sum_constants> && !with_both<test_shader::scale_constants>);
static_assert(!with_one<test_shader::sum_constants>, "none of the constants has a default");
static_assert(!with_text<test_shader::sum_constants>);
static_assert(test_shader::sum_constants::names == "which bias" && test_shader::count_up_constants::names.empty());
static_assert(constant_values(test_shader::sum_constants{.which = 1, .bias = 2}) == std::array<uint32_t, 2>{1, 2});

// A module made of instructions without their first words.
struct Module {
    std::vector<uint32_t> words{0x07230203, 0x00010500, 0, 100, 0};

    Module& add(uint32_t op, std::vector<uint32_t> operands) {
        words.push_back(uint32_t(operands.size() + 1) << 16 | op);
        words.insert(words.end(), operands.begin(), operands.end());
        return *this;
    }
    // Adds storage buffer `number` with one member, a float.
    Module& buffer(uint32_t number, uint32_t set = 0) {
        const uint32_t variable = 10 + number, block = 30 + number, pointer = 50 + number;
        return add(spirv::decorate, {variable, spirv::binding, number})
            .add(spirv::decorate, {variable, spirv::set, set})
            .add(spirv::type_float, {1, 32})
            .add(spirv::type_struct, {block, 1})
            .add(spirv::type_pointer, {pointer, spirv::storage_buffer, block})
            .add(spirv::variable, {pointer, variable, spirv::storage_buffer});
    }
    Interface interface() const { return reflect(words); }
};

} // namespace

TEST_CASE("buffers without a gap are an interface") {
    const Interface io = Module().buffer(0).buffer(1).interface();
    CHECK(io.bindings == 2);
    CHECK(io.reads == 0b11);
    CHECK(io.writes == 0b11);
    CHECK_FALSE(io.gaps);
    CHECK_FALSE(io.foreign);
}

TEST_CASE("access is read from the variable and from every member") {
    CHECK(Module().add(spirv::decorate, {10, spirv::non_writable}).buffer(0).interface().writes == 0);
    CHECK(Module().add(spirv::member_decorate, {30, 0, spirv::non_writable}).buffer(0).interface().writes == 0);
    CHECK(Module().add(spirv::member_decorate, {30, 0, spirv::non_readable}).buffer(0).interface().reads == 0);
    const Interface half = Module() // one of two members is readonly, so the block is not
                               .add(spirv::member_decorate, {30, 0, spirv::non_writable})
                               .add(spirv::type_struct, {30, 1, 1})
                               .add(spirv::type_pointer, {50, spirv::storage_buffer, 30})
                               .add(spirv::variable, {50, 10, spirv::storage_buffer})
                               .interface();
    CHECK(half.writes == 1);
}

TEST_CASE("a texel buffer is a buffer that is only read, any other image is foreign") {
    const auto with_image = [](uint32_t dimension) { // a sampled image at binding 1
        return Module()
            .buffer(0)
            .add(spirv::decorate, {11, spirv::binding, 1})
            .add(spirv::decorate, {11, spirv::set, 0})
            .add(spirv::type_image, {60, 2, dimension, 0, 0, 0, 1, 0})
            .add(spirv::type_sampled_image, {61, 60})
            .add(spirv::type_pointer, {62, spirv::uniform_constant, 61})
            .add(spirv::variable, {62, 11, spirv::uniform_constant})
            .interface();
    };
    const Interface io = with_image(spirv::dim_buffer);
    CHECK(io.bindings == 2);
    CHECK(io.texels == 0b10);
    CHECK(io.reads == 0b11);
    CHECK(io.writes == 0b01);
    CHECK_FALSE(io.gaps);
    CHECK_FALSE(io.foreign);
    CHECK(with_image(1).foreign); // of two dimensions
    CHECK(Module().buffer(0).interface().texels == 0);
}

TEST_CASE("what a kernel may not have is noticed") {
    CHECK(Module().buffer(0).buffer(2).interface().gaps);
    CHECK(Module().buffer(0).add(spirv::decorate, {90, spirv::spec_id, 1}).interface().gaps);
    CHECK(Module().buffer(0).add(spirv::decorate, {90, spirv::spec_id, 4000}).interface().gaps);
    CHECK(Module()
              .add(spirv::decorate, {10, spirv::non_writable})
              .add(spirv::decorate, {10, spirv::non_readable})
              .buffer(0)
              .interface()
              .gaps);
    CHECK(Module().buffer(0, 1).interface().foreign);
    CHECK(Module().buffer(0).add(spirv::variable, {7, 90, spirv::uniform}).interface().foreign);
    CHECK(Module().buffer(0).add(spirv::variable, {7, 90, spirv::uniform_constant}).interface().foreign);
}

TEST_CASE("push constants end where the last member ends, in whatever order they are declared") {
    const Interface io = Module() // struct 40 { vec4 at 16; uint at 0; uint at 4 }
                             .add(spirv::member_decorate, {40, 0, spirv::offset, 16})
                             .add(spirv::member_decorate, {40, 1, spirv::offset, 0})
                             .add(spirv::member_decorate, {40, 2, spirv::offset, 4})
                             .add(spirv::type_float, {1, 32})
                             .add(spirv::type_int, {2, 32, 0})
                             .add(spirv::type_vector, {3, 1, 4})
                             .add(spirv::type_struct, {40, 3, 2, 2})
                             .add(spirv::type_pointer, {41, spirv::push_constant, 40})
                             .add(spirv::variable, {41, 42, spirv::push_constant})
                             .interface();
    CHECK(io.push_bytes == 32);
}

TEST_CASE("cooperative matrices are noticed by their capability") {
    CHECK(Module().add(spirv::capability, {1}).add(spirv::capability, {6022}).buffer(0).interface().cooperative);
    CHECK_FALSE(Module().add(spirv::capability, {1}).buffer(0).interface().cooperative);
}

TEST_CASE("reading ends at the first function and at a broken instruction") {
    CHECK(Module().buffer(0).add(spirv::function, {1, 2, 0, 3}).buffer(1).interface().bindings == 1);
    Module broken = Module().buffer(0);
    broken.words.push_back(spirv::decorate); // of length 0
    CHECK(broken.interface().bindings == 1);
}
