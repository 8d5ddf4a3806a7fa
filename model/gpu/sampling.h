// Sampling of a token on the device (model/sampling/draw.h).
#pragma once
#include "model/gpu/pass.h"
#include "model/sampling/draw.h"

namespace tq::gpu {

// The buffer of shaders/draw.glsl for a vocabulary, and where in it the drawn ids are.
uint64_t draw_bytes(uint32_t vocab_size);
constexpr uint64_t drawn_offset = sizeof(draw_settings) + DRAW_STEPS * 4, drawn_bytes = DRAW_STEPS * 4;

// candidates = key and id of the greatest logits of each stretch, in order: as many as `draw` says. logits: [vocab_size], at most
// max_drawn_logits; candidates: candidates_bytes()
void sample_candidates(Pass&, const Buffer& candidates, const Buffer& logits, const Buffer& draw, uint32_t vocab_size);
uint64_t candidates_bytes(uint32_t vocab_size);
constexpr uint32_t max_drawn_logits = DRAW_STRETCH * DRAW_STRETCHES;

// ids[0] = the token drawn of `candidates` as `draw` says (model/sampling/draw.h), which is also the next in its list of drawn
// ids; the context's position moves on, as does its count of tokens drawn.
void sample(Pass&, const Buffer& ids, const Buffer& draw, const Buffer& candidates, uint32_t vocab_size);

} // namespace tq::gpu
