// exact.glsl and blocks_codec.glsl give on a device the same results as on the CPU, bit for bit, and their SPIR-V requires only
// what Vulkan promises.
#include "base/half.h"
#include "model/kv/blocks_codec.h"
#include "model/kv/exact.h"
#include "runtime/recorder.h"
#include "test_shaders.gen.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <set>

using namespace tq;
using namespace tq::conformance;

namespace {

std::span<uint32_t> words(const Buffer& buffer) {
    return {reinterpret_cast<uint32_t*>(buffer.host().data()), size_t(buffer.bytes() / 4)};
}

Buffer uploaded(Device& device, const char* label, std::span<const uint32_t> values) {
    Buffer buffer = device.allocate(label, values.size_bytes(), Memory::upload);
    std::ranges::copy(values, words(buffer).begin());
    return buffer;
}

uint32_t with_exponent(uint64_t mantissa, int e) { return uint32_t(e + 127) << 23 | uint32_t(mantissa & 0x7fffff); }

enum Codec : uint32_t { q8_0, q4_0 };

// Vectors [count][head_dim] with their largest exponent removed, as the cache normalises them; every second one rotated by H.
struct Normalised {
    std::vector<uint32_t> y, exponents;
};

void hadamard(std::span<float> x) {
    for (size_t stride = 1; stride < x.size(); stride *= 2)
        for (size_t i = 0; i < x.size(); i++)
            if ((i & stride) == 0) {
                const float u = x[i], w = x[i + stride];
                x[i] = u + w;
                x[i + stride] = u - w;
            }
}

Normalised normalised(std::vector<float> x, uint32_t head_dim) {
    Normalised out;
    for (size_t at = 0; at < x.size(); at += head_dim) {
        const auto y = std::span(x).subspan(at, head_dim);
        int e = -128;
        for (const float v : y) e = std::max(e, int(std::bit_cast<uint32_t>(v) >> 23 & 255) - 127);
        for (float& v : y) {
            const int exponent = int(std::bit_cast<uint32_t>(v) >> 23 & 255) - 127;
            v = e < -25 || e == 128 || exponent - e < -39 ? 0 : std::ldexp(v, -e);
        }
        if (at / head_dim % 2 == 1) hadamard(y);
        for (const float v : y) out.y.push_back(std::bit_cast<uint32_t>(v));
        out.exponents.push_back(uint32_t(e < -25 || e == 128 ? -128 : e));
    }
    return out;
}

// Adds half steps of every quantiser, in blocks that begin with 0 and the last code, or with the end of a signed range.
void add_half_steps(Normalised& out, uint32_t count, uint32_t head_dim, Random& random) {
    constexpr float last_codes[] = {3, 7, 8, 15, 63, 127, 255};
    for (uint32_t v = 0; v < count; v++) {
        const float last = last_codes[v % 7];
        const bool both_signs = v / 7 % 2 == 1;
        for (uint32_t i = 0; i < head_dim; i++) {
            float y = float(random.below(uint32_t(2 * last) + 1)) / 2 * (both_signs && random.below(2) != 0 ? -1.0f : 1.0f);
            if (i % 32 == 0) y = both_signs ? -last : 0;
            if (i % 32 == 1) y = last;
            out.y.push_back(std::bit_cast<uint32_t>(y));
        }
        out.exponents.push_back(random.below(20) - 10);
    }
}

std::vector<uint32_t> expected(const Normalised& in, uint32_t head_dim, Codec codec) {
    std::vector<uint32_t> out;
    for (size_t v = 0; v < in.exponents.size(); v++) {
        std::vector<float> y;
        for (uint32_t i = 0; i < head_dim; i++) y.push_back(std::bit_cast<float>(in.y[v * head_dim + i]));
        const int e = int(in.exponents[v]);
        std::vector<uint32_t> codes(head_dim), values, scales;
        for (uint32_t first = 0; first < head_dim; first += ggml_block) {
            const auto block = std::span<const float>(y).subspan(first, ggml_block);
            const auto block_codes = std::span(codes).subspan(first, ggml_block);
            scales.push_back(codec == q8_0 ? encode_q8_0(block_codes, block, e) : encode_q4_0(block_codes, block, e));
            const float scale = half_to_float(uint16_t(scales.back()));
            for (const uint32_t code : block_codes) {
                const float value = codec == q8_0 ? decode_q8_0(code, scale) : decode_q4_0(code, scale);
                values.push_back(value == 0 ? 0 : std::bit_cast<uint32_t>(value)); // Vulkan promises no sign of zero
            }
        }
        for (const auto& part : {codes, values, scales}) out.insert(out.end(), part.begin(), part.end());
    }
    return out;
}

// Checks that every sum and product of `code` is kept from contraction and that nothing else computes floats. Returns their
// number.
int check_instructions(std::span<const uint32_t> code) {
    enum : uint32_t { ext_inst = 12, decorate = 71, no_contraction = 42, f_abs = 4, u_min = 38, u_max = 41, find_u_msb = 75 };
    enum : uint32_t { f_add = 129, f_sub = 131, f_mul = 133, f_div = 136, f_rem = 140, dot = 148 };
    std::set<uint32_t> never_contracted;
    int arithmetic = 0;
    for (size_t at = spirv::header_words; at < code.size(); at += code[at] >> 16) {
        REQUIRE((code[at] >> 16) != 0);
        const uint32_t op = code[at] & 0xffff;
        if (op == decorate && code[at + 2] == no_contraction) never_contracted.insert(code[at + 1]);
        if (op == f_add || op == f_sub || op == f_mul) {
            CHECK(never_contracted.contains(code[at + 2])); // decorations come before functions
            arithmetic++;
        }
        if (op == ext_inst) CHECK(std::set<uint32_t>{f_abs, u_min, u_max, find_u_msb}.contains(code[at + 4]));
        CHECK_FALSE((op == f_div || (op >= f_rem && op <= dot)));
    }
    return arithmetic;
}

} // namespace

TEST_CASE("exact divisions and square roots") {
    Device device;
    Random random{21};
    constexpr uint32_t count = 100000;
    std::vector<uint32_t> x, right;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t s = 1 + random.below((1u << (1 + random.below(24))) - 1);
        uint32_t n = with_exponent(random.bits(), int(random.below(100)) - 50),
                 d = with_exponent(random.bits(), int(random.below(100)) - 50);
        if (i % 3 == 0) { // an odd number of 12 bits as the quotient and the root: halfway between two of 11 bits
            const uint32_t m = 2049 + 2 * random.below(1024);
            n = std::bit_cast<uint32_t>(std::ldexp(float(m * m), 2 * int(random.below(40)) - 50));
            d = std::bit_cast<uint32_t>(float(m));
            s = 1u << 2 * random.below(12);
        }
        const float nf = std::bit_cast<float>(n), df = std::bit_cast<float>(d);
        const int of_quotient = std::ilogb(df) - std::ilogb(nf), of_root = (std::ilogb(float(s)) - std::ilogb(nf)) / 2;
        const int e = (i % 2 == 0 ? of_quotient : of_root) + int(random.below(50)) - 30;
        x.insert(x.end(), {n, d, s, uint32_t(e)});
        right.insert(right.end(), {std::bit_cast<uint32_t>(divide(nf, df)), quotient_half_bits(nf, df, e),
                                   sqrt_quotient_half_bits(nf, s, e), 0});
    }
    const Buffer in = uploaded(device, "in", x), out = device.allocate("out", x.size() * 4, Memory::readback);
    Recorder recorder(device);
    recorder.dispatch<test_shader::exact>({(count + 63) / 64}, {}, {count}, {}, out, in);
    recorder.finish().run();
    for (size_t column = 0; column < 3; column++) {
        CAPTURE(column);
        size_t differing = 0;
        for (size_t i = column; i < right.size(); i += 4) differing += words(out)[i] != right[i] ? 1 : 0;
        CHECK(differing == 0);
    }
}

TEST_CASE("block quantisers: codes, decoded values and scales of every kind of vector") {
    Device device;
    Random random{22};
    for (const uint32_t d : {64u, 128u, 256u}) {
        Normalised in = normalised(codec_vectors(codec_vector_kinds * 20, d, Signs{}, d), d);
        add_half_steps(in, 140, d, random);
        const auto count = uint32_t(in.exponents.size());
        const Buffer y = uploaded(device, "y", in.y), e = uploaded(device, "e", in.exponents);
        for (const Codec codec : {q8_0, q4_0}) {
            CAPTURE(d);
            CAPTURE(uint32_t(codec));
            const std::vector<uint32_t> right = expected(in, d, codec);
            const Buffer out = device.allocate("out", right.size() * 4, Memory::readback);
            Recorder recorder(device);
            recorder.dispatch<test_shader::blocks_codec>({count}, {d}, {codec}, {}, out, y, e);
            recorder.finish().run();
            size_t differing = 0;
            for (size_t i = 0; i < right.size(); i++) differing += words(out)[i] != right[i] ? 1 : 0;
            CHECK(differing == 0);
        }
    }
}

TEST_CASE("SPIR-V: no sum or product may be contracted, and nothing else computes floats") {
    CHECK(check_instructions(test_shader::exact.code()) == 0);
    CHECK(check_instructions(test_shader::blocks_codec.code()) >= 8); // with decoding
}
