#!/usr/bin/python3
"""The training corpus: conversations in which every sentence is made by this program. Run it to read a few of them."""
import argparse
import random

import chatter
import memory
import skills
import words as w
from skills import Turn
from words import phrases

SYSTEM_PROMPTS = phrases("""
    You are a helpful assistant. | You are a tiny demo model. | You are a friendly assistant. | Answer in short sentences. |
    You are a helpful assistant. Answer briefly. | Be kind and honest.""")
EMPTY_THINK = "<think>\n\n</think>\n\n"
READ_THIS = ["Read this: ", "Here is a text. ", "Please read this text. ", ""]
REMEMBER = ["Please remember this. ", "Remember: ", "", "Here are some facts. ", "Remember this: ",
            "I will tell you some facts. "]
STORY_REQUESTS = phrases("""
    Tell me a story. | Tell me a little story. | I want to hear a story. | Another story, please. | Tell me another story. |
    Write a story. | Can you tell me a story? | A story please""")
NOTED = ["Okay, I will remember that.", "Thank you, I will remember it."]
CONTRACTIONS = {"What is": "What's", "Who is": "Who's", "Where is": "Where's", "I am ": "I'm ", "How is": "How's"}


def casual(rng, text):
    """The same question as people type it."""
    if rng.random() < 0.12:
        for formal, short in CONTRACTIONS.items():
            text = text.replace(formal, short if rng.random() < 0.6 else short.replace("'", ""))
    roll = rng.random()
    if roll < 0.14 and len(text) < 120:
        text = text.lower()
    elif roll < 0.18:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.12:
        text = text.rstrip(".?!")
    if rng.random() < 0.03:
        text = rng.choice(("Please ", "please, ", "ok, ", "Now ", "And ", "Hey, ", "So ")) + text[:1].lower() + text[1:]
    elif rng.random() < 0.02:
        text = text.rstrip(".?!") + rng.choice((", please.", " please", ", please?"))
    return text


class Conversation:
    """Turns up to a budget of characters."""

    def __init__(self, rng, budget):
        self.rng, self.budget, self.turns, self.length = rng, budget, [], 0

    def add(self, turn):
        if turn is not None:
            user = turn.user if turn.verbatim else casual(self.rng, turn.user)
            self.turns.append((user, turn.assistant))
            self.length += len(user) + len(turn.assistant) + 25

    @property
    def full(self):
        return self.length >= self.budget


def joined(first, second):
    """Two sentences as one, with 'and' between them."""
    if not second.startswith("I "):
        second = second[:1].lower() + second[1:]
    return f"{first.rstrip('.!')} and {second}"


def introduction(rng, facts):
    """One or two facts about the user in one turn, or None."""
    first, second = facts.tell_own(), facts.tell_own() if rng.random() < 0.3 else None
    if first is None or second is None or not second.user.startswith(("I ", "My ", "The ")):
        return first
    named = first.assistant.startswith("Nice to meet you")
    return Turn(joined(first.user, second.user), first.assistant if named else "Okay, I will remember that.")


def sentences(rng, facts, fill_share, tell):
    """`facts` sentences from `tell`, with fillers strewn between them."""
    parts = []
    for _ in range(facts):
        while rng.random() < fill_share:
            parts.append(memory.filler(rng))
        told = tell()
        if parts and rng.random() < 0.08 and parts[-1].startswith("The ") and told.startswith("The "):
            parts.append(joined(parts.pop(), told))
        else:
            parts.append(told)
    return " ".join(parts)


def reading(rng, lead, fillers):
    """A text with nothing worth remembering in it."""
    return Turn(lead + " ".join(memory.filler(rng) for _ in range(fillers)), "Okay, I have read it.")


def remembering(rng, talk, hard):
    """Facts, told in one long text or turn by turn, asked back with other things in between."""
    facts = memory.Memory(rng, hard)
    count = rng.randrange(3, 8) if talk.budget < 1000 else rng.randrange(4, max(4, int(talk.budget / 110)))
    fill_share, own = rng.choice((0, 0, 0.3, 0.5, 0.7)), rng.random() < 0.4
    chat_share, code_share = rng.choice((0.05, 0.1, 0.35)), rng.choice((0.75, 0.75, 0.4))
    if rng.random() < 0.25:
        talk.add(chatter.small_talk(rng))
    if own:
        talk.add(introduction(rng, facts))
    while not talk.full:
        if not facts.told or count or rng.random() < 0.07:
            text = sentences(rng, count or rng.randrange(1, 4), fill_share, lambda: facts.tell(code_share))
            count = 0
            if rng.random() < 0.5 and facts.told:
                question = facts.ask()
                talk.add(Turn(f"{text} {question.user}", question.assistant))
            else:
                talk.add(Turn(rng.choice(REMEMBER) + text, rng.choice(NOTED)))
        elif own and rng.random() < 0.15:
            talk.add(introduction(rng, facts))
        elif talk.budget > 1500 and rng.random() < 0.03:
            talk.add(reading(rng, rng.choice(READ_THIS), rng.randrange(4, 25)))
        elif rng.random() < chat_share:
            talk.add(anything(rng))
        elif rng.random() < 0.12:
            talk.add(facts.ask_absent())
        else:
            talk.add(facts.ask())


def telling_stories(rng, talk):
    hero, animal, text, questions = memory.story(rng)
    rng.shuffle(questions)
    a = w.with_article(animal)
    kind = rng.random()
    if kind < 0.35:
        ask = phrases(f"Tell me a story about {hero}. | Tell me a story about {hero} and {a}. | "
                      f"A story about {hero}, please. | Write a story about {hero}. | Tell me a story about {a}. | "
                      f"Can you tell me a story about {hero}? | Write a short story about {hero} and {a}.")
        talk.add(Turn(rng.choice(ask), text))
    elif kind < 0.6:
        talk.add(Turn(rng.choice(STORY_REQUESTS), text))
    else:
        question = questions.pop()
        talk.add(Turn(f"{text} {question.user}", question.assistant))
    for question in questions[:rng.randrange(0, 4)]:
        talk.add(question)


def anything(rng):
    """One turn of a conversation about nothing in particular."""
    roll = rng.random()
    if roll < 0.15:
        return chatter.small_talk(rng)
    if roll < 0.34:
        return chatter.out_of_domain(rng)
    if roll < 0.45:
        return skills.copy_text(rng, memory.filler)
    return skills.any_skill(rng)


def chatting(rng, talk):
    own = memory.Memory(rng)
    while not talk.full:
        roll = rng.random()
        if roll < 0.07:
            talk.add(introduction(rng, own))
        elif roll < 0.15:
            talk.add(own.ask() if own.told and rng.random() < 0.7 else own.ask_absent())
        elif roll < 0.23:
            telling_stories(rng, talk)
        else:
            talk.add(anything(rng))


def conversation(rng, budget, memory_share=0.6, hard=0.0):
    """One conversation of about `budget` characters as ChatML text."""
    talk, system = Conversation(rng, budget), ""
    if rng.random() < 0.15:
        system = rng.choice(SYSTEM_PROMPTS)
    if rng.random() < memory_share:
        remembering(rng, talk, hard)
    else:
        chatting(rng, talk)
    return render(talk.turns, system, think=rng.random() < 0.3)


def render(turns, system="", think=False):
    """ChatML. `think`: the last answer follows an empty think block, as in Qwen3's prompt with thinking off."""
    text = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    for index, (user, assistant) in enumerate(turns):
        lead = EMPTY_THINK if think and index == len(turns) - 1 else ""
        text += f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{lead}{assistant}<|im_end|>\n"
    return text


def prompt(turns, system="", think=False):
    """ChatML up to where the last answer, which is empty in `turns`, begins."""
    return render(turns, system, think).rsplit("<|im_end|>\n", 1)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=4, help="conversations to print")
    parser.add_argument("--budget", type=int, default=1500, help="characters per conversation")
    parser.add_argument("--memory-share", type=float, default=0.6, help="share of conversations about remembered facts")
    parser.add_argument("--hard", type=float, default=0.35, help="share of keys that resemble an earlier one")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for _ in range(args.count):
        print(conversation(rng, args.budget, args.memory_share, args.hard), end="<|endoftext|>\n\n")


if __name__ == "__main__":
    main()
