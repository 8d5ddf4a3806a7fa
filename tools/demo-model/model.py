"""Qwen3's architecture in plain PyTorch, at the demo model's size. Parameters are named as GGUF names its tensors."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 1024
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    ffn: int = 768
    rope_theta: float = 1e4
    eps: float = 1e-6


def _matrix(rows, cols, gain=0.5):
    return nn.Parameter(torch.randn(rows, cols) * gain / math.sqrt(cols))


def _norm(size):
    return nn.Parameter(torch.ones(size))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.attn_norm, self.ffn_norm = _norm(c.hidden), _norm(c.hidden)
        self.attn_q_norm, self.attn_k_norm = _norm(c.head_dim), _norm(c.head_dim)
        self.attn_q = _matrix(q_rows, c.hidden)
        self.attn_k, self.attn_v = _matrix(kv_rows, c.hidden), _matrix(kv_rows, c.hidden)
        self.attn_output = _matrix(c.hidden, q_rows, 0.15)
        self.ffn_gate, self.ffn_up = _matrix(c.ffn, c.hidden), _matrix(c.ffn, c.hidden)
        self.ffn_down = _matrix(c.hidden, c.ffn, 0.15)


class Qwen3(nn.Module):
    """Output embeddings are tied to the input embeddings."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Parameter(torch.randn(config.vocab, config.hidden) * 0.02)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_norm = _norm(config.hidden)

    def forward(self, ids, starts=None, dtype=torch.float32):
        """ids [B, T] -> logits [B, T, vocab]. starts [B, T]: the first position visible to each (its document's start)."""
        c = self.config
        cos, sin = rope_table(c, ids.shape[1], ids.device)
        cos, sin = cos.to(dtype)[:, None], sin.to(dtype)[:, None]
        mask = attention_mask(ids, starts)
        x = F.embedding(ids, self.token_embd).to(dtype)
        for b in self.blk:
            x = x + F.linear(self._attention(b, rms_norm(x, b.attn_norm, c.eps), cos, sin, mask), b.attn_output.to(dtype))
            h = rms_norm(x, b.ffn_norm, c.eps)
            x = x + F.linear(F.silu(F.linear(h, b.ffn_gate.to(dtype))) * F.linear(h, b.ffn_up.to(dtype)), b.ffn_down.to(dtype))
        return F.linear(rms_norm(x, self.output_norm, c.eps), self.token_embd.to(dtype))

    def _attention(self, b, h, cos, sin, mask):
        c, (B, T, _) = self.config, h.shape
        q = F.linear(h, b.attn_q.to(h.dtype)).view(B, T, c.heads, c.head_dim)
        k = F.linear(h, b.attn_k.to(h.dtype)).view(B, T, c.kv_heads, c.head_dim)
        v = F.linear(h, b.attn_v.to(h.dtype)).view(B, T, c.kv_heads, c.head_dim)
        q, k = rope(rms_norm(q, b.attn_q_norm, c.eps), cos, sin), rope(rms_norm(k, b.attn_k_norm, c.eps), cos, sin)
        k, v = (x.repeat_interleave(c.heads // c.kv_heads, 2) for x in (k, v))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = (q @ k.transpose(2, 3)).float() / math.sqrt(c.head_dim) + mask
        return (scores.softmax(-1).to(h.dtype) @ v).transpose(1, 2).reshape(B, T, c.heads * c.head_dim)


def rms_norm(x, weight, eps):
    xf = x.float()
    return (xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rope(x, cos, sin):
    """Rotates the pairs (i, i + head_dim / 2)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


_tables = {}


def rope_table(config, length, device):
    """cos and sin [length, head_dim / 2] of position * theta^(-2i / head_dim), f32."""
    key = (length, str(device))
    if key not in _tables:
        inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2).double() / config.head_dim)
        angle = torch.outer(torch.arange(length).double(), inverse)
        _tables[key] = angle.cos().float().contiguous().to(device), angle.sin().float().contiguous().to(device)
    return _tables[key]


def attention_mask(ids, starts):
    """The mask: 0 if a position is visible, -inf elsewhere; [B or 1, 1, T, T]."""
    t = torch.arange(ids.shape[1], device=ids.device)
    allowed = (t[None, :] <= t[:, None])[None]
    if starts is not None:
        allowed = allowed & (t[None, None, :] >= starts[:, :, None])
    return torch.zeros(allowed.shape, device=ids.device).masked_fill(~allowed, float("-inf"))[:, None]


def weighted_cross_entropy(logits, targets, weights):
    """-> (weighted mean, losses [B*T])."""
    losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum(), losses.detach()
