/* The element-wise parts of training, fused, on bf16 activations: for a CPU, where separate PyTorch operations cost more than
   the matrix products between them. Compiled at run time by fused.py. Rows are contiguous; f32 statistics throughout. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;
enum { HEAD_DIM = 128, HALF = HEAD_DIM / 2, MAX_ROW = 8192 };
#define SIMD _Pragma("omp simd")
#define SIMD_SUM(s) _Pragma(SIMD_TEXT(omp simd reduction(+ : s)))
#define SIMD_TEXT(x) #x

static inline float load(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static inline bf16 store(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* y = x * scale * w, scale = 1 / sqrt(mean(x^2) + eps); x, y [rows, n] */
void rms_norm(const bf16* x, const float* w, bf16* y, float* scale, long rows, long n, float eps) {
    for (long i = 0; i < rows; i++, x += n, y += n) {
        float sum = 0;
        SIMD_SUM(sum) for (long j = 0; j < n; j++) sum += load(x[j]) * load(x[j]);
        float s = scale[i] = 1 / sqrtf(sum / n + eps);
        SIMD for (long j = 0; j < n; j++) y[j] = store(load(x[j]) * s * w[j]);
    }
}
void rms_norm_backward(const bf16* x, const float* w, const float* scale, const bf16* gy, bf16* gx, float* gw, long rows,
                       long n) {
    for (long i = 0; i < rows; i++, x += n, gy += n, gx += n) {
        float s = scale[i], dot = 0;
        SIMD_SUM(dot) for (long j = 0; j < n; j++) {
            float unit = load(x[j]) * s, g = load(gy[j]);
            gw[j] += g * unit;
            dot += g * w[j] * unit;
        }
        dot /= n;
        SIMD for (long j = 0; j < n; j++) gx[j] = store((load(gy[j]) * w[j] - load(x[j]) * s * dot) * s);
    }
}

/* qkv [B*T, heads + 2 kv_heads, 128] -> q [B, heads, T, 128], k and v [B, kv_heads, T, 128]: q- and k-norm, RoPE, and q /
 * sqrt(128) */
void split_heads(const bf16* qkv, const float* wq, const float* wk, const float* cosines, const float* sines, bf16* q, bf16* k,
                 bf16* v, float* scale, long B, long T, long heads, long kv_heads, float eps) {
    for (long i = 0; i < B * T; i++) {
        long batch = i / T, t = i % T;
        const float *cs = cosines + t * HALF, *sn = sines + t * HALF;
        for (long h = 0; h < heads + 2 * kv_heads; h++, qkv += HEAD_DIM) {
            if (h >= heads + kv_heads) {
                memcpy(v + ((batch * kv_heads + h - heads - kv_heads) * T + t) * HEAD_DIM, qkv, HEAD_DIM * sizeof(bf16));
                continue;
            }
            int is_q = h < heads;
            const float* w = is_q ? wq : wk;
            bf16* out = (is_q ? q + (batch * heads + h) * T * HEAD_DIM : k + (batch * kv_heads + h - heads) * T * HEAD_DIM) +
                        t * HEAD_DIM;
            float sum = 0;
            SIMD_SUM(sum) for (int j = 0; j < HEAD_DIM; j++) sum += load(qkv[j]) * load(qkv[j]);
            float s = scale[i * (heads + kv_heads) + h] = 1 / sqrtf(sum / HEAD_DIM + eps);
            if (is_q) s /= sqrtf(HEAD_DIM);
            SIMD for (int j = 0; j < HALF; j++) {
                float a = load(qkv[j]) * s * w[j], b = load(qkv[j + HALF]) * s * w[j + HALF];
                out[j] = store(a * cs[j] - b * sn[j]);
                out[j + HALF] = store(b * cs[j] + a * sn[j]);
            }
        }
    }
}
void split_heads_backward(const bf16* qkv, const float* wq, const float* wk, const float* cosines, const float* sines,
                          const bf16* gq, const bf16* gk, const bf16* gv, const float* scale, bf16* gqkv, float* gwq, float* gwk,
                          long B, long T, long heads, long kv_heads) {
    for (long i = 0; i < B * T; i++) {
        long batch = i / T, t = i % T;
        const float *cs = cosines + t * HALF, *sn = sines + t * HALF;
        for (long h = 0; h < heads + 2 * kv_heads; h++, qkv += HEAD_DIM, gqkv += HEAD_DIM) {
            if (h >= heads + kv_heads) {
                memcpy(gqkv, gv + ((batch * kv_heads + h - heads - kv_heads) * T + t) * HEAD_DIM, HEAD_DIM * sizeof(bf16));
                continue;
            }
            int is_q = h < heads;
            const float* w = is_q ? wq : wk;
            float* gw = is_q ? gwq : gwk;
            const bf16* g =
                (is_q ? gq + (batch * heads + h) * T * HEAD_DIM : gk + (batch * kv_heads + h - heads) * T * HEAD_DIM) +
                t * HEAD_DIM;
            float s = scale[i * (heads + kv_heads) + h], factor = is_q ? 1 / sqrtf(HEAD_DIM) : 1, gn[HEAD_DIM], dot = 0;
            SIMD for (int j = 0; j < HALF; j++) {
                float a = load(g[j]) * factor, b = load(g[j + HALF]) * factor;
                gn[j] = a * cs[j] + b * sn[j];
                gn[j + HALF] = b * cs[j] - a * sn[j];
            }
            SIMD_SUM(dot) for (int j = 0; j < HEAD_DIM; j++) {
                float unit = load(qkv[j]) * s;
                gw[j] += gn[j] * unit;
                gn[j] *= w[j];
                dot += gn[j] * unit;
            }
            dot /= HEAD_DIM;
            SIMD for (int j = 0; j < HEAD_DIM; j++) gqkv[j] = store((gn[j] - load(qkv[j]) * s * dot) * s);
        }
    }
}

/* In place: softmax of scores [B, heads, T, T] over the positions starts[b, t] .. t, zero elsewhere. */
void causal_softmax(bf16* scores, const int32_t* starts, long B, long heads, long T) {
    float e[MAX_ROW];
    for (long row = 0; row < B * heads * T; row++, scores += T) {
        long t = row % T, first = starts[row / (heads * T) * T + t];
        float top = -1e30f, sum = 0;
        _Pragma("omp simd reduction(max : top)") for (long j = first; j <= t; j++) {
            e[j] = load(scores[j]);
            top = e[j] > top ? e[j] : top;
        }
        SIMD_SUM(sum) for (long j = first; j <= t; j++) {
            e[j] = expf(e[j] - top);
            sum += e[j];
        }
        sum = 1 / sum;
        memset(scores, 0, first * sizeof(bf16));
        SIMD for (long j = first; j <= t; j++) scores[j] = store(e[j] * sum);
        memset(scores + t + 1, 0, (T - t - 1) * sizeof(bf16));
    }
}
void causal_softmax_backward(const bf16* p, bf16* g, const int32_t* starts, long B, long heads, long T) {
    for (long row = 0; row < B * heads * T; row++, p += T, g += T) {
        long t = row % T, first = starts[row / (heads * T) * T + t];
        float sum = 0;
        SIMD_SUM(sum) for (long j = first; j <= t; j++) sum += load(p[j]) * load(g[j]);
        memset(g, 0, first * sizeof(bf16));
        SIMD for (long j = first; j <= t; j++) g[j] = store(load(p[j]) * (load(g[j]) - sum));
        memset(g + t + 1, 0, (T - t - 1) * sizeof(bf16));
    }
}

/* y = silu(gate) * up; gate_up [rows, 2n], y [rows, n] */
void swiglu(const bf16* gate_up, bf16* y, long rows, long n) {
    for (long i = 0; i < rows; i++, gate_up += 2 * n, y += n) SIMD for (long j = 0; j < n; j++) {
            float a = load(gate_up[j]);
            y[j] = store(a / (1 + expf(-a)) * load(gate_up[n + j]));
        }
}
void swiglu_backward(const bf16* gate_up, const bf16* gy, bf16* g, long rows, long n) {
    for (long i = 0; i < rows; i++, gate_up += 2 * n, gy += n, g += 2 * n) SIMD for (long j = 0; j < n; j++) {
            float a = load(gate_up[j]), s = 1 / (1 + expf(-a)), out = load(gy[j]);
            g[j] = store(out * load(gate_up[n + j]) * s * (1 + a * (1 - s)));
            g[n + j] = store(out * a * s);
        }
}

/* losses [rows]; logits [rows, n] are overwritten with weights[row] * dloss / dlogits. */
void cross_entropy(bf16* logits, const int64_t* targets, const float* weights, float* losses, long rows, long n) {
    float e[MAX_ROW];
    for (long i = 0; i < rows; i++, logits += n) {
        float top = -1e30f, sum = 0;
        _Pragma("omp simd reduction(max : top)") for (long j = 0; j < n; j++) {
            e[j] = load(logits[j]);
            top = e[j] > top ? e[j] : top;
        }
        float target = e[targets[i]];
        SIMD_SUM(sum) for (long j = 0; j < n; j++) {
            e[j] = expf(e[j] - top);
            sum += e[j];
        }
        losses[i] = logf(sum) + top - target;
        e[targets[i]] -= sum;
        float scale = weights[i] / sum;
        SIMD for (long j = 0; j < n; j++) logits[j] = store(e[j] * scale);
    }
}
