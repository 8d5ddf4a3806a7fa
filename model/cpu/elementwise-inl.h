// Functions of single vectors of activations, for one target.
#if defined(TQ_CPU_ELEMENTWISE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_ELEMENTWISE_INL_H
#undef TQ_CPU_ELEMENTWISE_INL_H
#else
#define TQ_CPU_ELEMENTWISE_INL_H
#endif

#include "model/cpu/vector-inl.h"
#include <cmath>
#include <hwy/contrib/math/math-inl.h>
#include <limits>
#include <optional>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// Returns exp(x); infinite for x above 104. Highway's own treats NaN as 0, and is undefined beyond 104.
HWY_INLINE V exp_of(V x) {
    const V limited = hn::Min(x, hn::Set(F(), 104));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(F(), limited));
}

inline void scale_all(float* x, float by, size_t count) {
    for (size_t i = 0; i < count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(F(), x + i), hn::Set(F(), by)), F(), x + i);
}

// gate = silu(gate) * up
HWY_INLINE void swiglu(float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, size_t count) {
    const F f;
    const V one = hn::Set(f, 1);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const V g = hn::LoadU(f, gate + i);
        hn::StoreU(hn::Mul(hn::Div(g, hn::Add(one, exp_of(hn::Neg(g)))), hn::LoadU(f, up + i)), f, gate + i);
    }
    for (; i < count; i++) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

// Returns 1 / sqrt of a sum or mean of squares; NaN if these overflow, as ref::inverse_root does.
HWY_INLINE float inverse_root(float squares) {
    return squares <= 3.4e38f ? 1 / std::sqrt(squares) : std::numeric_limits<float>::quiet_NaN();
}

// Returns 1 / rms of x.
HWY_INLINE float inverse_rms(const float* x, size_t count, float eps) {
    return inverse_root(dot(x, x, count) / float(count) + eps);
}

// y = x * scale * w
HWY_INLINE void scale_by(float* HWY_RESTRICT y, const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, float scale,
                         size_t count) {
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(F(), x + i), hn::Set(F(), scale)), hn::LoadU(F(), w + i)), F(), y + i);
    for (; i < count; i++) y[i] = x[i] * scale * w[i];
}

// x[d] = RoPE(w * x / rms(x)), or RoPE(w * x) if there is no eps; turns[turned]: cosine and sine of each pair (i, i + turned / 2)
// of the first channels, which alone RoPE turns.
HWY_INLINE void norm_and_rope(float* HWY_RESTRICT x, const float* HWY_RESTRICT w, const float* HWY_RESTRICT turns, size_t d,
                              size_t turned, std::optional<float> eps) {
    const F f;
    const size_t half = turned / 2;
    const V scale = hn::Set(f, eps ? inverse_rms(x, d, *eps) : 1);
    for (size_t i = turned; i < d; i += lanes)
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(f, x + i), scale), hn::LoadU(f, w + i)), f, x + i);
    for (size_t i = 0; i < half; i += lanes) {
        const V a = hn::Mul(hn::Mul(hn::LoadU(f, x + i), scale), hn::LoadU(f, w + i));
        const V b = hn::Mul(hn::Mul(hn::LoadU(f, x + i + half), scale), hn::LoadU(f, w + i + half));
        V c, s;
        hn::LoadInterleaved2(f, turns + 2 * i, c, s);
        hn::StoreU(hn::MulSub(a, c, hn::Mul(b, s)), f, x + i);
        hn::StoreU(hn::MulAdd(b, c, hn::Mul(a, s)), f, x + i + half);
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
