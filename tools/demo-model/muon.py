"""Muon for the matrices: momentum, then the nearest semi-orthogonal matrix by Newton-Schulz steps."""
import torch


def orthogonal(g, steps=5):
    """g [n, rows, cols] -> about U V^T of each singular value decomposition, in bf16 arithmetic."""
    tall = g.shape[1] > g.shape[2]
    x = (g.transpose(1, 2) if tall else g).bfloat16()
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(steps):
        a = torch.bmm(x, x.transpose(1, 2))
        x = 3.4445 * x + torch.bmm(-4.7750 * a + 2.0315 * torch.bmm(a, a), x)
    return (x.transpose(1, 2) if tall else x).float()


class Muon:
    """Matrices of one shape are stacked, so that each shape costs a few batched products."""

    def __init__(self, matrices, lr=0.02, weight_decay=0.02):
        self.lr, self.weight_decay, self.groups, self.momentum = lr, weight_decay, {}, {}
        for m in matrices:
            self.groups.setdefault(tuple(m.shape), []).append(m)
        for shape, group in self.groups.items():
            self.momentum[shape] = torch.zeros(len(group), *shape, device=group[0].device)

    @torch.no_grad()
    def step(self, lr_factor, beta):
        lr = self.lr * lr_factor
        for (rows, cols), group in self.groups.items():
            g, m = torch.stack([p.grad for p in group]), self.momentum[rows, cols]
            m.lerp_(g, 1 - beta)
            update = orthogonal(g.lerp(m, beta))
            for p, u in zip(group, update):
                p.mul_(1 - lr * self.weight_decay).add_(u, alpha=-lr * max(1, rows / cols) ** 0.5)
