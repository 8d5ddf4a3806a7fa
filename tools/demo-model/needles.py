"""Needle prompts: facts strewn over a long text, one asked at its end. The held-out measure of recall."""
import random
from typing import NamedTuple

import torch

import corpus
import memory
import words as w


class Needle(NamedTuple):
    prompt: list
    answer: list
    fact: str


def needle(rng, tokenizer, context, facts, kind="code", hard=False):
    """A prompt of about `context` tokens with `facts` facts of one kind. `hard`: keys made of few words, which they share."""
    adjectives, objects = rng.sample(w.ADJECTIVES, 7), rng.sample(w.OBJECTS, 7)
    spec, told = memory.KINDS[kind], {}
    while len(told) < facts:
        if kind != "code":
            told.setdefault(spec.key(rng), spec.value(rng))
        elif hard:
            told.setdefault(f"{rng.choice(adjectives)} {rng.choice(objects)}", str(rng.randrange(1000, 10000)))
        else:
            told.setdefault(f"{rng.choice(w.ADJECTIVES)} {rng.choice(w.OBJECTS)}", str(rng.randrange(1000, 10000)))
    tells = {key: memory.fill(spec.tell[0], key, value) for key, value in told.items()}
    key = rng.choice(list(tells))
    question = memory.fill(spec.ask[0], key, "")
    lines = list(tells.values())
    rng.shuffle(lines)
    room = context - len(tokenizer.encode(" ".join(lines) + question)) - 12
    while True:
        line = memory.filler(rng)
        room -= len(tokenizer.encode(" " + line))
        if room < 0:
            break
        lines.insert(rng.randrange(len(lines) + 1), line)
    prompt = corpus.prompt([(" ".join(lines + [question]), "")])
    answer = memory.fill(spec.answer, key, told[key]) + "<|im_end|>"
    return Needle(tokenizer.encode(prompt), tokenizer.encode(answer), tells[key])


def needles(tokenizer, seed, count, context, facts, **kind):
    rng = random.Random(seed)
    return [needle(rng, tokenizer, context, facts, **kind) for _ in range(count)]


@torch.no_grad()
def exact(forward, items, batch_size=8, device="cpu"):
    """For every item with a prompt and an answer: is the greedy reply the whole answer? forward: ids [B, T] -> logits."""
    hits = []
    for at in range(0, len(items), batch_size):
        chunk = items[at:at + batch_size]
        longest = max(len(i.prompt) + len(i.answer) for i in chunk)
        ids = torch.zeros(len(chunk), longest, dtype=torch.long)
        for row, item in enumerate(chunk):
            ids[row, :len(item.prompt) + len(item.answer)] = torch.tensor(item.prompt + item.answer)
        picked = forward(ids.to(device)).argmax(-1).cpu()
        for row, item in enumerate(chunk):
            start = len(item.prompt) - 1
            hits.append(picked[row, start:start + len(item.answer)].tolist() == item.answer)
    return hits
