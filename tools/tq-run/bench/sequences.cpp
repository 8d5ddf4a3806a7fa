// Runs a test on a Forward: fill the cache to the depth, time prompts and generation, compare sequences in company with the same
// alone. The depth is filled by a few tokens whose entries are repeated (Cache::repeat), because attention's time depends on the
// number of entries, not on their values.
// Generation of one sequence takes the way of a conversation: the device samples greedily, several tokens ahead, at the pace that
// Session uses. With several sequences each pass has one token of each, as a server's has.
// Company: prompts of 16 tokens and 4 generated ones of the first, the middle and the last sequence must have the logits, bit for
// bit, that they have alone. That is the promise of separate rows (docs/architecture.md), and it is checked before anything is
// timed.
#include "tools/tq-run/bench/sequences.h"
#include "base/interrupt.h"
#include "base/statistics.h"
#include "base/stopwatch.h"
#include "model/engine/sampling/sampler.h"
#include "model/pace.h"
#include "tools/tq-run/bench/random_ids.h"
#include <algorithm>
#include <numeric>

namespace tq::bench {
namespace {

// Tokens of each slot that are run to fill it: of one sequence, and of several; even, as repeat() requires.
constexpr uint32_t filled_tokens = 256, filled_tokens_together = 32;
constexpr uint32_t checked_prompt = 16, checked_generated = 4;
constexpr uint32_t profiled_tokens = 8; // of the generated tokens: all have the same kernels

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

[[noreturn]] void fail_company(const Test& test, uint32_t slot, size_t token) {
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

Sequences::Ids Sequences::ids_for(const Test& test, uint32_t count) const {
    Ids ids;
    for (uint32_t i = 0; i < test.slots(); i++) ids.push_back(random_ids(count, vocab_size_, i));
    return ids;
}

// Gives these slots the test's depth in tokens, of which a few are run and repeated. False after Ctrl-C.
bool Sequences::fill(std::span<const uint32_t> slots, const Test& test) {
    Cache& cache = forward_.cache();
    filled_.resize(cache.shape().slots);
    for (const uint32_t slot : slots) {
        cache.truncate(slot, 0);
        filled_[slot] = {};
    }
    if (test.depth == 0) return !interrupted();
    const uint32_t first = std::min(test.depth, test.sequences == 0 ? filled_tokens : filled_tokens_together);
    Ids ids(cache.shape().slots);
    for (const uint32_t slot : slots) ids[slot] = random_ids(first, vocab_size_, slot);
    if (!run(spans_of(slots, ids, 0, first))) return false;
    for (const uint32_t slot : slots)
        if (test.depth > first) cache.repeat(slot, test.depth);
    for (const uint32_t slot : slots) filled_[slot] = cache.mark(slot);
    return true;
}

std::vector<Sequences::Logits> Sequences::sample(const Test& part, std::span<const uint32_t> slots,
                                                 std::span<const uint32_t> kept) {
    if (!fill(slots, part)) return {};
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

std::optional<Company> Sequences::begin(const Test& test, bool compare) {
    for (uint32_t slot = 0; slot < forward_.cache().shape().slots; slot++) forward_.cache().truncate(slot, 0);
    if (test.sequences > 0) return begin_together(test, compare);
    const std::vector<uint32_t> slots = all_slots(1);
    return fill(slots, test) && time(test) ? std::optional(Company{}) : std::nullopt; // the cache has grown by now
}

// Runs the first tokens of all sequences together, which also warms up; then the first, the middle and the last sequence alone,
// in the slots that they had, and compares the logits bit for bit.
std::optional<Company> Sequences::begin_together(const Test& test, bool compare) {
    Test part = test;
    part.prompt = std::min(test.prompt, checked_prompt);
    part.generated = std::min(test.generated, checked_generated);
    std::vector<uint32_t> kept{0, test.sequences / 2, test.sequences - 1};
    kept.erase(std::ranges::unique(kept).begin(), kept.end());
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

// Runs one token of each slot in a pass, `count` times. False after Ctrl-C.
bool Sequences::generate(std::span<const uint32_t> slots, const Ids& ids, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!run(spans_of(slots, ids, first + i, 1))) return false;
    return true;
}

// Runs ids.size() tokens of slot 0 that the device samples by itself: the first id, then always the most likely next one, in
// the batches of a conversation. Returns false after Ctrl-C.
bool Sequences::sample_greedily(std::span<const uint32_t> ids) {
    SamplerOptions greedy;
    greedy.temperature = 0;
    const Sampler sampler(greedy);
    Pace pace;
    uint32_t id = ids[0];
    for (size_t done = 0; done < ids.size() && !interrupted();) {
        const uint32_t n = pace.next(std::min(forward_.max_sampled(), uint32_t(ids.size() - done)));
        const Stopwatch stopwatch;
        const std::vector<uint32_t> sampled = forward_.run_sampled(0, id, n, sampler.device_sampling(n));
        pace.took(n, stopwatch.nanoseconds());
        done += sampled.size();
        id = sampled.back();
    }
    return !interrupted();
}

std::optional<Sample> Sequences::time(const Test& test) {
    const std::vector<uint32_t> slots = all_slots(test.slots());
    const Ids ids = ids_for(test, test.prompt + test.generated);
    for (const uint32_t slot : slots) forward_.cache().return_to(slot, filled_[slot]);
    const Stopwatch stopwatch;
    if (test.prompt > 0 && !run(spans_of(slots, ids, 0, test.prompt))) return std::nullopt;
    const uint64_t prompt_ns = stopwatch.nanoseconds();
    const bool samples = test.sequences == 0 && forward_.max_sampled() > 0 && test.generated > 0;
    if (!(samples ? sample_greedily(std::span(ids[0]).subspan(test.prompt)) : generate(slots, ids, test.prompt, test.generated)))
        return std::nullopt;
    return Sample{prompt_ns, stopwatch.nanoseconds() - prompt_ns};
}

Profiled Sequences::profile(Device& device, const Test& test) {
    Test part = test;
    part.generated = std::min(test.generated, profiled_tokens);
    Profiled out{{}, uint32_t(part.tokens())};
    device.profile = true;
    forward_.record_again();
    device.take_profile();
    if (time(part)) out.kernels = device.take_profile();
    device.profile = false;
    forward_.record_again();
    return out;
}

} // namespace tq::bench
