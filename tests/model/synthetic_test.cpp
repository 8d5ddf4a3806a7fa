// Models with random weights: the true shapes and mixtures of formats, and rows that do not depend on how they are read.
#include "base/error.h"
#include "model/load.h"
#include "model/weights/synthetic/synthetic.h"
#include "model/weights/synthetic/synthetic_rows.h"
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;

namespace {

std::vector<std::byte> all_rows(const Tensor& t) {
    std::vector<std::byte> bytes(t.bytes());
    t.source->make_rows(bytes, 0, t.rows);
    return bytes;
}

struct Moments {
    double mean, deviation;
};

Moments moments(const Tensor& t) {
    double sum = 0, squares = 0;
    for (const float v : to_floats(t)) {
        sum += v;
        squares += double(v) * v;
    }
    const double n = double(t.rows) * t.cols;
    return {sum / n, std::sqrt(squares / n)};
}

double mib_of(const char* name) { return double(make_synthetic(parse_synthetic(name)).weights.bytes()) / (1 << 20); }

std::string error_of(const char* name, uint32_t layers = 0) {
    try {
        parse_synthetic(name, layers);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

} // namespace

TEST_CASE("sizes of the mixtures are those of published files") {
    CHECK(mib_of("qwen3-0.6b:q8_0") == doctest::Approx(604).epsilon(0.001));
    CHECK(mib_of("qwen3-0.6b:q4_k_m") == doctest::Approx(373).epsilon(0.001));
    CHECK(mib_of("qwen3-14b:q8_0") == doctest::Approx(14965.6).epsilon(0.0001));
    CHECK(mib_of("Qwen3-14B:Q4_K_M") == doctest::Approx(8579).epsilon(0.0001));
    CHECK(mib_of("qwen3-14b:q6_k") == doctest::Approx(11555).epsilon(0.0001));
    CHECK(mib_of("qwen3-14b:f16") == doctest::Approx(28169).epsilon(0.0001));
    CHECK(mib_of("qwen3-4b-2507") == mib_of("qwen3-4b:q8_0"));
}

TEST_CASE("shapes and mixtures that there are not are refused with a list") {
    CHECK(error_of("qwen3-5b") == "unknown shape 'qwen3-5b': use one of qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-4b-2507 qwen3-8b "
                                  "qwen3-14b qwen3-32b qwen3-30b-a3b qwen3-30b-a3b-2507 qwen3-235b-a22b qwen3.5-0.8b "
                                  "qwen3.5-2b qwen3.5-4b qwen3.5-9b qwen3.8-27b qwen3.5-35b-a3b qwen3-next-80b-a3b");
    CHECK(error_of("qwen3-8b:q9").starts_with("unknown mixture of weight formats 'q9': use one of f32 f16"));
    CHECK(error_of("qwen3-8b:").starts_with("unknown mixture of weight formats ''"));
    CHECK(error_of("\x1b[2J").starts_with("unknown shape '\\x1b[2j'"));
    CHECK(error_of("qwen3-8b", 37) == "qwen3-8b has 36 layers, not 37");
}

TEST_CASE("rows are the same in any pieces, and different for other seeds and rows") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const Tensor t = synthetic_matrix("t", type, 7, 768, 0.02, 5), other = synthetic_matrix("t", type, 7, 768, 0.02, 6);
        const auto whole = all_rows(t);
        std::vector<std::byte> scratch;
        for (uint32_t r = 0; r < t.rows; r++)
            CHECK(std::ranges::equal(t.read(r, 1, scratch), std::span(whole).subspan(r * t.row_bytes(), t.row_bytes())));
        CHECK(std::ranges::equal(t.read(2, 4, scratch), std::span(whole).subspan(2 * t.row_bytes(), 4 * t.row_bytes())));
        CHECK(all_rows(other) != whole);
        CHECK(!std::ranges::equal(std::span(whole).first(t.row_bytes()), std::span(whole).subspan(t.row_bytes(), t.row_bytes())));
    }
}

TEST_CASE("weights have mean 0 and the deviation asked for") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        for (const double deviation : {1 / std::sqrt(1024.0), 1 / std::sqrt(25600.0)}) {
            const Moments m = moments(synthetic_matrix("t", type, 256, 1024, deviation, 3));
            const double tolerance = block_format(type)->elements == 1 || type == GgmlType::MXFP4 ? 0.5 : 0.06;
            CHECK(m.deviation / deviation == doctest::Approx(1).epsilon(tolerance));
            CHECK(std::abs(m.mean) / deviation < 0.02);
        }
    }
    const Moments norm = moments(synthetic_norm("n", 4096, 1));
    CHECK(norm.mean == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("a cut model is the beginning of the whole one, and loads") {
    const Model whole = make_synthetic(parse_synthetic("qwen3-0.6b:q4_k_m", 3)),
                cut = make_synthetic(parse_synthetic("qwen3-0.6b:q4_k_m", 1));
    CHECK(cut.config.num_hidden_layers == 1);
    CHECK(all_rows(cut.weights.layers[0].ffn_down) == all_rows(whole.weights.layers[0].ffn_down));
    CHECK(all_rows(whole.weights.layers[1].attn_q) != all_rows(whole.weights.layers[0].attn_q));
    CHECK(cut.tokenizer.decode(cut.tokenizer.encode("any text")) == "any text");

    ThreadPool pool;
    uint64_t last = 0, total = 0;
    const LoadedWeights loaded = load_weights(pool, cut.weights, [&](uint64_t done, uint64_t all) {
        CHECK(done > last);
        last = done;
        total = all;
        return true;
    });
    CHECK(last == total);
    CHECK(total == cut.weights.bytes());
    CHECK(loaded.weights.output.data.data() == loaded.weights.token_embd.data.data()); // tied
    std::vector<std::byte> scratch;
    CHECK(std::ranges::equal(loaded.weights.layers[0].attn_v.row(1023), cut.weights.layers[0].attn_v.read(1023, 1, scratch)));
    CHECK_THROWS_AS(load_weights(pool, cut.weights, [](uint64_t, uint64_t) { return false; }), LoadStopped);
}
