#!/usr/bin/python3
"""The model's forward and backward pass with the fused C kernels, which make training on one CPU thread feasible.

Run it to compare loss and gradients with the plain model."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F

from model import Config, Qwen3, rope_table, weighted_cross_entropy

BF16 = torch.bfloat16


def _compile():
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.c")
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "kernels.so")
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp-simd", "-shared", "-fPIC"]
        command = [os.environ.get("CC", "cc"), *flags, source, "-o", library, "-lmvec", "-lm"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"cannot compile {source}:\n{result.stderr}")
        return ctypes.CDLL(library)


_library = None


def _call(name, *args):
    """Tensors go as pointers, int as long, float as float."""
    global _library
    _library = _library or _compile()
    convert = {torch.Tensor: lambda t: ctypes.c_void_p(t.data_ptr()), int: ctypes.c_long, float: ctypes.c_float}
    for a in args:
        assert not isinstance(a, torch.Tensor) or a.is_contiguous()
    getattr(_library, name)(*(convert[type(a)](a.detach() if isinstance(a, torch.nn.Parameter) else a) for a in args))


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        x, w, n = x.contiguous(), w.detach(), x.shape[-1]
        y, scale = torch.empty_like(x), torch.empty(x.numel() // n)
        _call("rms_norm", x, w, y, scale, x.numel() // n, n, eps)
        ctx.save_for_backward(x, w, scale)
        return y

    @staticmethod
    def backward(ctx, gy):
        x, w, scale = ctx.saved_tensors
        gx, gw, n = torch.empty_like(x), torch.zeros_like(w), x.shape[-1]
        _call("rms_norm_backward", x, w, scale, gy.contiguous(), gx, gw, x.numel() // n, n)
        return gx, gw, None


class SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv, wq, wk, cos, sin, shape, eps):
        B, T, heads, kv_heads = shape
        wq, wk = wq.detach(), wk.detach()
        q = torch.empty(B, heads, T, 128, dtype=BF16)
        k, v = torch.empty(B, kv_heads, T, 128, dtype=BF16), torch.empty(B, kv_heads, T, 128, dtype=BF16)
        scale = torch.empty(B * T * (heads + kv_heads))
        _call("split_heads", qkv, wq, wk, cos, sin, q, k, v, scale, *shape, eps)
        ctx.save_for_backward(qkv, wq, wk, cos, sin, scale)
        ctx.shape = shape
        return q, k, v

    @staticmethod
    def backward(ctx, gq, gk, gv):
        qkv, wq, wk, cos, sin, scale = ctx.saved_tensors
        gqkv, gwq, gwk = torch.empty_like(qkv), torch.zeros_like(wq), torch.zeros_like(wk)
        gq, gk, gv = gq.contiguous(), gk.contiguous(), gv.contiguous()
        _call("split_heads_backward", qkv, wq, wk, cos, sin, gq, gk, gv, scale, gqkv, gwq, gwk, *ctx.shape)
        return gqkv, gwq, gwk, None, None, None, None


class Attention(torch.autograd.Function):
    """q [B, heads, T, 128] already scaled; the query heads of one kv head are stacked into one product."""

    @staticmethod
    def forward(ctx, q, k, v, starts):
        (B, heads, T, d), kv_heads = q.shape, k.shape[1]
        q, k, v = q.view(B * kv_heads, -1, d), k.view(B * kv_heads, T, d), v.view(B * kv_heads, T, d)
        p = torch.bmm(q, k.transpose(1, 2))
        _call("causal_softmax", p, starts, B, heads, T)
        ctx.save_for_backward(q, k, v, p, starts)
        ctx.shape = B, heads, T, d
        return torch.bmm(p, v).view(B, heads, T, d).transpose(1, 2).reshape(B, T, heads * d)

    @staticmethod
    def backward(ctx, gy):
        q, k, v, p, starts = ctx.saved_tensors
        B, heads, T, d = ctx.shape
        gy = gy.view(B, T, heads, d).transpose(1, 2).reshape(q.shape)
        g = torch.bmm(gy, v.transpose(1, 2))
        _call("causal_softmax_backward", p, g, starts, B, heads, T)
        gq, gk, gv = torch.bmm(g, k), torch.bmm(g.transpose(1, 2), q), torch.bmm(p.transpose(1, 2), gy)
        return gq.view(B, heads, T, d), gk.view(B, -1, T, d), gv.view(B, -1, T, d), None


class SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate_up):
        n = gate_up.shape[-1] // 2
        y = torch.empty(*gate_up.shape[:-1], n, dtype=BF16)
        _call("swiglu", gate_up, y, y.numel() // n, n)
        ctx.save_for_backward(gate_up)
        return y

    @staticmethod
    def backward(ctx, gy):
        gate_up, = ctx.saved_tensors
        g, n = torch.empty_like(gate_up), gate_up.shape[-1] // 2
        _call("swiglu_backward", gate_up, gy.contiguous(), g, gy.numel() // n, n)
        return g


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, weights):
        n, losses = logits.shape[-1], torch.empty(targets.numel())
        weights = weights.flatten() / weights.sum()
        _call("cross_entropy", logits, targets, weights, losses, targets.numel(), n)
        ctx.save_for_backward(logits)
        ctx.mark_non_differentiable(losses)
        return (losses * weights).sum(), losses

    @staticmethod
    def backward(ctx, *_):
        return ctx.saved_tensors[0], None, None


def forward(model, ids, starts=None):
    """Logits in bf16, as Qwen3.forward computes them."""
    c, (B, T) = model.config, ids.shape
    cos, sin = rope_table(c, T, "cpu")
    starts = torch.zeros(B, T, dtype=torch.int32) if starts is None else starts.int().contiguous()
    x = F.embedding(ids, model.token_embd).to(BF16)
    for b in model.blk:
        h = RmsNorm.apply(x, b.attn_norm, c.eps)
        qkv = F.linear(h, torch.cat((b.attn_q, b.attn_k, b.attn_v)).to(BF16)).view(B * T, -1)
        q, k, v = SplitHeads.apply(qkv, b.attn_q_norm, b.attn_k_norm, cos, sin, (B, T, c.heads, c.kv_heads), c.eps)
        x = x + F.linear(Attention.apply(q, k, v, starts), b.attn_output.to(BF16))
        h = RmsNorm.apply(x, b.ffn_norm, c.eps)
        x = x + F.linear(SwiGlu.apply(F.linear(h, torch.cat((b.ffn_gate, b.ffn_up)).to(BF16))), b.ffn_down.to(BF16))
    return F.linear(RmsNorm.apply(x, model.output_norm, c.eps), model.token_embd.to(BF16))


def loss(model, ids, targets, weights, starts=None):
    """-> (weighted mean, losses [B*T]). The gradient overwrites the logits."""
    return CrossEntropy.apply(forward(model, ids, starts), targets.contiguous(), weights)


def main():
    torch.manual_seed(0)
    model, ids = Qwen3(Config()), torch.randint(0, 1024, (2, 65))
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p) * p.data.abs().mean()
    starts = torch.zeros(2, 64, dtype=torch.int32)
    starts[:, 20:] = 20
    weights, grads = torch.rand(2, 64), []
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    plain = weighted_cross_entropy(model(inputs, starts), targets, weights)
    for value in (plain, loss(model, inputs, targets, weights, starts)):
        model.zero_grad()
        value[0].backward()
        grads.append([p.grad.clone() for p in model.parameters()])
        print(f"loss {value[0].item():.5f}")
    worst = max(((a - b).norm() / a.norm()).item() for a, b in zip(*grads))
    print(f"gradients differ by at most {100 * worst:.2f} % (relative, per tensor)")


if __name__ == "__main__":
    main()
