#include "tools/tq-run/bench/sequences.h"
#include "base/interrupt.h"
#include "base/statistics.h"
#include "base/stopwatch.h"
#include "tools/tq-run/bench/random_ids.h"
#include <algorithm>
#include <numeric>

namespace tq::bench {
namespace {

constexpr uint32_t filled_tokens = 32; // of each slot, that are run to fill it; even, as repeat() requires
constexpr uint32_t checked_prompt = 16, checked_generated = 4;

std::vector<uint32_t> all_slots(uint32_t count) {
    std::vector<uint32_t> slots(count);
    std::iota(slots.begin(), slots.end(), 0u);
    return slots;
}

// The spans of these ids of each slot: `count` of them, from `first` on.
std::vector<Span> spans_of(std::span<const uint32_t> slots, const std::vector<std::vector<uint32_t>>& ids, size_t first,
                           size_t count) {
    std::vector<Span> spans;
    for (const uint32_t slot : slots) spans.push_back({slot, std::span(ids[slot]).subspan(first, count)});
    return spans;
}

[[noreturn]] void fail_company(const BatchedTest& test, uint32_t slot, size_t token) {
    fail("the device computes other logits for a sequence in company than alone, so nothing is timed: of {} sequences, number {} "
         "differs after {}. tq-run conformance finds the kernel; --no-check times it anyway",
         test.sequences, slot + 1, token == 0 ? "its prompt" : fmt::format("its generated token {}", token));
}

} // namespace

bool Sequences::run(std::span<const Span> spans, const Each& each) {
    const auto pass_on = [&](size_t span, uint32_t, std::span<const float> logits) {
        if (each) each(spans[span].slot, logits);
    };
    return forward_.run(spans, pass_on, keep_going) && !interrupted();
}

Sequences::Ids Sequences::ids_for(const BatchedTest& test, uint32_t count) const {
    Ids ids;
    for (uint32_t i = 0; i < test.sequences; i++) ids.push_back(random_ids(count, vocab_size_, i));
    return ids;
}

// Gives these slots as many tokens, of which a few are run and repeated. False after Ctrl-C.
bool Sequences::fill(std::span<const uint32_t> slots, uint32_t depth) {
    Cache& cache = forward_.cache();
    for (const uint32_t slot : slots) cache.truncate(slot, 0);
    if (depth == 0) return !interrupted();
    const uint32_t first = std::min(depth, filled_tokens);
    Ids ids(cache.shape().slots);
    for (const uint32_t slot : slots) ids[slot] = random_ids(first, vocab_size_, slot);
    if (!run(spans_of(slots, ids, 0, first))) return false;
    for (const uint32_t slot : slots)
        if (depth > first) cache.repeat(slot, depth);
    return true;
}

std::vector<Sequences::Logits> Sequences::sample(const BatchedTest& part, std::span<const uint32_t> slots,
                                                 std::span<const uint32_t> kept) {
    if (!fill(slots, part.depth)) return {};
    Ids next(part.sequences);
    std::vector<Logits> out(kept.size());
    const auto keep = [&](uint32_t slot, std::span<const float> logits) {
        next[slot] = {argmax(logits)};
        if (const auto at = std::ranges::find(kept, slot); at != kept.end())
            out[size_t(at - kept.begin())].emplace_back(logits.begin(), logits.end());
    };
    if (!run(spans_of(slots, ids_for(part, part.prompt), 0, part.prompt), keep)) return {};
    for (uint32_t i = 0; i < part.generated; i++) {
        const Ids now = next;
        if (!run(spans_of(slots, now, 0, 1), keep)) return {};
    }
    return out;
}

std::optional<Company> Sequences::check(const BatchedTest& test, bool compare) {
    BatchedTest part = test;
    part.prompt = std::min(test.prompt, checked_prompt);
    part.generated = std::min(test.generated, checked_generated);
    std::vector<uint32_t> kept{0, test.sequences / 2, test.sequences - 1};
    kept.erase(std::ranges::unique(kept).begin(), kept.end());
    for (uint32_t slot = 0; slot < forward_.cache().shape().slots; slot++) forward_.cache().truncate(slot, 0);
    const std::vector<Logits> together = sample(part, all_slots(test.sequences), kept);
    if (together.empty()) return std::nullopt;
    if (!compare || test.sequences == 1) return Company{};
    for (size_t i = 0; i < kept.size(); i++) {
        const std::vector<Logits> alone = sample(part, {&kept[i], 1}, {&kept[i], 1});
        if (alone.empty()) return std::nullopt;
        const auto differ = std::ranges::mismatch(alone[0], together[i]);
        if (differ.in1 != alone[0].end()) fail_company(test, kept[i], size_t(differ.in1 - alone[0].begin()));
    }
    return Company{part.prompt, part.generated, uint32_t(kept.size())};
}

std::optional<BatchedTime> Sequences::time(const BatchedTest& test) {
    const std::vector<uint32_t> slots = all_slots(test.sequences);
    const Ids ids = ids_for(test, test.prompt + test.generated);
    for (const uint32_t slot : slots) forward_.cache().truncate(slot, test.depth);
    const Stopwatch stopwatch;
    if (!run(spans_of(slots, ids, 0, test.prompt))) return std::nullopt;
    const uint64_t prompt_ns = stopwatch.nanoseconds();
    for (uint32_t i = 0; i < test.generated; i++)
        if (!run(spans_of(slots, ids, test.prompt + i, 1))) return std::nullopt;
    return BatchedTime{prompt_ns, stopwatch.nanoseconds() - prompt_ns};
}

} // namespace tq::bench
