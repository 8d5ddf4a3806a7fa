// Which cached tokens have the bits of a cold run, which computes a prompt from its first token on. Only these may stand in for
// it, if answers must not depend on what was cached before. The bits of a token depend on the kernels of the slice that it was
// computed in, and these on the slice's length and place, not on the tokens around it. So this file is arithmetic on lengths.
// BlockKernels describes the device: `block` ids make a slice of a long run (0: every row has the bits that it has alone, and all
// tokens are cold); slices of at least `many` ids have the same kernels whatever their length. It answers two questions: how much
// of a known prefix may be taken so that the rest gets the slices of a cold run (reusable_tokens()), and which tokens of a run
// had them (cold_tokens()). checkpoint_positions() chooses lengths at which a run may pause without changing its slices.
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq {

constexpr uint32_t checkpoint_distance = 2048, edited_tokens = 2 * page_tokens;
constexpr uint32_t min_apart = 16; // a slice of fewer tokens takes hardly less time than one of these
static_assert(checkpoint_distance % page_tokens == 0);

// If slices are evened, all tokens of a cold run of at least `many` have the same kernels, wherever it is cut; a shorter run has
// others. Otherwise a cold run computes whole blocks from position 0 on, and a last slice of the rest. A run after n tokens
// computes the same slices if n is a multiple of the block. If slices of `many` tokens and more give equal bits, it may begin
// anywhere as long as both runs have only slices of this length.
uint32_t reusable_tokens(const BlockKernels& kernels, uint32_t known, uint32_t total) {
    const uint32_t n = std::min(known, std::max(total, 1u) - 1), block = kernels.block, many = kernels.many;
    if (block == 0) return n;
    if (kernels.evens_slices()) return std::min(n, total - std::min(total, many));
    const uint32_t aligned = n / block * block, cold_last = (total - 1) % block + 1, last = (total - n) % block;
    if (cold_last < many) return aligned;
    if (last == 0 || last >= many) return n;
    return std::max(aligned, n - std::min(n, many - last));
}

uint32_t cold_tokens(const BlockKernels& kernels, uint32_t begin, uint32_t end) {
    const uint32_t block = kernels.block;
    if (block == 0) return end;
    if (kernels.evens_slices()) return end - begin >= kernels.many ? end : begin;
    const uint32_t last = (end - begin) % block;
    if (kernels.many <= block) return last >= kernels.many ? end : end - last;
    return begin % block == 0 ? end - last : begin;
}

uint32_t reusable_of_slot(const Forward& forward, uint32_t slot, uint32_t known, uint32_t total) {
    for (;;) {
        const uint32_t n = reusable_tokens(forward.block_kernels(), known, total);
        known = forward.cache().kept(slot, n);
        if (known == n) return n;
    }
}

// Returns the greatest n <= wish, n >= begin, such that a run of begin .. total - 1 that pauses at n has the slices of one that
// does not pause, or slices that give the same bits: whole blocks, or at least `many` tokens before and after it.
static uint32_t last_pause(const BlockKernels& kernels, uint32_t begin, uint32_t wish, uint32_t total) {
    if (kernels.block == 0) return std::clamp(wish, begin, total - 1);
    if (!kernels.evens_slices()) return begin + (std::min(wish, total - 1) - begin) / kernels.block * kernels.block;
    return std::max(begin, std::min(wish, total - std::min(total, kernels.many)));
}

// In order of value: the end of the prompt; two pages before it, as a question is often edited; the marks, at which messages
// begin; then every 2048 tokens. Ends of pages come first, since the prefix cache keeps states only there. Positions that are too
// near to one another would leave a slice of fewer than `many` tokens, and are left out.
std::vector<uint32_t> checkpoint_positions(const BlockKernels& kernels, uint32_t begin, uint32_t total,
                                           std::span<const uint32_t> marks) {
    std::vector<uint32_t> out;
    if (total <= begin + 1) return out;
    const uint32_t apart = kernels.block != 0 && kernels.evens_slices() ? std::max(kernels.many, min_apart) : 1;
    const auto add = [&](uint32_t n) {
        const auto near = [&](uint32_t other) { return std::max(n, other) - std::min(n, other) < apart; };
        if (n > begin && !near(begin) && std::ranges::none_of(out, near)) out.push_back(n);
    };
    const auto add_page_end = [&](uint32_t wish) {
        uint32_t n = last_pause(kernels, begin, std::max(wish, begin), total);
        while (n > begin && n % page_tokens != 0) n = last_pause(kernels, begin, std::max(begin, n - n % page_tokens), total);
        add(n);
    };
    add_page_end(total);
    add_page_end(total - std::min(total, edited_tokens));
    for (const uint32_t mark : marks) add_page_end(mark);
    uint32_t first = total;
    for (const uint32_t mark : marks)
        if (mark > 0) first = std::min(first, mark);
    for (uint32_t n = begin - begin % checkpoint_distance; n < total; n += checkpoint_distance)
        if (n > first || first == total) add_page_end(n);
    for (const uint32_t mark : marks) add(last_pause(kernels, begin, std::max(mark, begin), total));
    std::ranges::sort(out);
    return out;
}

} // namespace tq
