// Rows of the arithmetic that the codec's bytes depend on: fp32 rounded to nearest even and never contracted, integers,
// conversions, shared memory, barriers and atomics; and the accuracy of the functions that Vulkan allows to be inexact.
// Inputs are chosen so that a wrong device cannot pass by luck. Mantissas with few bits make ties and exact cancellation
// frequent. c near -a b reveals a fused multiply-add, whose result is then the rounding error of the product and not 0. Denormals
// and the signs of zeros are left out of the exact rows, since the codec meets none; what a device does with them is reported.
#include "base/half.h"
#include "conformance_shaders.gen.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tq::conformance {
namespace {

constexpr uint32_t probe_elements = 20011; // elements of a probe

uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
bool is_denormal(float f) { return std::fpclassify(f) == FP_SUBNORMAL; }

// The operations of floats.comp (tools/check/conformance/shaders).
enum FloatOp : uint32_t {
    add,
    subtract,
    multiply,
    multiply_add,
    multiply_subtract,
    compare_order,
    absolute,
    divide,
    inverse_root,
    exponential,
    maximum
};

struct Floats {
    std::vector<float> a, b, c;
};

// Returns +-m 2^e with m of a random number of random bits: few bits make ties and exact cancellation likely.
float random_float(Random& random, int min_e, int max_e) {
    const uint32_t mantissa = uint32_t(random.bits()) & 0x7fffff & ~((1u << random.below(23)) - 1);
    const auto e = uint32_t(min_e + int(random.below(uint32_t(max_e - min_e + 1))) + 127);
    return float_of((uint32_t(random.bits()) & 0x80000000) | e << 23 | mantissa);
}

// c is near -+a b in half of the cases: there a fused multiply-add reveals the rounding error of the product.
Floats random_floats(Random& random) {
    Floats in;
    for (uint32_t i = 0; i < probe_elements; i++) {
        const float a = random_float(random, -40, 40), b = random_float(random, -40, 40), product = a * b;
        in.a.push_back(a);
        in.b.push_back(i % 3 == 0 ? a * (1 + float(int(random.below(9)) - 4) * 0x1p-22f) : b);
        const float c[] = {-product, product, random_float(random, -40, 40), product * 0x1p-24f};
        in.c.push_back(c[i % 4]);
    }
    return in;
}

// A single kernel has all operations, and a specialisation constant chooses one: the compiler sees the operation alone, as it
// does in the codec.
std::vector<uint32_t> run_floats(Rig& rig, FloatOp op, const Floats& in) {
    const auto n = uint32_t(in.a.size());
    const Buffer a = rig.upload(in.a), b = rig.upload(in.b), c = rig.upload(in.c), y = rig.output(n);
    Recorder recorder(rig.device);
    recorder.dispatch<probe::floats>({(n + 63) / 64}, {op}, {n}, {}, y, a, b, c);
    recorder.finish().run();
    std::vector<uint32_t> words = rig.read(y);
    words.resize(n);
    return words;
}

float reference(FloatOp op, float a, float b, float c) {
    const float product = a * b; // this project compiles without contraction
    switch (op) {
    case add: return a + b;
    case subtract: return a - b;
    case multiply: return product;
    case multiply_add: return product + c;
    case multiply_subtract: return c - product;
    case compare_order: return (a < b ? 1.0f : 0.0f) + (a >= b ? 2.0f : 0.0f) + (a == b ? 4.0f : 0.0f);
    case absolute: return std::fabs(a);
    case maximum: return std::max(a, b);
    default: return 0;
    }
}

// Requires the same bits; how a device treats denormals is tested by the row "denormals".
Outcome exact_floats(Rig& rig, FloatOp op) {
    const Floats in = random_floats(rig.random);
    std::vector<uint32_t> got = run_floats(rig, op, in), want(probe_elements);
    for (uint32_t i = 0; i < probe_elements; i++) {
        const float right = reference(op, in.a[i], in.b[i], in.c[i]);
        want[i] = is_denormal(right) || is_denormal(in.c[i]) ? got[i] : bits_of(right);
        if (right == 0 && (got[i] & 0x7fffffff) == 0) want[i] = got[i]; // zero of either sign
    }
    return compare_words(got, want);
}

// The error in units in the last place of `right`.
double ulps(float got, double right) {
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(right), -126) - 23);
    return std::isfinite(got) ? std::fabs(double(got) - right) / ulp : std::numeric_limits<double>::infinity();
}

// Vulkan allows 2.5 units for a division, 2 for an inverse square root, 3 + 2 |x| for exp. The error is the worst share.
Outcome rounded_function(Rig& rig, FloatOp op) {
    Floats in = random_floats(rig.random);
    for (float& x : in.a)
        if (op == exponential) x = -float(rig.random.below(1 << 20)) * 0x1p-14f; // 0 to -64, as in the softmax
    const std::vector<uint32_t> got = run_floats(rig, op, in);
    Outcome outcome{true, 0, 1, {}};
    double worst_ulps = 0;
    for (uint32_t i = 0; i < probe_elements; i++) {
        const double a = in.a[i], right = op == divide        ? a / in.b[i]
                                          : op == exponential ? std::exp(a)
                                                              : 1 / std::sqrt(std::fabs(a));
        const double allowed = op == divide ? 2.5 : op == exponential ? 3 + 2 * std::fabs(a) : 2;
        const double error = ulps(float_of(got[i]), right);
        worst_ulps = std::max(worst_ulps, error);
        if (error / allowed <= outcome.error) continue;
        outcome.error = error / allowed;
        outcome.reason =
            fmt::format("for {:.9g}, {:.9g} it gives {:.9g} and should give {:.9g}", a, in.b[i], float_of(got[i]), right);
    }
    outcome.passed = outcome.error <= outcome.limit;
    if (outcome.passed) outcome.reason = fmt::format("at most {:.2f} units in the last place off", worst_ulps);
    return outcome;
}

// Denormal operands and results may be flushed to zero. The codec does not meet any; which of the two happens is reported.
Outcome denormals(Rig& rig) {
    Floats in;
    for (uint32_t i = 0; i < probe_elements; i++) {
        const bool operand = i % 2 == 0;
        in.a.push_back(operand ? float_of((i * 7919 % 0x7fffff) + 1) : random_float(rig.random, -70, -66));
        in.b.push_back(operand ? 1.0f : random_float(rig.random, -70, -66));
        in.c.push_back(0);
    }
    const std::vector<uint32_t> got = run_floats(rig, multiply, in);
    uint32_t kept[2] = {}, flushed[2] = {};
    for (uint32_t i = 0; i < probe_elements; i++) {
        const uint32_t right = bits_of(in.a[i] * in.b[i]);
        if (got[i] == right)
            kept[i % 2] += (right & 0x7fffffff) != 0 ? 1 : 0;
        else if ((got[i] & 0x7fffffff) == 0)
            flushed[i % 2]++;
        else
            return {false, 1, 0,
                    fmt::format("{:08x} times {:08x} is {:08x}, neither {:08x} nor zero", bits_of(in.a[i]), bits_of(in.b[i]),
                                got[i], right)};
    }
    const auto word = [&](int kind) {
        return flushed[kind] == 0 ? "kept" : kept[kind] == 0 ? "flushed to zero" : "sometimes flushed";
    };
    return {true, 0, 0, fmt::format("operands {}, results {}", word(0), word(1))};
}

// The operations of integers.comp (tools/check/conformance/shaders).
enum IntegerOp : uint32_t {
    integer_add,
    integer_subtract,
    integer_multiply,
    shift_left,
    shift_right,
    shift_right_signed,
    product_high,
    product_low,
    bitwise,
    order,
    division,
    to_float,
    half_low,
    half_high
};

uint32_t reference(IntegerOp op, uint32_t u, uint32_t v) {
    switch (op) {
    case integer_add: return u + v;
    case integer_subtract: return u - v;
    case integer_multiply:
    case product_low: return u * v;
    case shift_left: return u << (v & 31);
    case shift_right: return u >> (v & 31);
    case shift_right_signed: return uint32_t(int32_t(u) >> (v & 31));
    case product_high: return uint32_t(uint64_t(u) * v >> 32);
    case bitwise: return (u & ~v) | ((u ^ v) & 0xff00ff);
    case order: return (u < v ? 1u : 0u) + (int32_t(u) < int32_t(v) ? 2u : 0u);
    case division: return v == 0 ? 0 : u / v + u % v;
    case to_float: return bits_of(float(int32_t(u) >> 8));
    case half_low: return bits_of(half_to_float(uint16_t(u)));
    case half_high: return bits_of(half_to_float(uint16_t(u >> 16)));
    }
    return 0;
}

std::vector<uint32_t> run_integers(Rig& rig, IntegerOp op, const std::vector<uint32_t>& u, const std::vector<uint32_t>& v) {
    const auto n = uint32_t(u.size());
    const Buffer a = rig.upload(std::as_bytes(std::span(u))), b = rig.upload(std::as_bytes(std::span(v))), y = rig.output(n);
    Recorder recorder(rig.device);
    recorder.dispatch<probe::integers>({(n + 63) / 64}, {op}, {n}, {}, y, a, b);
    recorder.finish().run();
    std::vector<uint32_t> words = rig.read(y);
    words.resize(n);
    return words;
}

// Operands have any number of bits. In a fifth of the pairs they differ by one at most, which comparisons need.
Outcome integers(Rig& rig, IntegerOp op) {
    std::vector<uint32_t> u(probe_elements), v(probe_elements), want(probe_elements);
    for (uint32_t i = 0; i < probe_elements; i++) {
        u[i] = uint32_t(rig.random.bits()) >> rig.random.below(32);
        v[i] = uint32_t(rig.random.bits()) >> rig.random.below(32);
        if (i % 5 == 0) v[i] = u[i] + rig.random.below(3) - 1;
        want[i] = reference(op, u[i], v[i]);
    }
    return compare_words(run_integers(rig, op, u, v), want);
}

// All 65536 numbers. Subnormal ones may be flushed to zero; which of the two happens is reported.
Outcome fp16_values(Rig& rig, IntegerOp op) {
    std::vector<uint32_t> u(65536), want(65536);
    uint32_t flushed = 0;
    for (uint32_t i = 0; i < u.size(); i++) u[i] = op == half_low ? i | (i * 40503) << 16 : i << 16 | (i * 40503 & 0xffff);
    const std::vector<uint32_t> got = run_integers(rig, op, u, u);
    for (uint32_t i = 0; i < u.size(); i++) {
        want[i] = reference(op, u[i], 0);
        const bool nan = (i & 0x7fff) > 0x7c00, subnormal = (i & 0x7c00) == 0 && (i & 0x3ff) != 0;
        if (nan && std::isnan(float_of(got[i]))) want[i] = got[i];
        if (!subnormal || (got[i] & 0x7fffffff) != 0) continue;
        want[i] = got[i];
        flushed++;
    }
    Outcome outcome = compare_words(got, want);
    if (outcome.passed) outcome.reason = flushed == 0 ? "subnormals kept" : "subnormals flushed to zero";
    return outcome;
}

// 37 workgroups each add and take the maximum of `terms` numbers through shared memory, then add to one sum by atomicAdd, and set
// or clear one bit of the last word by atomics. The numbers have 24 bits, so that sums of 256 do not overflow; across workgroups
// they may wrap, in any order with the same result.
Outcome workgroup(Rig& rig, uint32_t invocations, uint32_t terms) {
    constexpr uint32_t groups = 37;
    std::vector<uint32_t> x(size_t(groups) * terms), want(2 * groups + 2);
    for (uint32_t& v : x) v = uint32_t(rig.random.bits()) >> 8;
    std::vector<uint32_t> before(want.size(), 0);
    before.back() = want.back() = 0xa5a5a5a5;
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t i = 0; i < terms; i++) {
            want[g] += x[g * terms + i];
            want[groups + g] = std::max(want[groups + g], x[g * terms + i]);
        }
        want[2 * groups] += want[g];
        if (g < 32) want.back() = (want.back() & ~(1u << g)) | (want[groups + g] & 1) << g;
    }
    const Buffer y = rig.upload(std::as_bytes(std::span(before))), x_buffer = rig.upload(std::as_bytes(std::span(x)));
    Recorder recorder(rig.device);
    recorder.dispatch<probe::workgroup>({groups}, {.workgroup = invocations, .max_terms = terms}, {terms}, {}, y, x_buffer);
    recorder.finish().run();
    return compare_words(rig.read(y), want);
}

} // namespace

void add_arithmetic(Rows& rows, const Capabilities& device) {
    const std::string elements = fmt::format("{} numbers", probe_elements);
    for (const auto& [name, op] : {std::pair("a + b", add),
                                   {"a - b", subtract},
                                   {"a * b", multiply},
                                   {"a * b + c", multiply_add},
                                   {"c - a * b", multiply_subtract},
                                   {"<, >=, ==", compare_order},
                                   {"abs", absolute},
                                   {"max", maximum}})
        rows.push_back({"fp32", name, elements, [op = op](Rig& rig) { return exact_floats(rig, op); }});
    for (const auto& [name, op] : {std::pair("a / b", divide), {"inversesqrt", inverse_root}, {"exp", exponential}})
        rows.push_back({"fp32", name, elements, [op = op](Rig& rig) { return rounded_function(rig, op); }});
    rows.push_back({"fp32", "denormals", elements, denormals});
    for (const auto& [name, op] : {std::pair("+", integer_add),
                                   {"-", integer_subtract},
                                   {"*", integer_multiply},
                                   {"<<", shift_left},
                                   {">>", shift_right},
                                   {">> of int", shift_right_signed},
                                   {"umulExtended, high", product_high},
                                   {"umulExtended, low", product_low},
                                   {"and, not, xor", bitwise},
                                   {"<", order},
                                   {"/ and %", division},
                                   {"to float", to_float}})
        rows.push_back({"integers", name, elements, [op = op](Rig& rig) { return integers(rig, op); }});
    for (const auto& [name, op] : {std::pair("low half", half_low), {"high half", half_high}})
        rows.push_back({"half to fp32", name, "all 65536 numbers", [op = op](Rig& rig) { return fp16_values(rig, op); }});
    for (const uint32_t invocations : {1u, 4u, 32u, 64u, 128u, 256u})
        if (invocations <= std::min(device.max_workgroup_invocations, device.max_workgroup_size[0]))
            for (const uint32_t terms : {64u, 256u})
                rows.push_back({"workgroup", fmt::format("{} invocations", invocations),
                                fmt::format("shared memory, barriers, atomics; {} terms", terms),
                                [=](Rig& rig) { return workgroup(rig, invocations, terms); }});
}

} // namespace tq::conformance
