// The page lab: its passes are those of the shipped cache, and its transforms and codecs keep their promises.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/kv/codec.h"
#include "model/model.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_model.h"
#include "tools/page_lab/forward.h"
#include "tools/page_lab/levels.h"
#include "tools/page_lab/linear.h"
#include <cmath>
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::page_lab;

namespace {

constexpr size_t tokens = 64, dim = 128;

std::vector<float> normal_numbers(uint32_t seed, size_t count = tokens * dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(count);
    for (float& v : out) v = normal(random);
    return out;
}

struct Coded {
    std::vector<float> y;
    double bits;
};

Coded code(const char* chain, std::span<const float> x, KvSide side = KvSide::key, std::span<const float> queries = {},
           const Statistics* statistics = nullptr) {
    Coded out{std::vector<float>(x.size()), 0};
    out.bits = parse_tile_codec(chain)->code(out.y, {1, 4, 0, side, x.size() / dim, dim, x, queries, statistics});
    return out;
}

double error(const Coded& coded, std::span<const float> x) { return std::pow(relative_error(coded.y, x), 2); }

} // namespace

TEST_CASE("a shipped type decodes to the cache's own numbers, token by token") {
    const std::vector<float> x = normal_numbers(1);
    for (const KvType type : {KvType::tq3, KvType::tq4t, KvType::q4_0r}) {
        const Coded coded = code(name(type), x, KvSide::value);
        CHECK(coded.bits == double(tokens * kv_vector_bytes(type, dim) * 8));
        const KvCodec codec = KvOptions{type, type}.codec(1, 4, KvSide::value, dim);
        std::vector<uint32_t> words(codec.words());
        std::vector<uint16_t> scales(codec.scales());
        std::vector<float> y(dim);
        for (size_t at = 0; at < x.size(); at += dim) {
            encode(codec, words, scales, std::span(x).subspan(at, dim));
            decode(codec, y, words, scales);
            CHECK(std::ranges::equal(y, std::span(coded.y).subspan(at, dim)));
        }
    }
}

TEST_CASE("a type's levels after the lab's rotation are the type") {
    const std::vector<float> x = normal_numbers(2);
    CHECK(relative_error(code("rot+levels:3", x).y, code("tq3", x).y) < 1e-3);   // the scale's rounding differs
    CHECK(relative_error(code("rot+trellis:4", x).y, code("tq4t", x).y) < 0.03); // so does that of the trellis's grid
    CHECK(relative_error(code("rot+levels:3", x, KvSide::value).y, code("tq3", x).y) > 0.05);
}

TEST_CASE("a mean and powers of two in channels cost a page nothing") {
    const std::vector<float> x = normal_numbers(3);
    std::vector<float> moved = x, scaled = x;
    for (size_t i = 0; i < x.size(); i++) moved[i] += float(i % dim), scaled[i] = std::ldexp(x[i], int(i % dim % 7));
    Coded back = code("mean+tq3", moved);
    for (size_t i = 0; i < x.size(); i++) back.y[i] -= float(i % dim);
    CHECK(error(back, x) < 1.1 * error(code("tq3", x), x));
    CHECK(error(code("tq3", moved), moved) > 0.03);
    CHECK(back.bits == code("tq3", x).bits + 16 * dim);

    Coded unscaled = code("channels+levels:3", scaled);
    for (size_t i = 0; i < x.size(); i++) unscaled.y[i] = std::ldexp(unscaled.y[i], -int(i % dim % 7));
    CHECK(relative_error(unscaled.y, code("channels+levels:3", x).y) < 1e-6);
}

TEST_CASE("unequal bits have the sum that was asked for, and less error where channels differ") {
    std::vector<float> x = normal_numbers(4);
    for (size_t i = 0; i < x.size(); i++) x[i] *= std::exp(float(i % dim) / 32);
    const Coded even = code("channels+unit:3", x), uneven = code("allocated:3", x), trellis = code("allocated:3:3", x);
    CHECK(uneven.bits == double(3 * x.size() + 20 * dim));
    CHECK(error(uneven, x) < 0.6 * error(even, x));
    CHECK(error(trellis, x) < error(uneven, x));
    CHECK(code("allocated:2.5", x).bits == double(x.size()) * 2.5 + 20 * dim);
}

TEST_CASE("every transform is undone, whatever the size of channels and tokens") {
    std::vector<float> x = normal_numbers(10);
    for (size_t i = 0; i < x.size(); i++) x[i] *= std::exp(float(i % dim) / 40 + float(i / dim) / 20);
    Statistics statistics{second_moment(x, dim), second_moment(normal_numbers(11, 256 * dim), dim)};
    for (const char* transform :
         {"mean", "rot", "groups", "channels", "channels8", "conditioned", "tokens", "tokens-ls", "both", "both-ls", "balanced",
          "balanced8", "basis", "basis:0.01", "mean+rot+balanced", "basis+groups+tokens"}) {
        const std::string chain = std::string(transform) + "+rtn-tokens:8";
        CAPTURE(chain);
        CHECK(error(code(chain.c_str(), x, KvSide::value, {}, &statistics), x) < 1e-3);
    }
    CHECK_THROWS_AS(code("basis+levels:6", x), Error); // no statistics
}

TEST_CASE("trellises of more states come closer to the bound of normal numbers") {
    const std::vector<float> x = normal_numbers(5);
    const double scalar = error(code("unit:2", x), x), four = error(code("long-tokens:2:2", x), x);
    const double sixty_four = error(code("long-tokens:2:6", x), x);
    CHECK(scalar == doctest::Approx(normal_levels(2).distortion).epsilon(0.04));
    CHECK(four < 0.85 * scalar);
    CHECK(sixty_four < 0.95 * four);
    CHECK(sixty_four > 1 / 16.0);
}

TEST_CASE("KVarN's tile is of the size that its description gives") {
    const std::vector<float> x = normal_numbers(6, 128 * dim);
    for (const KvSide side : {KvSide::key, KvSide::value}) {
        const Coded coded = code("kvarn:4", x, side);
        CHECK(coded.bits == double(x.size() * 4 + 3 * 16 * 128));
        CHECK(error(coded, x) < 0.015);
    }
    std::vector<float> outlier = x;
    for (size_t i = 0; i < dim; i++) outlier[5 * dim + i] *= 1000; // one token does not coarsen the others
    Coded coded = code("kvarn:4", outlier);
    std::fill_n(&coded.y[5 * dim], dim, 0.0f), std::fill_n(&outlier[5 * dim], dim, 0.0f);
    CHECK(error(coded, outlier) < 0.02);
}

TEST_CASE("error feedback and gains by queries make the errors of products with the page's queries smaller") {
    const std::vector<float> x = normal_numbers(7);
    std::vector<float> queries = normal_numbers(8, 256 * dim);
    for (size_t i = 0; i < queries.size(); i++) queries[i] *= i % dim < 16 ? 4.0f : 0.5f;
    const auto products = [&](const Coded& coded) {
        double sum = 0;
        for (size_t q = 0; q < queries.size(); q += dim)
            for (size_t t = 0; t < x.size(); t += dim) {
                double product = 0;
                for (size_t c = 0; c < dim; c++) product += double(queries[q + c]) * (coded.y[t + c] - x[t + c]);
                sum += product * product;
            }
        return sum;
    };
    CHECK(products(code("page-feedback:4:0.01", x, KvSide::key, queries)) < 0.6 * products(code("tq4", x)));
    CHECK(products(code("conditioned+tq4", x, KvSide::key, queries)) < 0.6 * products(code("tq4", x)));
}

TEST_CASE("the window says what is exact, and what it costs") {
    const Window sliding{false, 16, 256}, none{false, 0, 256}, pages{true, 32, 256};
    CHECK(sliding.first(3) == 0);
    CHECK(sliding.first(100) == 85);
    CHECK(none.first(100) == 101);
    CHECK(pages.first(255) == 0);
    CHECK(pages.first(286) == 0);
    CHECK(pages.first(287) == 256);
    CHECK(pages.first(542) == 256);
    CHECK(pages.first(543) == 512);
    CHECK(none.bytes(66, 256, 2048) == 2048 * 66);
    CHECK(sliding.bytes(66, 256, 2048) == 2048 * 66 + 32 * 256);
    CHECK(pages.bytes(66, 256, 2048) == (2048 - 32) * 66 + (32 + 16 + 256) * 256);
    CHECK(parse_scheme("tq4/tq3,window=16,page=128").window.page == 128);
}

TEST_CASE("what is no scheme is refused") {
    for (const char* text : {"tq9", "mean", "mean+", "tq4,window", "tq4,window=x", "tq4,windows=4", "turn+tq4", "levels",
                             "levels:9", "unit:2.5", "long-tokens:2:40", "tq4,page=0", "tq4,", "", "tq4/"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(parse_scheme(text), Error);
    }
}

TEST_CASE("a pass of the lab gives the logits of the cache that it describes") {
    const SmallModel small;
    const Model model = load_model(small.path.path());
    std::mt19937 random(9);
    const std::vector<uint32_t> ids = random_ids(random, small_context);
    const Lab lab(model, true, small_context);
    const auto exact = lab.run(ids, parse_scheme("exact")).logits.back();
    for (const auto& [type, window] : {std::pair{KvType::f32, 0u}, {KvType::tq3, 0u}, {KvType::tq2, 16u}}) {
        const std::string type_name = name(type);
        CAPTURE(type_name);
        KvOptions kv{type, type};
        kv.window = window;
        kv.conditioning.kind = KeyConditioning::Kind::norms;
        const auto forward =
            make_cpu_forward(model.config, model.weights, {.kv = kv, .context_size = small_context, .threads = 1});
        const auto expected = forward->run(ids);
        const std::string text = type == KvType::f32 ? "exact" : fmt::format("{},window={}", name(type), window);
        const auto logits = lab.run(ids, parse_scheme(text)).logits.back();
        CHECK((lab.run(ids, parse_scheme(text), {}, 1).logits.back() == logits) == (type == KvType::f32)); // other rotations
        const double from_exact = relative_error(exact, expected);
        CAPTURE(from_exact);
        CHECK(relative_error(logits, expected) < (type == KvType::f32 ? exact_limit : 0.1 * from_exact)); // some codes turn over
    }
}
