// Rows and elements: embedding, norms, SwiGLU.
#pragma once
#include "model/gpu/pass.h"
#include "model/gpu/weights.h"

namespace tq::gpu {

// h[t] = row ids[t] of `embedding`. h: fp32 [tokens][cols], ids: uint32 [tokens]
void embed(Pass&, const Buffer& h, const Matrix& embedding, const Buffer& ids);

// y[t] = w * x[t] / sqrt(mean(x[t]^2) + eps). x, y: [tokens][cols]. `last_only`: of the last token only, into y[0].
void rms_norm(Pass&, const Buffer& y, const Buffer& x, const Buffer& w, uint32_t cols, float eps, bool last_only = false);

// y = silu(gate) * up. y, gate, up: [tokens][cols]; or gate_up: [tokens][cols][2].
void swiglu(Pass&, const Buffer& y, View gate, View up, uint32_t cols);
void swiglu_pairs(Pass&, const Buffer& y, const Buffer& gate_up, uint32_t cols);

} // namespace tq::gpu
