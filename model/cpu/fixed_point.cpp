// Integer products of quantised weights on x86: activations are converted to fixed point once, in groups of 256 columns with a
// factor each, and rows of weights are multiplied with their digits by VNNI or by AVX2's multiply-add. Sums of digits are exact,
// and scales are fp32. VNNI and AVX2 have digits of different bases, so their bits differ; Stage::computation() names the set.
// This file chooses the set and converts; fixed_point_vnni.cpp and its siblings have the kernels, each compiled for its own
// instructions. A function of those files may be called only if the set is there.
// Rows with fewer than 256 columns in the last group are filled with zeros.
#include "model/cpu/fixed_point.h"
#include "base/ensure.h"
#include "model/cpu/instruction_sets.h"
#include <algorithm>
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
#include "model/cpu/fixed_point_runs.h"
#endif

namespace tq::cpu {

#if HWY_ARCH_X86_64

namespace {

struct SetKernels {
    Dots* (*dots_for)(GgmlType type);
    void (*convert_group)(int8_t* digits, float* factors, const float* x);
};

bool is_there(FixedPointSet set) {
    switch (set) {
    case FixedPointSet::vnni: return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
    case FixedPointSet::avx_vnni: return has_avx_vnni();
    case FixedPointSet::avx2: return (hwy::SupportedTargets() & HWY_AVX2) != 0;
    default: return true;
    }
}

// Detected once: in a virtual machine cpuid may take longer than a product.
FixedPointSet& used_set() {
    static FixedPointSet set = [] {
        for (const auto best : {FixedPointSet::vnni, FixedPointSet::avx_vnni, FixedPointSet::avx2})
            if (is_there(best)) return best;
        return FixedPointSet::none;
    }();
    return set;
}

SetKernels kernels() {
    switch (used_set()) {
    case FixedPointSet::vnni: return {vnni::dots_for, convert_group_256};
    case FixedPointSet::avx_vnni: return {avx_vnni::dots_for, convert_group_256};
    default: return {avx2::dots_for, convert_group_128};
    }
}

size_t groups_of(size_t cols) { return (cols + group - 1) / group; }

// Converts the columns of group i of a row, which may be fewer than 256.
void convert(const SetKernels& with, int8_t* digits, float* factors, std::span<const float> row, size_t i) {
    const std::span<const float> columns = row.subspan(i * group, std::min(group, row.size() - i * group));
    if (columns.size() == group) return with.convert_group(digits, factors, columns.data());
    alignas(64) float filled[group] = {};
    std::ranges::copy(columns, filled);
    with.convert_group(digits, factors, filled);
}

} // namespace

bool has_fixed_point(GgmlType type, size_t cols) {
    if (used_set() == FixedPointSet::none || cols < group || cols % 32 != 0) return false;
    const bool is_slower = used_set() == FixedPointSet::avx2 && type == GgmlType::Q8_0 && cols % group != 0; // than fp32
    return !is_slower && kernels().dots_for(type) != nullptr;
}

// Whether blocks use integers: fp32 is faster in vectors of 256 bits, and if much of the last group is not there. An eighth of
// all groups is little: it costs 5 % of a prompt, and equal bits of a row in a block and alone are worth more (has_alike_rows).
bool has_fixed_point_blocks(GgmlType type, size_t cols) {
    return used_set() == FixedPointSet::vnni && has_fixed_point(type, cols) && 8 * cols >= 7 * group * groups_of(cols);
}

bool use_fixed_point(FixedPointSet set) {
    if (is_there(set)) used_set() = set;
    return is_there(set);
}

size_t fixed_point_floats(size_t tokens, size_t cols) {
    return tokens * groups_of(cols) * (factors_of_group + digits_of_group / sizeof(float));
}

FixedPoint to_fixed_point(ThreadPool* pool, std::span<float> storage, std::span<const float> x, size_t cols) {
    const size_t tokens = x.size() / cols, groups = groups_of(cols);
    ENSURE(storage.size() >= fixed_point_floats(tokens, cols), "{} floats for {}", storage.size(), x.size());
    float* const factors = storage.data();
    auto* const digits = reinterpret_cast<int8_t*>(factors + tokens * groups * factors_of_group);
    const auto convert_tokens = [&](uint32_t begin, uint32_t end) {
        for (size_t i = 0; i < groups; i++)
            for (size_t t = begin; t < end; t++) {
                const size_t at = i * tokens + t;
                convert(kernels(), digits + at * digits_of_group, factors + at * factors_of_group, x.subspan(t * cols, cols), i);
            }
    };
    if (pool)
        pool->each(uint32_t(tokens), 4, convert_tokens);
    else
        convert_tokens(0, uint32_t(tokens));
    return {digits, factors, tokens, cols};
}

void dots(GgmlType type, float* sums, const uint8_t* const* rows, const uint8_t* end, const FixedPoint& x, size_t first,
          size_t count) {
    kernels().dots_for(type)(sums, rows, end, x, first, count);
}

#else

bool has_fixed_point(GgmlType, size_t) { return false; }
bool has_fixed_point_blocks(GgmlType, size_t) { return false; }
bool use_fixed_point(FixedPointSet set) { return set == FixedPointSet::none; }
size_t fixed_point_floats(size_t, size_t) { return 0; }
FixedPoint to_fixed_point(ThreadPool*, std::span<float>, std::span<const float>, size_t) { ENSURE(false, "no integer products"); }
void dots(GgmlType type, float*, const uint8_t* const*, const uint8_t*, const FixedPoint&, size_t, size_t) {
    ENSURE(false, "no integer products of {}", type_name(type));
}

#endif

} // namespace tq::cpu
