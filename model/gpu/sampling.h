// Sampling of a token on the device (model/engine/sampling/device_sampling.h).
#pragma once
#include "model/engine/sampling/device_sampling.h"
#include "model/gpu/pass.h"

namespace tq::gpu {

// The buffer of shaders/sampling.glsl for a vocabulary: its bytes, those before the uses of tokens, and the offset of the sampled
// ids.
uint64_t sampling_bytes(uint32_t vocab_size);
uint64_t uses_offset(uint32_t vocab_size);
constexpr uint64_t sampled_offset = sizeof(sampling_settings) + SAMPLING_STEPS * 4, sampled_bytes = SAMPLING_STEPS * 4;

// candidates = key and id of the greatest logits of each stretch, in order: as many as `sampling` sets. logits: [vocab_size],
// at most max_sampling_logits; candidates: candidates_bytes()
void sample_candidates(Pass&, const Buffer& candidates, const Buffer& logits, const Buffer& sampling, uint32_t vocab_size);
uint64_t candidates_bytes(uint32_t vocab_size);
constexpr uint32_t max_sampling_logits = SAMPLING_STRETCH * SAMPLING_STRETCHES;

// ids[0] = the token sampled from `candidates` by the settings in `sampling` (model/engine/sampling/device_sampling.h); it is
// also appended to its list of sampled ids. The context's position advances, and its count of sampled tokens.
void sample(Pass&, const Buffer& ids, const Buffer& sampling, const Buffer& candidates, uint32_t vocab_size);

// The same in one, from all logits, or from more candidates than SAMPLING_CANDIDATES.
void sample_all(Pass&, const Buffer& ids, const Buffer& sampling, const Buffer& logits, uint32_t vocab_size);

} // namespace tq::gpu
