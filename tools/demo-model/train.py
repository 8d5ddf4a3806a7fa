#!/usr/bin/python3
"""Trains the demo model from scratch: on a GPU when there is one, else on the CPU with fused kernels.

It opens with short contexts until the model finds needles (the gate), then mixes in long contexts and look-alike keys.
Ctrl-C saves; the same command resumes."""
import argparse
import json
import os
import random
import signal
import time

import torch

import batches
import bpe
import fused
import needles
from model import Config, Qwen3, weighted_cross_entropy
from muon import Muon

TOKENS_PER_STEP, WARMUP = 4096, 40
# (share of the main phase already done, share of conversations about remembered facts, {context: share of the steps})
PHASES = ((0.0, 0.6, {256: 0.3, 512: 0.55, 1024: 0.15}), (0.45, 0.45, {256: 0.3, 512: 0.3, 1024: 0.3, 2048: 0.1}))


class Trainer:
    def __init__(self, args):
        self.args, self.device = args, args.device
        self.path = os.path.join(args.out, "checkpoint.pt")
        torch.manual_seed(args.seed)
        self.tokenizer = self._tokenizer()
        self.model = Qwen3(Config(vocab=len(self.tokenizer))).to(self.device)
        matrices = [p for name, p in self.model.named_parameters() if p.dim() == 2 and name != "token_embd"]
        norms = [p for p in self.model.parameters() if p.dim() == 1]
        self.muon = Muon(matrices, args.lr)
        self.adam = torch.optim.AdamW([self.model.token_embd, *norms], lr=args.adam_lr, betas=(0.9, 0.98), eps=1e-10,
                                      weight_decay=0.0)
        self.rng = random.Random(args.seed)
        self.step, self.gate_step, self.tokens, self.seconds = 0, None, 0, 0.0
        held_out = random.Random(10_000 + args.seed)
        self.eval_batches = [batches.batch(held_out, self.tokenizer, 8, 512, 0.5, 0.35, self.device) for _ in range(3)]
        self.eval_needles = {c: needles.needles(self.tokenizer, 77, 48, c, n) for c, n in ((256, 6), (512, 10), (1000, 16))}

    def _tokenizer(self):
        os.makedirs(self.args.out, exist_ok=True)
        path = os.path.join(self.args.out, "tokenizer.json")
        if not os.path.exists(path):
            tokenizer, ratio = bpe.train_on_corpus(1024, 6000, seed=7)
            tokenizer.save(path)
            print(f"tokenizer: {len(tokenizer)} tokens, {ratio:.2f} characters per token", flush=True)
        return bpe.Tokenizer.load(path)

    @property
    def progress(self):
        """0 until the gate opens, then the share of the main phase done."""
        return 0.0 if self.gate_step is None else (self.step - self.gate_step) / self.args.steps

    def forward(self, ids):
        return fused.forward(self.model, ids) if self.device == "cpu" else self.model(ids, dtype=torch.bfloat16)

    def loss(self, ids, targets, weights, starts):
        if self.device == "cpu":
            return fused.loss(self.model, ids, targets, weights, starts)
        return weighted_cross_entropy(self.model(ids, starts, torch.bfloat16), targets, weights)

    def train_step(self):
        """One batch and update; -> loss."""
        _, memory_share, contexts = [phase for phase in PHASES if self.progress >= phase[0]][-1]
        context, hard = 256, 0.0
        if self.gate_step is not None:
            context, hard = self.rng.choices(list(contexts), list(contexts.values()))[0], 0.35
        batch = batches.batch(self.rng, self.tokenizer, TOKENS_PER_STEP // context, context, memory_share, hard, self.device)
        loss, _ = self.loss(*batch)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        factor = min(1, (self.step + 1) / WARMUP) * max(0.01, min(1, (1 - self.progress) / self.args.decay))
        for group in self.adam.param_groups:
            group["lr"] = self.args.adam_lr * factor
        self.adam.step()
        self.muon.step(factor, 0.85 + 0.1 * min(1, self.step / 200))
        self.step += 1
        self.tokens += TOKENS_PER_STEP
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        total = count = 0.0
        for ids, targets, weights, starts in self.eval_batches:
            _, losses = self.loss(ids, targets, torch.ones_like(weights), starts)
            said = (weights == 1).flatten()
            total, count = total + losses[said].sum().item(), count + said.sum().item()
        hits = {c: needles.exact(self.forward, items, device=self.device) for c, items in self.eval_needles.items()}
        shares = {f"needle_{context}": round(sum(h) / len(h), 3) for context, h in hits.items()}
        return {"assistant_loss": round(total / count, 4), **shares}

    def save(self):
        state = {"model": self.model.state_dict(), "config": vars(self.model.config), "merges": self.tokenizer.merges,
                 "adam": self.adam.state_dict(), "muon": self.muon.momentum, "rng": self.rng.getstate(), "step": self.step,
                 "gate_step": self.gate_step, "tokens": self.tokens, "seconds": self.seconds, "args": vars(self.args)}
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def resume(self):
        state = torch.load(self.path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.muon.momentum = state["muon"]
        self.rng.setstate(state["rng"])
        self.step, self.gate_step, self.tokens, self.seconds = (state[k] for k in ("step", "gate_step", "tokens", "seconds"))
        print(f"resumed at step {self.step}", flush=True)

    def log(self, **record):
        record = {"step": self.step, "tokens": self.tokens, "seconds": round(self.seconds), **record}
        with open(os.path.join(self.args.out, "log.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print("  ".join(f"{k} {v}" for k, v in record.items()), flush=True)

    def run(self):
        recent = []
        while self.progress < 1:
            began = time.time()
            recent.append(self.train_step())
            self.seconds += time.time() - began
            if self.step % 100 and self.progress < 1:
                if self.step % 20 == 0:
                    self.log(loss=round(sum(recent[-20:]) / 20, 4))
                continue
            result = self.evaluate()
            self.log(loss=round(sum(recent[-100:]) / len(recent[-100:]), 4), **result)
            if self.gate_step is None and self.step >= self.args.min_opening and result["needle_256"] >= self.args.gate:
                self.gate_step = self.step
                print(f"gate opened at step {self.step}", flush=True)
            if self.gate_step is None and self.step >= self.args.max_opening:
                raise SystemExit(f"needle accuracy at 256 tokens is {result['needle_256']} after {self.step} steps, wanted "
                                 f"{self.args.gate}: try another --seed")
            self.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", default="build", help="folder of the checkpoint, tokenizer and log")
    parser.add_argument("--steps", type=int, default=2600, help=f"steps of {TOKENS_PER_STEP} tokens after the opening")
    parser.add_argument("--min-opening", type=int, default=500, help="fewest opening steps")
    parser.add_argument("--max-opening", type=int, default=2500, help="give up after so many opening steps")
    parser.add_argument("--gate", type=float, default=0.75, help="needle accuracy at 256 tokens that ends the opening")
    parser.add_argument("--decay", type=float, default=0.7,
                        help="last share of the main phase over which the learning rates fall")
    parser.add_argument("--lr", type=float, default=0.02, help="of Muon (matrices)")
    parser.add_argument("--adam-lr", type=float, default=3e-3, help="of AdamW (embeddings and norms)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in (signal.SIGINT, signal.SIGTERM):  # also in the background, where shells ignore SIGINT
        signal.signal(name, signal.default_int_handler)
    trainer = Trainer(args)
    if os.path.exists(trainer.path):
        trainer.resume()
    try:
        trainer.run()
    except KeyboardInterrupt:
        trainer.save()
        raise SystemExit(f"\nstopped and saved at step {trainer.step}; the same command resumes") from None


if __name__ == "__main__":
    main()
