// Rows of the kernels that convert the inputs of products: inputs_to_fp16 and inputs_to_int8.
// For fp16 each token is scaled by a power of two, so that its largest element has the exponent 14; for int8 each 32 columns have
// a scale of their own, and a number two digits of base 128. Tokens of very different sizes stand in one pass, so that a scale
// which is not the token's own shows.
#include "base/half.h"
#include "tools/check/conformance/products.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::conformance {
namespace {

constexpr uint32_t rows_of_x = 5; // of five tokens, or of one that has them all

// Tokens of very different sizes, with zeros, and with a number that is not finite. Whether fp16 numbers are truncated, and
// denormal ones lost, is left to the device.
Outcome inputs_to_fp16(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t per_token) {
    const uint32_t tokens = rows_of_x, recorded = tokens + 2 * per_token;
    std::vector<float> x = rig.random.normals(size_t(recorded) * cols);
    for (size_t i = 0; i < x.size(); i++) x[i] = std::ldexp(x[i], 40 * (int(i / cols % 5) - 2));
    x[3] = 0;
    x[size_t(cols) * 4 + 7] = -INFINITY;
    std::vector<float> want, got;
    std::vector<uint32_t> want_largest;
    for (uint32_t t = 0; t < tokens; t++) {
        const std::span token = std::span(x).subspan(size_t(t) * cols, cols);
        const float largest = std::ranges::max(token, {}, [](float v) { return std::fabs(v); });
        want_largest.push_back(std::bit_cast<uint32_t>(std::fabs(largest)));
        if (!std::isfinite(largest)) continue;
        for (const float v : token) want.push_back(std::ldexp(v, 14 - std::ilogb(largest)));
    }
    const uint32_t words = recorded * cols / 2;
    const Buffer x_buffer = rig.upload(x), rounded = rig.output(words + recorded), context = rig.context(0, tokens / per_token);
    rig.run(tuning, context, recorded / per_token, 128,
            [&](gpu::Pass& pass) { gpu::inputs_to_fp16(pass, rounded, x_buffer, cols, per_token); });
    const std::vector<uint32_t> all = rig.read(rounded);
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t i = 0; i < cols && want_largest[t] < 0x7f800000; i++) {
            const size_t at = size_t(t) * cols + i;
            got.push_back(half_to_float(uint16_t(all[at / 2] >> 16 * (at % 2))));
        }
    const std::span largest = std::span(all).subspan(words, tokens);
    return worse(compare(got, want, half_limit), worse(compare_words(largest, want_largest), rig.check(rounded, {}, 0)));
}

// The largest number of two digits, 127 * 128 + 127.
constexpr float max = 16383;

// The result of inputs_to_int8 for 32 columns.
struct Digits {
    std::vector<float> values; // without the scale, whole numbers
    float scale, sums[3];

    explicit Digits(std::span<const uint32_t, 20> words) {
        const auto digit = [&](size_t i) { return float(int8_t(words[i / 4] >> 8 * (i % 4))); };
        for (size_t i = 0; i < 32; i++) values.push_back(128 * digit(i) + digit(32 + i));
        scale = std::bit_cast<float>(words[16]);
        for (size_t i = 0; i < 3; i++) sums[i] = std::bit_cast<float>(words[17 + i]);
    }
};

// Empty if the digits are those of x, rounded; else what is wrong.
std::string fault_of(const Digits& digits, std::span<const float, 32> x) {
    const auto largest = [&] { return std::ranges::max(x, {}, [](float v) { return std::fabs(v); }); };
    if (std::ranges::any_of(x, [](float v) { return !std::isfinite(v); }))
        return std::isnan(digits.scale) ? "" : "an infinity or NaN was lost";
    const float scale = std::fabs(largest()) / max;
    if (std::fabs(digits.scale - scale) > 1e-6f * scale) return fmt::format("a scale is {}, not {}", digits.scale, scale);
    double sums[3] = {};
    for (size_t i = 0; i < 32; i++) {
        const double off = double(digits.values[i]) - (scale == 0 ? 0 : double(x[i]) / scale);
        if (std::fabs(off) > 0.51) return fmt::format("column {} is {} scales off", i, off);
        sums[i / 16] += digits.values[i];
    }
    sums[2] = sums[0] + sums[1];
    for (size_t i = 0; i < 3; i++)
        if (std::fabs(digits.sums[i] - sums[i] * digits.scale) > 1e-6 * 32 * max * scale)
            return fmt::format("sum {} is {}, not {}", i, digits.sums[i], sums[i] * digits.scale);
    return "";
}

// The same tokens, with 32 columns that are all 0, and 32 that are 0 but for one. The rounding of a number that lies halfway is
// left to the device.
Outcome inputs_to_int8(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t per_token) {
    const uint32_t tokens = rows_of_x, recorded = tokens + 2 * per_token, blocks = cols / 32;
    std::vector<float> x = rig.random.normals(size_t(recorded) * cols);
    for (size_t i = 0; i < x.size(); i++) x[i] = std::ldexp(x[i], 40 * (int(i / cols % 5) - 2));
    std::fill_n(x.begin(), 32, 0.0f);
    std::fill_n(x.begin() + cols, 31, 0.0f);
    x[size_t(cols) * 3 + 5] = std::numeric_limits<float>::quiet_NaN();
    x[size_t(cols) * 4 + 7] = -INFINITY;
    const Buffer x_buffer = rig.upload(x), y = rig.output(size_t(recorded) * blocks * 20),
                 context = rig.context(0, tokens / per_token);
    rig.run(tuning, context, recorded / per_token, 128,
            [&](gpu::Pass& pass) { gpu::inputs_to_int8(pass, y, x_buffer, cols, per_token); });
    const std::vector<uint32_t> words = rig.read(y);
    for (size_t b = 0; b < size_t(tokens) * blocks; b++) {
        const std::string fault =
            fault_of(Digits(std::span(words).subspan(b * 20).first<20>()), std::span(x).subspan(b * 32).first<32>());
        if (!fault.empty())
            return {false, INFINITY, 0, fmt::format("token {}, columns {}: {}", b / blocks, b % blocks * 32, fault)};
    }
    const bool beyond = std::ranges::any_of(std::span(words).subspan(size_t(tokens) * blocks * 20, 2 * blocks * 20),
                                            [](uint32_t word) { return word != poison; });
    return worse(rig.check(y, {}, 0), {!beyond, 0, 0, beyond ? "tokens that there are not were written" : ""});
}

} // namespace

void add_inputs(Rows& rows, const Capabilities& device) {
    using Body = Outcome (*)(Rig&, const gpu::Tuning&, uint32_t cols, uint32_t per_token);
    for (const auto& [kernel, body] :
         {std::pair<const char*, Body>("inputs_to_fp16", inputs_to_fp16), {"inputs_to_int8", inputs_to_int8}})
        for (const NamedTuning& variant : variants(device))
            for (const auto& [cols, per_token] : {std::pair{32u, 1u}, {1056u, 1u}, {96u, rows_of_x}})
                rows.push_back({kernel, variant.name,
                                fmt::format("{} columns, {}", cols, per_token == 1 ? "5 tokens" : "5 rows of a token"),
                                [=, body = body, cols = cols, per_token = per_token, tuning = variant.tuning](Rig& rig) {
                                    return body(rig, tuning, cols, per_token);
                                }});
}

} // namespace tq::conformance
