"""Training sequences from the corpus: packed conversations, each attending only to itself, with a loss weight per token."""
import torch

import corpus

OTHER_WEIGHT = 0.25  # of tokens that are not the assistant's


def token_weights(tokenizer, ids):
    """The weights: 1 for the assistant's tokens, 0 for the empty think block (part of the prompt), OTHER_WEIGHT elsewhere."""
    assistant, think, end_think = tokenizer.encode("assistant")[0], tokenizer.id["<think>"], tokenizer.id["</think>"]
    weights, saying, thinking = [], False, False
    for i, token in enumerate(ids):
        thinking = token == think or thinking
        weights.append(0.0 if thinking else 1.0 if saying else OTHER_WEIGHT)
        if thinking and i and ids[i - 1] == end_think:
            thinking = False
        if token == tokenizer.im_end:
            saying = False
        elif i > 1 and ids[i - 2] == tokenizer.im_start and ids[i - 1] == assistant:
            saying = True
    return weights


def sequence(rng, tokenizer, length, memory_share, hard):
    """-> (ids, weights, start of each token's conversation), each of `length`."""
    ids, weights, starts = [], [], []
    while len(ids) < length:
        room = length - len(ids)
        budget = int(3.6 * room * rng.choice((0.35, 0.7, 0.95, 1.0)))
        more = tokenizer.encode(corpus.conversation(rng, max(budget, 200), memory_share, hard)) + [tokenizer.endoftext]
        if not ids and len(more) > 1.4 * length:
            continue
        starts += [len(ids)] * len(more)
        ids += more
        weights += token_weights(tokenizer, more)
    return ids[:length], weights[:length], starts[:length]


def batch(rng, tokenizer, size, context, memory_share=0.6, hard=0.0, device="cpu"):
    """-> (ids, targets, weights, starts), each [size, context]."""
    rows = [sequence(rng, tokenizer, context + 1, memory_share, hard) for _ in range(size)]
    ids, weights, starts = (torch.tensor([row[i] for row in rows], device=device) for i in range(3))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous(), starts[:, :-1].contiguous()
