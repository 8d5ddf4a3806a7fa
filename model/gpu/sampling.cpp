#include "model/gpu/sampling.h"
#include "shaders.gen.h"

namespace tq::gpu {
namespace {

// At least 64 invocations: llvmpipe leaves loops after 65535 iterations of all invocations together, and the least favourable
// logits take up to 1024 * 1024 / invocations.
uint32_t sampling_workgroup(const Tuning& t) { return std::max(t.workgroup, 64u); }

} // namespace

uint64_t uses_offset(uint32_t vocab_size) { return sampled_offset + sampled_bytes + (vocab_size + 31) / 32 * 4; }
uint64_t sampling_bytes(uint32_t vocab_size) { return uses_offset(vocab_size) + uint64_t(vocab_size) * sizeof(token_use); }

void sample_candidates(Pass& pass, const Buffer& candidates, const Buffer& logits, const Buffer& sampling, uint32_t vocab_size) {
    const uint32_t stretches = groups(vocab_size, SAMPLING_STRETCH);
    const Work work{4ull * vocab_size + candidates_bytes(vocab_size) + uses_offset(vocab_size), 4ull * vocab_size};
    pass.recorder.dispatch<shader::sample_candidates>({stretches}, {sampling_workgroup(pass.tuning)}, {vocab_size}, work,
                                                      candidates, logits, sampling);
}

uint64_t candidates_bytes(uint32_t vocab_size) {
    return uint64_t(groups(vocab_size, SAMPLING_STRETCH)) * SAMPLING_CANDIDATES * 2 * 4;
}

void sample(Pass& pass, const Buffer& ids, const Buffer& sampling, const Buffer& candidates, uint32_t vocab_size) {
    pass.recorder.dispatch<shader::sample>({1}, {sampling_workgroup(pass.tuning)},
                                           {groups(vocab_size, SAMPLING_STRETCH), (vocab_size + 31) / 32},
                                           {candidates_bytes(vocab_size), 0}, ids, sampling, candidates, pass.context);
}

void sample_all(Pass& pass, const Buffer& ids, const Buffer& sampling, const Buffer& logits, uint32_t vocab_size) {
    constexpr uint32_t reads = 10; // of the logits: the greatest, four digits of top-k and of top-p, the masses of stretches
    pass.recorder.dispatch<shader::sample_all>({1}, {pass.tuning.max_workgroup}, {vocab_size},
                                               {reads * (4ull * vocab_size + uses_offset(vocab_size)), 0}, ids, sampling, logits,
                                               pass.context);
}

} // namespace tq::gpu
