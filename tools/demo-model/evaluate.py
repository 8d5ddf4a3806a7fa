#!/usr/bin/python3
"""Evaluates a checkpoint on held-out conversations: loss, recall by distance, every skill. Prints Markdown tables.

Exact: the greedy reply is the whole expected answer, up to the end of the turn. The matrices are rounded as in the exported
file (--type); arithmetic is f32. Every third item has the empty think block in its prompt."""
import argparse
import json
import math
import random
from typing import NamedTuple

import torch

import batches
import chatter
import corpus
import export
import memory
import needles
import skills
import words as w
from generate import reply

# Written by hand; no template of the corpus makes them.
UNSEEN_QUESTIONS = w.phrases("""
    What is the meaning of life? | Why is the sky blue? | Who painted the ceiling of the Sistine Chapel? |
    How do I reset my router? | What causes thunder? | Can you book me a flight to Madrid? | Why do cats purr? |
    What is the best phone under 300 dollars? | How many teeth does a human have? | Explain the theory of relativity. |
    who is the prime minister of canada | how do vaccines work | What is the boiling point of water? |
    Write a limerick about my boss. | Why did the Roman Empire fall? | What does HTTP stand for? |
    is it safe to eat raw eggs | How far away is the nearest star? | Convert 5 miles to kilometers. |
    What is the difference between a virus and a bacterium? | tell me about the great fire of london |
    Which wine goes with fish? | How do planes stay in the air? | Compose an email to my landlord. |
    what's the tallest building in the world | How much wood would a woodchuck chuck? | Debug my code please. |
    Who was the first person on the moon? | What should I name my startup? | how do i tie a tie |
    What are the side effects of aspirin? | Solve x squared minus four equals zero. | Plan a three day trip to Paris. |
    Do aliens exist? | What is consciousness? | How does a fridge work? | Give me a workout plan. | Who won the election? |
    What is the plot of Romeo and Juliet? | Name the planets of the solar system.""")


class Item(NamedTuple):
    prompt: list
    answer: list


class Evaluation:
    def __init__(self, model, tokenizer, count, seed):
        self.model, self.tokenizer, self.count, self.seed = model, tokenizer, count, seed

    def rng(self, name):
        return random.Random(f"{self.seed} {name}")

    def score(self, name, make):
        """Exact answers to conversations from make(rng), as 'hits/items'; the last answer of each is the one expected."""
        rng, items = self.rng(name), []
        for index in range(self.count):
            *turns, (question, answer) = make(rng)
            prompt = corpus.prompt([*turns, (question, "")], think=index % 3 == 0)
            items.append(Item(self.tokenizer.encode(prompt), self.tokenizer.encode(answer + "<|im_end|>")))
        return ratio(needles.exact(self.model, items, batch_size=4))

    def score_needles(self, count, context, facts, **kind):
        items = needles.needles(self.tokenizer, f"{self.seed} needles", count, context, facts, **kind)
        return ratio(needles.exact(self.model, items, batch_size=2))

    @torch.no_grad()
    def losses(self):
        """Returns (nats, tokens) over the assistant's tokens, and over all tokens."""
        rng, said, everything = self.rng("loss"), [], []
        for _ in range(8):
            ids, targets, weights, starts = batches.batch(rng, self.tokenizer, 4, 512, 0.5, 0.35)
            nll = -self.model(ids, starts).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
            said.append(nll[weights == 1])
            everything.append(nll.flatten())
        return [(torch.cat(parts).mean().item(), torch.cat(parts).numel()) for parts in (said, everything)]

    def say(self, text):
        """The greedy reply."""
        return reply(self.model, self.tokenizer, [(text, "")])


def ratio(hits):
    return f"{sum(hits)}/{len(hits)}"


def own_fact(between):
    """A fact about the user, some `between` tokens of other talk, then the question."""
    def make(rng):
        facts, turn = memory.Memory(rng), None
        while turn is None:
            turn = facts.tell_own()
        turns, length = [turn[:2]], 0
        while length < between:
            turn = corpus.reading(rng, "Read this: ", 12) if rng.random() < 0.3 else corpus.anything(rng)
            turns.append(turn[:2])
            length += (len(turn.user) + len(turn.assistant)) / 3.8 + 9
        return turns + [facts.ask()[:2]]
    return make


def absent(rng):
    facts = memory.Memory(rng, hard=0.35)
    text = corpus.sentences(rng, 6, 0.4, facts.tell)
    question = facts.ask_absent()
    return [(f"{text} {question.user}", question.assistant)]


def story_question(rng):
    *_, text, questions = memory.story(rng)
    question = rng.choice(questions)
    return [(f"{text} {question.user}", question.assistant)]


def copying(rng):
    return [skills.copy_text(rng, memory.filler)[:2]]


def lists(run):
    """-> (hits, how many repeat an item). A hit has the number asked, only items of the kind, and none twice."""
    rng, hits, repeats = run.rng("lists"), [], 0
    for _ in range(run.count):
        category, number = rng.choice(list(w.CATEGORIES)), rng.randrange(2, 7)
        said = run.say(f"{rng.choice(('Name', 'List', 'Give me'))} {w.NUMBER_WORDS[number]} {category}.").lower()
        items = said.rstrip(".").replace(" and ", ", ").split(", ")
        known = {item.lower() for item in w.CATEGORIES[category]}
        repeats += len(set(items)) < len(items)
        hits.append(len(set(items)) == number == len(items) and known.issuperset(items))
    return hits, repeats


def greetings(run):
    """As written, and in lower case without the final mark."""
    return [run.say(variant) in answers for said, answers in chatter.SMALL_TALK for text in said
            for variant in (text, text.lower().rstrip(".?!"))]


def honesty(run, questions):
    """-> (hits, the other question-answer pairs)."""
    answers = [(question, run.say(question)) for question in questions]
    hits = [chatter.refusal(answer) or answer in chatter.HEARD for _, answer in answers]
    return hits, [pair for pair, hit in zip(answers, hits) if not hit]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    print("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n", flush=True)


def loss_table(run):
    rows = [[name, f"{nats:.4f}", f"{math.exp(nats):.4f}", count]
            for name, (nats, count) in zip(("the assistant's", "all"), run.losses())]
    table(["tokens", "nats per token", "perplexity", "measured on"], rows)


def recall_tables(run):
    rows = []
    for context, facts, hard in ((256, 6, False), (512, 10, False), (1000, 16, False), (1000, 36, True), (2000, 32, False),
                                 (3000, 48, False)):
        note = ", keys share words" if hard else ""
        count = run.count if context <= 2000 else run.count // 2
        rows.append([f"{context} tokens, {facts} codes{note}", run.score_needles(count, context, facts, hard=hard)])
    table(["a code told in a long text", "exact"], rows)
    rows = []
    for name, kind in memory.KINDS.items():
        if name != "code":
            scores = [run.score_needles(max(8, run.count // 2), context, facts, kind=name)
                      for context, facts in ((256, 4), (512, 8), (1000, 12))]
            rows.append([kind.tell[0].format(k="X", v="Y", av="a Y"), *scores])
    table(["a relation told in a long text", "256 tokens, 4 such facts", "512 tokens, 8", "1000 tokens, 12"], rows)
    rows = [[between, run.score(f"own {between}", own_fact(between))] for between in (50, 250, 500, 1000)]
    table(["tokens of other talk (about) since the user told a fact about themselves", "exact"], rows)


def skill_tables(run):
    rows = [[name, "exact", run.score(name, lambda rng, make=make: [make(rng)[:2]])]
            for name, make in skills.SKILLS.items() if name != "lists"]
    rows.append(["copying", "exact", run.score("copying", copying)])
    rows.append(["questions about a story", "exact", run.score("story", story_question)])
    rows.append(["asked what was never told", "says so, exact", run.score("absent", absent)])
    hits, repeats = lists(run)
    rows.append(["lists of 2 to 6 items", f"number and kind right, none twice ({repeats} repeat)", ratio(hits)])
    rows.append(["greetings and small talk", "reply fits", ratio(greetings(run))])
    rng = run.rng("outside")
    hits, _ = honesty(run, [chatter.out_of_domain(rng).user for _ in range(run.count)])
    rows.append(["questions outside its world, from the corpus's templates", "honest answer", ratio(hits)])
    hits, missed = honesty(run, UNSEEN_QUESTIONS)
    rows.append(["questions outside its world, written by hand", "honest answer", ratio(hits)])
    table(["skill", "criterion", "result"], rows)
    if missed:
        table(["written by hand, not answered honestly", "reply"], missed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--type", choices=["f32", *export.FILE_TYPE], default="q8_0", help="of the matrices (default: q8_0)")
    parser.add_argument("--count", type=int, default=40, help="items per row (default: 40)")
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer, state = export.load_checkpoint(args.checkpoint)
    if args.type != "f32":
        export.round_weights(model, args.type)
    run = Evaluation(model, tokenizer, args.count, args.seed)
    print(json.dumps({k: state[k] for k in ("step", "gate_step", "tokens", "seconds")}) + "\n")
    loss_table(run)
    recall_tables(run)
    skill_tables(run)


if __name__ == "__main__":
    main()
