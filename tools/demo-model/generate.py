#!/usr/bin/python3
"""Talk with a checkpoint in the terminal, one line per turn; also the reply function that evaluation uses."""
import argparse
import sys

import torch

import corpus


@torch.no_grad()
def reply(model, tokenizer, turns, temperature=0.0, limit=160, think=False):
    """The model's answer to `turns`, a list of (user, assistant) whose last answer is empty."""
    ids = tokenizer.encode(corpus.prompt(turns, think=think))
    start = len(ids)
    while len(ids) < start + limit:
        logits = model(torch.tensor([ids]))[0, -1]
        token = logits.argmax() if temperature == 0 else torch.multinomial((logits / temperature).softmax(-1), 1)
        if token.item() in (tokenizer.im_end, tokenizer.endoftext):
            break
        ids.append(token.item())
    return tokenizer.decode(ids[start:])


def main():
    import export
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--type", choices=["f32", *export.FILE_TYPE], default="q8_0",
                        help="round the matrices to this (default: q8_0)")
    parser.add_argument("--think", action="store_true",
                        help="prompt with an empty think block, as Qwen3's template does with thinking off")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model, tokenizer, _ = export.load_checkpoint(args.checkpoint)
    if args.type != "f32":
        export.round_weights(model, args.type)
    turns = []
    for line in sys.stdin:
        turns.append((line.strip(), ""))
        turns[-1] = (line.strip(), reply(model, tokenizer, turns, args.temperature, think=args.think))
        print(f"> {turns[-1][0]}\n{turns[-1][1]}", flush=True)


if __name__ == "__main__":
    main()
