// Weights quantised while loading: the bytes of ggml's reference quantiser, element by element in plain arithmetic, and the
// bytes of files that it wrote.
#include "base/error.h"
#include "base/half.h"
#include "model/files/formats/open.h"
#include "model/files/formats/quantise.h"
#include "model/load.h"
#include "model/weights/quantised_rows.h"
#include "tests/support/golden.h"
#include "tests/support/rounded.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

using Block = std::array<float, 32>;

void append_half(std::vector<std::byte>& to, float d) {
    const uint16_t bits = float_to_half(d);
    to.push_back(std::byte(bits & 255));
    to.push_back(std::byte(bits >> 8));
}

std::vector<std::byte> plain_q8_0(const Block& x) {
    std::vector<std::byte> bytes;
    float greatest = 0;
    for (const float v : x) greatest = std::max(greatest, std::fabs(v));
    const float d = greatest / 127, id = d != 0 ? 1 / d : 0;
    append_half(bytes, d);
    for (const float v : x) bytes.push_back(std::byte(int8_t(test::rounded(v * id))));
    return bytes;
}

std::vector<std::byte> plain_q4_0(const Block& x) {
    std::vector<std::byte> bytes;
    float greatest = 0, extreme = 0;
    for (const float v : x) {
        if (greatest < std::fabs(v)) greatest = std::fabs(v), extreme = v;
    }
    const float d = extreme / -8, id = d != 0 ? 1 / d : 0;
    append_half(bytes, d);
    const auto code = [&](float v) { return std::min(15, int(std::trunc(v * id + 8.5f))); };
    for (size_t i = 0; i < 16; ++i) bytes.push_back(std::byte(code(x[i]) | code(x[i + 16]) << 4));
    return bytes;
}

void check_block(const Block& x) {
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0}) {
        std::vector<std::byte> bytes(row_bytes(type, 32));
        quantise_row(type, bytes, x);
        CHECK(bytes == (type == GgmlType::Q8_0 ? plain_q8_0(x) : plain_q4_0(x)));
    }
}

Tensor tensor_of(std::vector<float>& values, uint32_t rows, uint32_t cols) {
    return {"w", GgmlType::F32, rows, cols, std::as_bytes(std::span(values))};
}

} // namespace

TEST_CASE("blocks of all kinds are those of the reference quantiser") {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const float scale : {1e-3f, 1.0f, 1000.0f, 1e-6f, 1e-9f}) {
        for (int i = 0; i < 2000; ++i) {
            Block x;
            for (float& v : x) v = normal(random) * scale;
            check_block(x);
        }
    }
    for (int i = 0; i < 2000; ++i) { // halves and ties: multiples of 1/2 and of 1/4 up to 127
        Block x;
        for (float& v : x) v = float(int(random() % 1017) - 508) / 4;
        x[random() % 32] = random() % 2 ? 127 : -127;
        check_block(x);
        for (float& v : x) v = float(int(random() % 33) - 16) / 2;
        check_block(x);
    }
    check_block({});
    Block signs{};
    signs[3] = -2, signs[9] = 2;
    check_block(signs);
    signs[3] = 2, signs[9] = -2;
    check_block(signs);
    Block nearly{};
    nearly[0] = 127, nearly[1] = std::nextafter(0.5f, 0.0f), nearly[2] = -nearly[1], nearly[3] = -0.5f;
    check_block(nearly);
}

TEST_CASE("values far below fp16 become zeros, values far above are reported") {
    Block x;
    x.fill(1e-40f);
    std::vector<float> y(32);
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0}) {
        std::vector<std::byte> bytes(row_bytes(type, 32));
        quantise_row(type, bytes, x);
        decode_row(type, y, bytes);
        CHECK(std::ranges::all_of(y, [](float v) { return v == 0; }));
        for (const float bad : {INFINITY, -INFINITY, std::nanf(""), -std::nanf(""), 1e8f, -1e38f}) {
            for (const size_t at : {0, 17, 31}) {
                Block spoilt{};
                spoilt[at] = bad;
                quantise_row(type, bytes, spoilt);
                CHECK(find_nonfinite_block(type, bytes) == 0);
            }
        }
    }
}

TEST_CASE("rows are made in any order and number, and a damaged one is named") {
    constexpr uint32_t rows = 37, cols = 96;
    std::vector<float> values(rows * cols);
    std::mt19937 random(2);
    for (float& v : values) v = float(int(random() % 2001) - 1000) / 100;
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0}) {
        const Tensor made = quantised(tensor_of(values, rows, cols), type);
        CHECK(made.type == type);
        CHECK(made.data.empty());
        std::vector<std::byte> scratch, all(made.bytes());
        for (uint32_t r = 0; r < rows; ++r)
            quantise_row(type, std::span(all).subspan(r * made.row_bytes(), made.row_bytes()),
                         std::span(values).subspan(r * cols, cols));
        for (const auto& [first, count] : {std::pair(0u, rows), {5u, 1u}, {30u, 7u}, {36u, 1u}}) {
            const auto some = made.read(first, count, scratch);
            CHECK(std::ranges::equal(some, std::span(all).subspan(first * made.row_bytes(), count * made.row_bytes())));
        }
    }
}

TEST_CASE("rows that ggml quantised") {
    const ModelFile file = open_model_file(test_data("quantised_rows.gguf"));
    const FileTensor& f32 = *file.find_tensor("f32");
    std::vector<float> values(f32.ne[0] * f32.ne[1]);
    std::memcpy(values.data(), f32.data.data(), f32.data.size());
    for (const auto& [type, name] : {std::pair(GgmlType::Q8_0, "q8_0"), {GgmlType::Q4_0, "q4_0"}}) {
        CAPTURE(name);
        const FileTensor& theirs = *file.find_tensor(name);
        CHECK(theirs.type == type);
        std::vector<std::byte> bytes(theirs.data.size());
        quantise_row(type, bytes, values);
        CHECK(std::ranges::equal(bytes, theirs.data));
    }
}

TEST_CASE("a NaN in a file's matrix is reported by tensor and row") {
    const ModelFile file = open_model_file(test_data("qwen3-mixed.gguf"));
    Weights weights = read_weights(file, read_config(file));
    Tensor& up = weights.layers[1].ffn_up;
    REQUIRE(up.type == GgmlType::F32);
    std::vector<std::byte> copy(up.data.begin(), up.data.end());
    const float bad = std::nanf("");
    std::memcpy(copy.data() + 77 * up.row_bytes() + 40, &bad, 4);
    up.data = copy;
    quantise(weights, GgmlType::Q4_0);
    ThreadPool pool;
    CHECK_THROWS_WITH_AS(load_weights(pool, weights), doctest::Contains("tensor 'blk.1.ffn_up.weight' has a weight in row 77"),
                         Error);
}
