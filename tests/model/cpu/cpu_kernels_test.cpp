// The kernels of the CPU path against the reference, at difficult shapes, on every instruction set of this machine.
#include "model/cpu/kernels.h"
#include "model/cpu/matmul.h"
#include "model/reference/kernels.h"
#include "tests/support/cpu_targets.h"
#include "tests/support/golden.h"
#include "tests/support/random_matrix.h"
#include <cstring>

using namespace tq;
using conformance::Random;
using test::Matrix, test::on_each_target, test::put_scales;

namespace {

// Rows that are not in memory.
struct Copies final : RowSource {
    const Tensor from;
    explicit Copies(const Tensor& from) : from(from) {}
    void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const override {
        std::memcpy(to.data(), from.data.data() + first * from.row_bytes(), count * from.row_bytes());
    }
};

bool same_values(std::span<const float> a, std::span<const float> b) {
    for (size_t i = 0; i < b.size(); i++)
        if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
    return true;
}

// Whether each element is within `limit` of the sum of its terms' magnitudes.
bool is_close(std::span<const float> got, std::span<const float> want, std::span<const float> magnitude, float limit) {
    for (size_t i = 0; i < want.size(); i++)
        if (!(std::fabs(got[i] - want[i]) <= limit * magnitude[i])) return false;
    return true;
}

// The sum of |w| |x| for each element of w x, plus |before| if that is added.
std::vector<float> magnitudes(ThreadPool& pool, const Tensor& w, std::vector<float> x, std::vector<float> before) {
    std::vector<float> absolute = to_floats(w);
    for (std::vector<float>* values : {&absolute, &x, &before})
        for (float& v : *values) v = std::fabs(v);
    ref::matmul(pool, before, {w.name, GgmlType::F32, w.rows, w.cols, std::as_bytes(std::span(absolute))}, x, true);
    return before;
}

// Products of `separate` tokens equal the products of each alone. Products of a block do not depend on the number of its
// tokens.
void check_matmul(ThreadPool& pool, const Tensor& w, uint32_t tokens, Random& random, bool separate) {
    CAPTURE(type_name(w.type));
    CAPTURE(w.rows);
    CAPTURE(w.cols);
    CAPTURE(tokens);
    CAPTURE(separate);
    const auto x = random.normals(size_t(tokens) * w.cols), before = random.normals(size_t(tokens) * w.rows);
    std::vector<float> want(before.size()), got(before.size()), want_sum = before, got_sum = before;
    ref::matmul(pool, want, w, x);
    ref::matmul(pool, want_sum, w, x, true);
    cpu::matmul(pool, {{got, w}, {got_sum, w, true}}, x, separate);
    CHECK(is_close(got, want, magnitudes(pool, w, x, std::vector<float>(before.size())), 1e-6f));
    CHECK(is_close(got_sum, want_sum, magnitudes(pool, w, x, before), 1e-6f));

    Tensor elsewhere = w;
    elsewhere.data = {};
    elsewhere.source = std::make_shared<Copies>(w);
    std::vector<float> from_source(got.size());
    cpu::matmul(pool, {{from_source, elsewhere}}, x, separate);
    CHECK(from_source == got);

    const uint32_t step = separate ? 1 : std::max(1u, tokens / 3);
    for (uint32_t t = 0; t + step <= tokens; t += step) {
        std::vector<float> fewer(size_t(step) * w.rows);
        cpu::matmul(pool, {{fewer, w}}, std::span(x).subspan(size_t(t) * w.cols, size_t(step) * w.cols), separate);
        CHECK(std::ranges::equal(fewer, std::span(got).subspan(size_t(t) * w.rows, fewer.size())));
    }
}

void check_matmul(ThreadPool& pool, const Tensor& w, uint32_t tokens, Random& random) {
    if (tokens <= cpu::max_fixed_point_tokens) check_matmul(pool, w, tokens, random, true);
    check_matmul(pool, w, tokens, random, false);
}

} // namespace

TEST_CASE("rows of weights decode to the values of their format") {
    Random random{1};
    for (const GgmlType type : weight_formats)
        for (const uint32_t cols : {32u, 96u, 256u, 256u * 5, 256u * 17}) {
            if (cols % block_format(type)->elements != 0) continue;
            const Matrix m(type, 1, cols, random);
            std::vector<float> want(cols), got(cols);
            decode_row(type, want, m.tensor.row(0));
            std::vector<std::byte> moved(m.bytes.size() + 3); // a file may begin anywhere
            for (size_t by = 0; by < 4; by++) {
                std::ranges::copy(m.bytes, moved.begin() + std::ptrdiff_t(by));
                on_each_target([&] {
                    cpu::decode_weights(type, got, std::span(moved).subspan(by, m.bytes.size()));
                    CHECK_MESSAGE(got == want, type_name(type));
                });
            }
        }
}

TEST_CASE("every fp16 number") {
    std::vector<uint16_t> halves(65536);
    for (size_t i = 0; i < halves.size(); i++) halves[i] = uint16_t(i);
    std::vector<float> want(halves.size()), got(halves.size());
    decode_row(GgmlType::F16, want, std::as_bytes(std::span(halves)));
    on_each_target([&] {
        cpu::decode_weights(GgmlType::F16, got, std::as_bytes(std::span(halves)));
        CHECK(same_values(got, want));
    });
}

TEST_CASE("every exponent of MXFP4") {
    std::vector<std::byte> blocks(256 * 17);
    for (size_t i = 0; i < blocks.size(); i++) blocks[i] = std::byte(i % 17 == 0 ? i / 17 : i % 17 * 17 - 17);
    std::vector<float> want(256 * 32), got(want.size());
    decode_row(GgmlType::MXFP4, want, blocks);
    on_each_target([&] {
        cpu::decode_weights(GgmlType::MXFP4, got, blocks);
        CHECK(same_values(got, want));
    });
}

TEST_CASE("products of matrices") {
    ThreadPool pool(3);
    on_each_target([&] {
        Random random{2};
        for (const GgmlType type : weight_formats)
            for (const uint32_t cols : {32u, 64u, 96u, 256u, 256u * 3, 256u * 3 + 128})
                for (const uint32_t rows : {1u, 3u, 17u, 150u}) {
                    if (cols % block_format(type)->elements != 0) continue;
                    const Matrix m(type, rows, cols, random);
                    for (const uint32_t tokens : {1u, 2u, 7u, 16u, 17u}) check_matmul(pool, m.tensor, tokens, random);
                }
        for (const uint32_t cols : {1u, 20u, 131u}) { // not multiples of 8 or 16 lanes, and but for 20 not of 4
            const Matrix m(GgmlType::F32, 5, cols, random);
            for (const uint32_t tokens : {1u, 3u, 33u}) check_matmul(pool, m.tensor, tokens, random);
        }
        const Matrix m(GgmlType::Q8_0, 17, 96, random);
        for (uint32_t tokens = 1; tokens <= 160; tokens += tokens < 17 ? 1 : 13) check_matmul(pool, m.tensor, tokens, random);
        // In fixed point: a format of each kind, by the bits of its levels, the columns that share a scale, and minimums.
        for (const auto type :
             {GgmlType::Q4_0, GgmlType::Q5_K, GgmlType::Q8_0, GgmlType::Q6_K, GgmlType::Q2_K, GgmlType::IQ2_S}) {
            const Matrix n(type, 17, 256 * 5, random);
            for (uint32_t tokens = 1; tokens <= 16; tokens++) check_matmul(pool, n.tensor, tokens, random);
        }
        check_matmul(pool, Matrix(GgmlType::Q4_0, 131, 8192, random).tensor, 50, random); // panels of few rows
    });
}

TEST_CASE("products with activations of very different sizes, or that are none") {
    ThreadPool pool(1);
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        Random random{uint32_t(type)}; // a format's numbers do not depend on which others there are
        const Matrix m(type, 5, 512, random);
        const auto x = random.normals(512);
        const auto check = [&](const std::vector<float>& changed) {
            std::vector<float> want(5), got(5);
            ref::matmul(pool, want, m.tensor, changed);
            on_each_target([&] {
                cpu::matmul(pool, {{got, m.tensor}}, changed, true);
                if (std::ranges::all_of(want, [](float f) { return std::isfinite(f); }))
                    CHECK(is_close(got, want, magnitudes(pool, m.tensor, changed, std::vector<float>(5)), 1e-6f));
                else
                    CHECK(std::ranges::none_of(got, [](float f) { return std::isfinite(f); }));
            });
        };
        for (const float factor : {0.0f, 1e-35f, 1e-20f, 1e3f, 1e20f}) { // one run of 32, and all but one
            std::vector<float> one = x, others = x;
            for (size_t i = 0; i < x.size(); i++) (i / 32 == 7 ? one : others)[i] *= factor;
            check(one);
            check(others);
        }
        for (const float hard : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> one = x;
            one[300] = hard;
            check(one);
        }
    }
}

TEST_CASE("products of the largest levels with activations of one size") {
    ThreadPool pool(1);
    Random random{12};
    for (const GgmlType type : weight_formats) {
        if (type == GgmlType::F32 || type == GgmlType::F16 || type == GgmlType::BF16) continue;
        for (const int byte : {0x00, 0x7f, 0x80, 0xff}) { // levels, and scales within a block
            CAPTURE(type_name(type));
            CAPTURE(byte);
            Matrix m(type, 3, 512, random);
            for (size_t at = 0; at < m.bytes.size(); at += block_format(type)->bytes) {
                std::fill_n(m.bytes.begin() + std::ptrdiff_t(at), block_format(type)->bytes, std::byte(byte));
                if (type == GgmlType::MXFP4) m.bytes[at] = std::byte(120);
                if (type == GgmlType::NVFP4) std::fill_n(&m.bytes[at], 4, std::byte(0x38));
                put_scales(type, &m.bytes[at], 0.03f, 0.03f);
            }
            for (const float x : {1.0f, -1.0f}) {
                const std::vector<float> same(512, x);
                std::vector<float> want(3), got(3);
                ref::matmul(pool, want, m.tensor, same);
                on_each_target([&] {
                    cpu::matmul(pool, {{got, m.tensor}}, same, true);
                    CHECK(is_close(got, want, magnitudes(pool, m.tensor, same, std::vector<float>(3)),
                                   1e-5f)); // the errors of equal terms add up
                });
            }
        }
    }
}

TEST_CASE("several matrices at once, and with a gate") {
    ThreadPool pool(3);
    Random random{3};
    const Matrix a(GgmlType::Q8_0, 37, 96, random), b(GgmlType::F16, 16, 96, random), c(GgmlType::Q4_0, 37, 96, random);
    for (const uint32_t tokens : {1u, 5u, 21u}) {
        const auto x = random.normals(tokens * 96);
        std::vector<float> want_a(tokens * 37), want_b(tokens * 16), want_c(tokens * 37), want_gate;
        ref::matmul(pool, want_a, a.tensor, x);
        ref::matmul(pool, want_b, b.tensor, x);
        ref::matmul(pool, want_c, c.tensor, x);
        want_gate = want_a;
        ref::swiglu(pool, want_gate, want_c);
        on_each_target([&] {
            std::vector<float> got_a(want_a.size()), got_b(want_b.size()), got_c(want_c.size());
            cpu::matmul(pool, {{got_a, a.tensor}, {got_b, b.tensor}, {got_c, c.tensor}}, x, tokens <= 5);
            CHECK(relative_error(got_a, want_a) < 1e-5);
            CHECK(relative_error(got_b, want_b) < 1e-5);
            CHECK(relative_error(got_c, want_c) < 1e-5);
            cpu::gated_matmul(pool, got_a, got_c, a.tensor, c.tensor, x, tokens <= 5);
            CHECK(relative_error(got_a, want_gate) < 1e-5);
        });
    }
}

TEST_CASE("embedding, norms and activations") {
    ThreadPool pool(3);
    Random random{4};
    on_each_target([&] {
        const Matrix m(GgmlType::Q6_K, 40, 512, random);
        const std::vector<uint32_t> ids{3, 39, 0, 3, 17, 5, 8, 21, 1, 2, 30, 31, 32, 33, 34, 35, 36};
        std::vector<float> want(ids.size() * 512), got(want.size());
        ref::embed(pool, want, m.tensor, ids);
        cpu::embed(pool, got, m.tensor, ids);
        CHECK(got == want);
        for (const uint32_t cols : {1u, 31u, 64u, 1024u}) {
            const auto x = random.normals(9 * cols), w = random.normals(cols);
            want.assign(x.size(), 0);
            got = want;
            ref::rms_norm(pool, want, x, w, 1e-6f);
            cpu::rms_norm(pool, got, x, w, 1e-6f);
            CHECK(relative_error(got, want) < 1e-6);
        }
        want = random.normals(3001, 10);
        const auto up = random.normals(want.size());
        got = want;
        ref::swiglu(pool, want, up);
        cpu::swiglu(got.data(), up.data(), got.size());
        CHECK(relative_error(got, want) < 1e-6);
    });
}

TEST_CASE("activations and norms of numbers that are too large, or none") {
    ThreadPool pool(1);
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    on_each_target([&] {
        std::vector<float> want(64), got;
        const std::vector<float> up(want.size(), 1);
        const float hard[] = {-infinity, -3e38f, -200, -104, -89, -88, 0, 88, 200, 3e38f, infinity, nan};
        for (size_t i = 0; i < want.size(); i++) want[i] = hard[i % std::size(hard)];
        got = want;
        ref::swiglu(pool, want, up);
        cpu::swiglu(got.data(), up.data(), got.size());
        for (size_t i = 0; i < want.size(); i++)
            CHECK_MESSAGE((std::isfinite(want[i]) ? std::fabs(got[i] - want[i]) <= 1e-30 + 1e-6 * std::fabs(want[i])
                                                  : same_values(std::span(got).subspan(i, 1), std::span(want).subspan(i, 1))),
                          hard[i % std::size(hard)], ": ", got[i], " for ", want[i]);
        const std::vector<float> x(64, 1e20f), w(64, 1);
        cpu::rms_norm(pool, got, x, w, 1e-6f);
        CHECK(std::isnan(got[0]));
    });
}
