"""Qwen3's and Llama 3's forward pass in float64, all positions at once, from the equations."""
import numpy as np


class Shape:
    def __init__(self, heads, kv_heads, head_dim, rope_theta, eps, rope_factors=1):
        self.heads, self.kv_heads, self.head_dim, self.rope_theta, self.eps = heads, kv_heads, head_dim, rope_theta, eps
        self.rope_factors = rope_factors


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def llama3_factors(theta, head_dim, factor, low, high, original):
    """What the frequencies of pairs are divided by: 1 if a wave is shorter than original / high, factor if it is longer than
    original / low, and between them the inverse of a mean of 1 / factor and 1."""
    frequency = theta ** (-np.arange(head_dim // 2) / (head_dim // 2))
    wave = 2 * np.pi / frequency
    smooth = (original / wave - low) / (high - low)
    between = frequency / ((1 - smooth) * frequency / factor + smooth * frequency)
    return np.where(wave < original / high, 1, np.where(wave > original / low, factor, between))


def rope(x, theta, factors=1):
    """x: [tokens, heads, head_dim]; rotates the pairs (i, i + head_dim / 2)."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[0])[:, None, None] * theta ** (-np.arange(half) / half) / factors
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


def attention(q, k, v):
    """[tokens, heads, head_dim] each; every query head attends to its key/value head up to its own position."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(axis=-1, keepdims=True), v)


def logits(shape, weights, ids):
    """The last position's logits. `weights`: matrices [rows, cols] and vectors by their names in GGUF."""
    x = weights["token_embd.weight"][ids]
    layer = 0
    while f"blk.{layer}.attn_norm.weight" in weights:
        def w(name):
            return weights[f"blk.{layer}.{name}.weight"]

        def heads(x, count):
            return x.reshape(len(ids), count, shape.head_dim)

        y = rms_norm(x, w("attn_norm"), shape.eps)
        q, k = heads(y @ w("attn_q").T, shape.heads), heads(y @ w("attn_k").T, shape.kv_heads)
        if f"blk.{layer}.attn_q_norm.weight" in weights:
            q, k = rms_norm(q, w("attn_q_norm"), shape.eps), rms_norm(k, w("attn_k_norm"), shape.eps)
        v = heads(y @ w("attn_v").T, shape.kv_heads)
        seen = attention(*(rope(x, shape.rope_theta, shape.rope_factors) for x in (q, k)), v)
        x = x + seen.reshape(len(ids), -1) @ w("attn_output").T
        y = rms_norm(x, w("ffn_norm"), shape.eps)
        gate = y @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w("ffn_up").T)) @ w("ffn_down").T
        layer += 1
    head = weights.get("output.weight", weights["token_embd.weight"])
    return head @ rms_norm(x[-1], weights["output_norm.weight"], shape.eps)
