#include "model/prefix/cold.h"
#include <algorithm>

namespace tq {

uint32_t before_window(uint32_t known, uint32_t total, uint32_t window_tokens) {
    return std::min(known, total - std::min(total, std::max(window_tokens, 1u)));
}

bool keeps_promise(const Forward& forward) {
    return forward.cache().shape().window_tokens == 0 || forward.block_kernels().block != 0;
}

uint32_t kept_of_slot(const Forward& forward, uint32_t slot, uint32_t known, uint32_t total) {
    const Cache& cache = forward.cache();
    const uint32_t n = cache.kept(slot, before_window(known, total, 0)), tokens = cache.shape().window_tokens;
    if (tokens == 0) return n;
    WindowPositions window = cache.window(slot), whole{tokens};
    window.forget(cache.position(slot), n);
    if (window.first(n) == whole.first(n)) return n;
    return keeps_promise(forward) ? cache.kept(slot, before_window(n, total, tokens)) : 0;
}

// Where slices are evened, all tokens of a cold run of at least `many` have the same kernels, wherever it is cut; a shorter run
// has others. Elsewhere a cold run computes whole blocks from position 0 on, and a last slice of what is left. A run after n
// tokens computes the same slices where n is a multiple of the block. Where slices of `many` tokens and more give equal bits, it
// may begin anywhere as long as both runs have only such slices.
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

} // namespace tq
