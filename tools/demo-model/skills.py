"""The demo model's skills besides remembering: one function per skill, each making one question and its answer."""
from typing import NamedTuple

import words as w
from words import phrases


class Turn(NamedTuple):
    """One exchange. `verbatim`: the wording of the question carries its answer and must not be made casual."""
    user: str
    assistant: str
    verbatim: bool = False


def count_up(rng):
    start, steps = rng.randrange(0, 60), rng.randrange(3, 13)
    if rng.random() < 0.4:
        start = 1
    end = start + steps
    ask = phrases(f"Count from {start} to {end}. | Count up from {start} to {end}. | Can you count from {start} to {end}?")
    if start == 1:
        ask += phrases(f"Count to {end}. | Can you count to {end}?")
    return Turn(rng.choice(ask), ", ".join(map(str, range(start, end + 1))) + ".")


def count_down(rng):
    start = rng.randrange(3, 40)
    end = max(0, start - rng.randrange(3, 13))
    ask = phrases(f"Count down from {start} to {end}. | Count backwards from {start} to {end}. | "
                  f"Count from {start} down to {end}.")
    return Turn(rng.choice(ask), ", ".join(str(n) for n in range(start, end - 1, -1)) + ".")


def count_steps(rng):
    step = rng.choice((2, 5, 10))
    start = step * rng.randrange(0, 4)
    end = start + step * rng.randrange(3, 9)
    return Turn(f"Count by {w.NUMBER_WORDS[step]}s from {start} to {end}.",
                ", ".join(map(str, range(start, end + 1, step))) + ".")


def addition(rng):
    top = rng.choice((10, 10, 20, 20, 50))
    a, b = rng.randrange(0, top + 1), rng.randrange(0, top + 1)
    ask = phrases(f"What is {a} plus {b}? | What is {a} + {b}? | How much is {a} + {b}? | Add {a} and {b}. | {a}+{b} | "
                  f"{a} + {b} = ? | {a} plus {b}? | How much is {a} plus {b}?")
    return Turn(rng.choice(ask), f"{a} plus {b} is {a + b}.")


def subtraction(rng):
    top = rng.choice((10, 10, 20, 20, 50))
    a, b = sorted((rng.randrange(0, top + 1), rng.randrange(0, top + 1)), reverse=True)
    ask = phrases(f"What is {a} minus {b}? | What is {a} - {b}? | How much is {a} - {b}? | Take {b} from {a}. | {a}-{b} | "
                  f"{a} - {b} = ? | {a} minus {b}? | How much is {a} minus {b}?")
    return Turn(rng.choice(ask), f"{a} minus {b} is {a - b}.")


def multiplication(rng):
    a, b = rng.randrange(0, 11), rng.randrange(0, 11)
    ask = phrases(f"What is {a} times {b}? | How much is {a} x {b}? | What is {a} x {b}? | {a} times {b}? | {a}*{b} | "
                  f"What is {a} * {b}? | Multiply {a} by {b}.")
    return Turn(rng.choice(ask), f"{a} times {b} is {a * b}.")


def comparison(rng):
    a, b = rng.sample(range(100), 2)
    if rng.random() < 0.6:
        ask = phrases(f"Which is bigger, {a} or {b}? | Which number is bigger, {a} or {b}? | What is more, {a} or {b}?")
        return Turn(rng.choice(ask), f"{max(a, b)} is bigger than {min(a, b)}.")
    ask = phrases(f"Which is smaller, {a} or {b}? | Which number is smaller, {a} or {b}?")
    return Turn(rng.choice(ask), f"{min(a, b)} is smaller than {max(a, b)}.")


def list_of(rng):
    """Items in the order of the word list, from a random start and with skips: no item can repeat."""
    category = rng.choice(list(w.CATEGORIES))
    items, count = w.CATEGORIES[category], rng.randrange(2, 7)
    count = min(count, len(items))
    at, slack, picked = rng.randrange(len(items)), len(items) - count, []
    for _ in range(count):
        picked.append(items[at % len(items)])
        skip = min(slack, rng.choice((0, 0, 0, 1)))
        slack -= skip
        at += 1 + skip
    number = w.NUMBER_WORDS[count] if rng.random() < 0.75 else str(count)
    ask = phrases(f"Name {number} {category}. | List {number} {category}. | Tell me {number} {category}. | "
                  f"Give me {number} {category}. | Can you name {number} {category}? | Make a list of {number} {category}.")
    if count == 3:
        ask += phrases(f"Name some {category}. | Tell me some {category}.")
    return Turn(rng.choice(ask), w.upper_first(w.join_items(picked)) + ".")


def is_a(rng):
    category, other = rng.sample(["animal", "fruit", "tool", "color", "vegetable", "vehicle"], 2)
    thing = rng.choice([t for t in w.CATEGORIES[category + "s"] if t not in w.CATEGORIES[other + "s"]])
    subject = thing if category == "color" else w.with_article(thing)
    if rng.random() < 0.4:
        ask = phrases(f"What is {subject}? | Tell me what {subject} is.")
        return Turn(rng.choice(ask), f"{w.upper_first(subject)} is {w.with_article(category)}.")
    if rng.random() < 0.5:
        return Turn(f"Is {subject} {w.with_article(category)}?", f"Yes, {subject} is {w.with_article(category)}.")
    return Turn(f"Is {subject} {w.with_article(other)}?", f"No, {subject} is {w.with_article(category)}.")


def copy_text(rng, sentence):
    """`sentence`: a function that makes an ordinary sentence."""
    kind = rng.random()
    if kind < 0.35:
        text = sentence(rng)
    else:
        pool = (w.ADJECTIVES + w.OBJECTS + w.COLORS + w.ANIMALS + w.FOODS + w.TOOLS + w.PLACES + w.NAMES
                + ["the", "a", "and", "is", "likes", "has", "with", "near"] * 4)
        parts = rng.sample(pool, rng.randrange(1, 10))
        if kind > 0.75:
            parts = [w.pseudo_word(rng) if rng.random() < 0.5 else p for p in parts]
        if rng.random() < 0.2:
            parts.insert(rng.randrange(len(parts) + 1), str(rng.randrange(10, 10000)))
        text = " ".join(parts) + rng.choice((".", ".", "", "!"))
    if rng.random() < 0.3:
        text = text[0].lower() + text[1:]
    lead = phrases("Repeat after me: | Repeat: | Say this: | Say: | repeat after me: | Please repeat: | Copy this: | repeat")
    return Turn(f"{rng.choice(lead)} {text}", text, verbatim=True)


def opposite(rng):
    a, b = rng.sample(rng.choice(w.OPPOSITES), 2)
    ask = phrases(f"What is the opposite of {a}? | Tell me the opposite of {a}. | Opposite of {a}?")
    return Turn(rng.choice(ask), f"The opposite of {a} is {b}.")


def sound(rng):
    animal = rng.choice(list(w.SOUNDS))
    a = w.with_article(animal)
    ask = phrases(f"What sound does {a} make? | What does {a} say?")
    return Turn(rng.choice(ask), f"{w.upper_first(a)} says {w.SOUNDS[animal]}.")


def capital(rng):
    country, city = rng.choice(list(w.CAPITALS.items()))
    ask = phrases(f"What is the capital of {country}? | Which city is the capital of {country}? | "
                  f"Tell me the capital of {country}. | Capital of {country}?")
    if rng.random() < 0.2:
        return Turn(f"{city} is the capital of which country?", f"{city} is the capital of {country}.")
    return Turn(rng.choice(ask), f"The capital of {country} is {city}.")


def calendar(rng):
    kind, cycle = rng.choice([("day", w.DAYS)] * 2 + [("month", w.MONTHS)] * 2 + [("letter", w.LETTERS)])
    at = rng.randrange(1, len(cycle) - 1) if kind == "letter" else rng.randrange(len(cycle))
    here, after, before = cycle[at], cycle[(at + 1) % len(cycle)], cycle[at - 1]
    if rng.random() < 0.6:
        ask = phrases(f"What comes after {here}? | Which {kind} comes after {here}? | What {kind} is after {here}?")
        return Turn(rng.choice(ask), f"{after} comes after {here}.", verbatim=kind == "letter")
    ask = phrases(f"What comes before {here}? | Which {kind} comes before {here}?")
    return Turn(rng.choice(ask), f"{before} comes before {here}.", verbatim=kind == "letter")


def fact(rng):
    kind = rng.random()
    if kind < 0.35:
        thing, color = rng.choice(list(w.THING_COLORS.items()))
        return Turn(rng.choice((f"What color is {thing}?", f"Which color is {thing}?", f"Tell me the color of {thing}.")),
                    f"{w.upper_first(thing)} is {color}.")
    if kind < 0.55:
        animal, legs = rng.choice(list(w.LEGS.items()))
        a = w.with_article(animal)
        return Turn(f"How many legs does {a} have?", f"{w.upper_first(a)} has {legs} legs.")
    return Turn(*rng.choice(w.FACTS))


SKILLS = {
    "counting up": count_up, "counting down": count_down, "counting in steps": count_steps, "sums": addition,
    "differences": subtraction, "products": multiplication, "comparing": comparison, "lists": list_of, "kinds of things": is_a,
    "opposites": opposite, "sounds": sound, "capitals": capital, "calendar": calendar, "everyday facts": fact,
}
WEIGHTS = {"sums": 8, "differences": 8, "lists": 4, "counting up": 1, "counting down": 1, "counting in steps": 0.7,
           "products": 2, "capitals": 1.2, "everyday facts": 1.5}  # others: 0.8


def any_skill(rng):
    names = list(SKILLS)
    name = rng.choices(names, [WEIGHTS.get(n, 0.8) for n in names])[0]
    return SKILLS[name](rng)
