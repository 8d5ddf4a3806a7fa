// Measures the processor's limits, with the vectors that the CPU path uses: how fast all threads together read memory, and how
// many fused multiply-adds they do.
// Reading: 256 MiB, which no cache holds, summed by four independent accumulators; each thread has first written the memory that
// it reads, so that pages are near it. Arithmetic: twelve independent chains in registers, more than latency times units of
// today's cores, so that none waits for the one before. The results are known exactly and compared; otherwise a compiler could
// leave the work out. The file is compiled once for each instruction set (Highway), and chosen when it runs.
#include "base/error.h"
#include "base/stopwatch.h"
#include "tools/tq-run/bench/limits.h"
#include <algorithm>
#include <memory>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/tq-run/bench/cpu_limits.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tq::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The sum of x[count], modulo 2^32; count is a multiple of 64.
uint32_t sum_words(const uint32_t* x, size_t count) {
    const hn::CappedTag<uint32_t, 16> u;
    auto a = hn::Zero(u), b = a, c = a, d = a;
    const size_t lanes = hn::Lanes(u);
    for (size_t i = 0; i < count; i += 4 * lanes) {
        a = hn::Add(a, hn::LoadU(u, x + i));
        b = hn::Add(b, hn::LoadU(u, x + i + lanes));
        c = hn::Add(c, hn::LoadU(u, x + i + 2 * lanes));
        d = hn::Add(d, hn::LoadU(u, x + i + 3 * lanes));
    }
    return hn::GetLane(hn::SumOfLanes(u, hn::Add(hn::Add(a, b), hn::Add(c, d))));
}

// Twelve vectors a = a * factor + term, `steps` times: the sum of all their elements, and how many there are.
double fma_chains(float factor, float term, uint32_t steps, uint32_t* elements) {
    const hn::CappedTag<float, 16> f;
    const auto times = hn::Set(f, factor), plus = hn::Set(f, term);
    auto a0 = hn::Zero(f), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
    for (uint32_t i = 0; i < steps; i++) {
        a0 = hn::MulAdd(a0, times, plus);
        a1 = hn::MulAdd(a1, times, plus);
        a2 = hn::MulAdd(a2, times, plus);
        a3 = hn::MulAdd(a3, times, plus);
        a4 = hn::MulAdd(a4, times, plus);
        a5 = hn::MulAdd(a5, times, plus);
        a6 = hn::MulAdd(a6, times, plus);
        a7 = hn::MulAdd(a7, times, plus);
        a8 = hn::MulAdd(a8, times, plus);
        a9 = hn::MulAdd(a9, times, plus);
        a10 = hn::MulAdd(a10, times, plus);
        a11 = hn::MulAdd(a11, times, plus);
    }
    double sum = 0;
    for (const auto v : {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11}) sum += double(hn::GetLane(hn::SumOfLanes(f, v)));
    *elements = uint32_t(12 * hn::Lanes(f));
    return sum;
}

} // namespace tq::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq::bench {
namespace {

HWY_EXPORT(sum_words);
HWY_EXPORT(fma_chains);

constexpr size_t read_words = size_t(64) << 20; // 256 MiB: well beyond any cache
constexpr uint32_t part_words = 1 << 18, fma_steps = 1 << 20;
constexpr int timings = 4; // the best one counts

template <class Work> double best_seconds(Work work) {
    double best = 1e9;
    for (int i = 0; i < timings; i++) {
        const Stopwatch stopwatch;
        work();
        best = std::min(best, stopwatch.seconds());
    }
    return best;
}

double read_gb_per_s(ThreadPool& pool) {
    constexpr auto parts = uint32_t(read_words / part_words);
    const std::unique_ptr<uint32_t[]> words(new uint32_t[read_words]);
    std::vector<uint32_t> sums(parts);
    pool.each(parts, 1, [&](uint32_t begin, uint32_t end) { // each thread first touches the memory that it will read
        for (size_t i = size_t(begin) * part_words; i < size_t(end) * part_words; i++) words[i] = uint32_t(i);
    });
    const double seconds = best_seconds([&] {
        pool.each(parts, 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t part = begin; part < end; part++)
                sums[part] = HWY_DYNAMIC_DISPATCH(sum_words)(&words[size_t(part) * part_words], part_words);
        });
    });
    uint32_t got = 0;
    for (const uint32_t sum : sums) got += sum;
    if (got != uint32_t(read_words / 2 * (read_words - 1)))
        fail("the processor sums {} words wrongly: no measurement of it would mean anything", read_words);
    return double(read_words) * 4e-9 / seconds;
}

double fp32_gflops(ThreadPool& pool) {
    std::vector<double> sums(pool.threads());
    std::vector<uint32_t> elements(pool.threads());
    const double seconds = best_seconds([&] {
        pool.each(pool.threads(), 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; i++) sums[i] = HWY_DYNAMIC_DISPATCH(fma_chains)(1, 1, fma_steps, &elements[i]);
        });
    });
    uint64_t all = 0;
    for (size_t i = 0; i < sums.size(); i++) {
        if (sums[i] != double(elements[i]) * fma_steps)
            fail("the processor counts to {} as {}: no measurement of it would mean anything", elements[i] * double(fma_steps),
                 sums[i]);
        all += elements[i];
    }
    return double(all) * fma_steps * 2e-9 / seconds;
}

} // namespace

Limits measure_cpu_limits(ThreadPool& pool) {
    Limits limits;
    limits.read_gb_per_s = read_gb_per_s(pool);
    limits.fp32_gflops = fp32_gflops(pool);
    return limits;
}

} // namespace tq::bench
#endif
