// The size of subgroups that kernels require, and that no kernel relies on a driver's numbering of invocations.
#include "runtime/recorder.h"
#include "runtime/subgroup_size.h"
#include "shaders.gen.h"
#include "shaders/matvec_outputs.h"
#include "tests/support/skip.h"
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <set>
#include <vector>
using namespace tq;

namespace {

// Built-in variables of SPIR-V.
constexpr uint32_t subgroup_size = 36, num_subgroups = 38, subgroup_id = 40;

std::set<uint32_t> builtins(std::span<const uint32_t> code) {
    std::set<uint32_t> out;
    spirv::each(code, [&](uint32_t op, auto in) {
        if (op == spirv::decorate && in[2] == spirv::builtin) out.insert(in[3]);
    });
    return out;
}

constexpr uint32_t op_load = 61, op_iadd = 128, op_module_processed = 330;
constexpr size_t lying_words = 1 << 15;

// `code` as it would run if gl_SubgroupSize is twice its actual value, as in Mesa's driver for Intel: every value loaded
// from it is added to itself. Padded to lying_words with a comment, so that a span of that size can refer to it.
void lie(std::span<const uint32_t> code, std::span<uint32_t, lying_words> out) {
    std::vector<uint32_t> head(code.begin(), code.begin() + spirv::header_words), rest;
    std::set<uint32_t> sizes;
    size_t annotations = 0;
    for (size_t at = spirv::header_words; at < code.size(); at += code[at] >> 16) {
        const std::span in = code.subspan(at, code[at] >> 16);
        const uint32_t op = in[0] & 0xffff;
        if (op == spirv::decorate && in[2] == spirv::builtin && in[3] == subgroup_size) sizes.insert(in[1]);
        if (annotations == 0 && (op == spirv::decorate || op == spirv::member_decorate)) annotations = rest.size();
        rest.insert(rest.end(), in.begin(), in.end());
        if (op != op_load || !sizes.contains(in[3])) continue;
        const uint32_t loaded = head[3]++;
        rest[rest.size() - in.size() + 2] = loaded;
        rest.insert(rest.end(), {5u << 16 | op_iadd, in[1], in[2], loaded, loaded});
    }
    const size_t padding = lying_words - head.size() - rest.size();
    REQUIRE(padding >= 2);
    std::vector<uint32_t> comment(padding, 0x20202020u);
    comment.front() = uint32_t(padding) << 16 | op_module_processed;
    comment.back() = 0;
    rest.insert(rest.begin() + std::ptrdiff_t(annotations), comment.begin(), comment.end());
    std::ranges::copy(head, out.begin());
    std::ranges::copy(rest, out.begin() + head.size());
}

std::array<uint32_t, lying_words> lying_code;
const std::span<const uint32_t> lying_span = lying_code;
constexpr Shader<matvec_params, shader::matvec_constants> lying_matvec{
    {"matvec_f32_subgroup where subgroups lie", &lying_span, shader::matvec_f32_subgroup.interface}};

Capabilities device_of(uint32_t vendor, uint32_t own, uint32_t min, uint32_t max) {
    Capabilities c;
    c.vendor_id = vendor;
    c.subgroup_size = own;
    c.min_subgroup_size = min;
    c.max_subgroup_size = max;
    return c;
}

} // namespace

TEST_CASE("which size is required where a pipeline may choose") {
    CHECK(preferred_subgroup_size(device_of(0x8086, 32, 8, 32)) == 8);     // Intel up to Arc A
    CHECK(preferred_subgroup_size(device_of(0x8086, 32, 16, 32)) == 16);   // Arc B
    CHECK(preferred_subgroup_size(device_of(0x1002, 64, 32, 64)) == 32);   // AMD's RDNA
    CHECK(preferred_subgroup_size(device_of(0x1002, 64, 64, 64)) == 64);   // GCN
    CHECK(preferred_subgroup_size(device_of(0x5143, 128, 64, 128)) == 64); // Adreno
    CHECK(preferred_subgroup_size(device_of(0x10de, 32, 32, 32)) == 32);   // NVIDIA
    CHECK(preferred_subgroup_size(device_of(0x13b5, 16, 16, 16)) == 16);   // Mali
}

TEST_CASE("kernels number invocations by gl_LocalInvocationID") {
    for (const AnyShader* shader : shader::all) {
        CAPTURE(shader->name);
        const std::set<uint32_t> used = builtins(shader->code());
        CHECK(!used.contains(subgroup_size));
        CHECK(!used.contains(num_subgroups));
        // Strips of a matrix product may be assigned to subgroups in any order, and a driver can tell that the number is the
        // same for all lanes.
        CHECK((!used.contains(subgroup_id) || shader->interface.cooperative));
    }
}

TEST_CASE("a kernel for subgroups is known by its operations") {
    CHECK(shader::matvec_q4_k_subgroup.interface.subgroups);
    CHECK(shader::attention_subgroup.interface.subgroups);
    CHECK(!shader::matvec_q4_k.interface.subgroups);
    CHECK(!shader::attention.interface.subgroups);
    Capabilities device = device_of(0x8086, 32, 8, 32);
    device.kernel_subgroup_size = 16;
    CHECK(subgroup_size_of(shader::matvec_q4_k_subgroup, device) == 16);
    CHECK(subgroup_size_of(shader::matvec_q4_k, device) == 0);
}

TEST_CASE("matvec writes every row where gl_SubgroupSize is not the size of subgroups") {
    lie(shader::matvec_f32_subgroup.code(), lying_code);
    constexpr uint32_t rows = 40, cols = 64, lanes = 4, workgroup = 64;
    Device device;
    const Capabilities& c = device.capabilities();
    if (c.kernel_subgroup_size < lanes || !c.subgroup_shuffle) {
        test::skip("this device has no subgroups of four invocations that shuffle");
        return;
    }
    Buffer y = device.allocate("y", rows * 4, Memory::readback), w = device.allocate("w", rows * cols * 4, Memory::upload),
           x = device.allocate("x", cols * 4, Memory::upload);
    const auto floats = [](Buffer& buffer) { return reinterpret_cast<float*>(buffer.host().data()); };
    for (uint32_t r = 0; r < rows; r++) floats(y)[r] = -1;
    for (uint32_t i = 0; i < rows * cols; i++) floats(w)[i] = float(i % 7);
    for (uint32_t i = 0; i < cols; i++) floats(x)[i] = float(i % 5);
    Recorder recorder(device);
    recorder.dispatch<lying_matvec>({(rows + 31) / 32},
                                    {.workgroup = workgroup,
                                     .lanes = lanes,
                                     .rows = 2,
                                     .matvec_output = MATVEC_STORE,
                                     .interleave = 1,
                                     .normed = 0,
                                     .subgroup = c.kernel_subgroup_size,
                                     .columns = 1,
                                     .experts = 0,
                                     .blocks = 1},
                                    {.cols = cols, .rows = rows}, {}, y, w, x, x);
    recorder.finish().run();
    for (uint32_t r = 0; r < rows; r++) {
        CAPTURE(r);
        float expected = 0;
        for (uint32_t i = 0; i < cols; i++) expected += float((r * cols + i) % 7 * (i % 5));
        CHECK(floats(y)[r] == expected);
    }
}
