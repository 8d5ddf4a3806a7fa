// Decoded blocks equal the results of ggml's own decoders, bit for bit; the hashes are from
// tests/support/golden/make_low_bits.py, but those of Q1_0 and Q2_0 from dequantize_row_q1_0 and _q2_0 of llama.cpp 0.7.0's
// libggml-base, as ggml's Python code has no decoders of them.
#include "base/blake2s.h"
#include "model/files/formats/blocks.h"
#include "model/weights/quantised_rows.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <string>
#include <vector>

using namespace tq;

namespace {

struct Hashed {
    GgmlType type;
    const char* hash;
};

constexpr Hashed hashes[] = {
    {GgmlType::Q8_0, "3fd234f93e67ec4c"},    {GgmlType::Q4_0, "d773ea881d20e735"},   {GgmlType::Q4_1, "91359860b5128e37"},
    {GgmlType::Q5_0, "9f199ad1a8f43ecf"},    {GgmlType::Q5_1, "727d10e6e71ac7b5"},   {GgmlType::Q2_K, "b43410fb16a6349c"},
    {GgmlType::Q3_K, "cf12b0569338ec00"},    {GgmlType::Q4_K, "840dccbf710a3cf5"},   {GgmlType::Q5_K, "933d333a7ed9abc3"},
    {GgmlType::Q6_K, "5927fb8e0548f379"},    {GgmlType::IQ1_S, "c9fdd904e5abc8fd"},  {GgmlType::IQ1_M, "a40c2f19548a1ef9"},
    {GgmlType::IQ2_XXS, "97a457ee99bee2c9"}, {GgmlType::IQ2_XS, "a3d983e31e8675f9"}, {GgmlType::IQ2_S, "95b0a14b18a03d43"},
    {GgmlType::IQ3_XXS, "328746f576a5a5d4"}, {GgmlType::IQ3_S, "756fe68d86518304"},  {GgmlType::IQ4_NL, "95040e5a02c9d088"},
    {GgmlType::IQ4_XS, "c67afa2b8c0e6dc0"},  {GgmlType::TQ1_0, "9b36da40502be96c"},  {GgmlType::TQ2_0, "61182bb9a0805816"},
    {GgmlType::MXFP4, "8c0ef55ccb4d4803"},   {GgmlType::NVFP4, "75ae28bc4723dde0"},  {GgmlType::Q1_0, "f5aaa1973e37abac"},
    {GgmlType::Q2_0, "8b1eeda17b330782"},
};

// The highest bytes of a block's fp16 numbers.
std::vector<size_t> highest_bytes(GgmlType type) {
    const BlockScales& scales = block_format(type)->scales;
    if (scales.in_nibbles) return {size_t(scales.scale) + 7};
    std::vector<size_t> all;
    for (const int at : {scales.scale, scales.minimum})
        if (at >= 0) all.push_back(size_t(at) + 1);
    return all;
}

// The highest bytes of the numbers of a linear congruential generator, with finite scales.
std::vector<std::byte> generated(GgmlType type, size_t blocks) {
    const size_t size = block_format(type)->bytes;
    std::vector<std::byte> bytes(blocks * size);
    uint32_t x = 1;
    for (std::byte& b : bytes) b = std::byte((x = x * 1664525 + 1013904223) >> 24);
    for (size_t at = 0; at < bytes.size(); at += size) {
        for (const size_t highest : highest_bytes(type)) bytes[at + highest] &= std::byte(0xbf);
        if (type == GgmlType::MXFP4) bytes[at] &= std::byte(0x7f);
    }
    return bytes;
}

std::vector<float> decoded(GgmlType type, std::span<const std::byte> bytes) {
    std::vector<float> values(bytes.size() / block_format(type)->bytes * block_format(type)->elements);
    decode_row(type, values, bytes);
    return values;
}

} // namespace

TEST_CASE("blocks decode to ggml's numbers") {
    for (const auto& [type, expected] : hashes) {
        std::array<std::byte, 8> hash;
        const std::vector<float> values = decoded(type, generated(type, 200));
        blake2s(hash, std::as_bytes(std::span(values)));
        std::string text;
        for (const std::byte b : hash) text += fmt::format("{:02x}", int(b));
        CHECK_MESSAGE(text == expected, type_name(type));
    }
    for (const GgmlType type : weight_formats)
        if (block_format(type)->elements > 1)
            CHECK_MESSAGE(std::ranges::count(hashes, type, &Hashed::type) == 1, type_name(type));
}

TEST_CASE("matrices in TQ1_0 and Q1_0 become TQ2_0 and Q2_0 with the same weights, in any rows") {
    constexpr uint32_t rows = 7;
    for (const auto& [type, other, cols] :
         {std::tuple(GgmlType::TQ1_0, GgmlType::TQ2_0, 512u), {GgmlType::Q1_0, GgmlType::Q2_0, 384u}}) {
        const auto bytes = generated(type, rows * cols / block_format(type)->elements);
        const Tensor from{"m", type, rows, cols, bytes}, to = in_two_bits(from);
        CHECK(to.type == other);
        CHECK(to_floats(to) == to_floats(from));
        std::vector<std::byte> scratch;
        CHECK(decoded(other, to.read(2, 3, scratch)) ==
              decoded(type, std::span(bytes).subspan(2 * from.row_bytes(), 3 * from.row_bytes())));
        CHECK(in_two_bits(to).type == other);
    }
}
