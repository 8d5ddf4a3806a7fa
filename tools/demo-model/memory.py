"""Facts that a user tells and asks back later, the filler sentences between them, and little stories."""
from typing import NamedTuple

import words as w
from skills import Turn
from words import phrases


def _code_key(rng):
    return f"{rng.choice(w.ADJECTIVES)} {rng.choice(w.OBJECTS)}" if rng.random() < 0.93 else rng.choice(w.OBJECTS)


def _digits(rng):
    count = rng.choices((4, 3, 2, 5, 6), (14, 2, 2, 1, 1))[0]
    return str(rng.randrange(10 ** (count - 1), 10 ** count))


def _secret_word(rng):
    return rng.choice(w.FRUITS + w.ANIMALS + w.TOOLS + w.INSTRUMENTS) if rng.random() < 0.7 else w.pseudo_word(rng)


def _one_of(items):
    return lambda rng: rng.choice(items)


def _from(low, high):
    return lambda rng: str(rng.randrange(low, high))


def _no_key(rng):
    return ""


class Kind(NamedTuple):
    """Sentences that tell, ask and answer one sort of fact; {k} is its key, {v} its value, {av} the value with an article."""
    key: object
    value: object
    tell: list
    ask: list
    answer: str
    unknown: str
    noted: str = ""


KINDS = {
    "code": Kind(
        _code_key, _digits,
        phrases("The code of the {k} is {v}. *6 | The {k} has the code {v}. | The code for the {k} is {v}. | "
                "Remember that the code of the {k} is {v}."),
        phrases("What is the code of the {k}? *5 | Tell me the code of the {k}. | Which code does the {k} have? | "
                "What code does the {k} have? | What was the code of the {k}? | Can you tell me the code of the {k}? | "
                "What is the code for the {k}?"),
        "The code of the {k} is {v}.", "I do not know the code of the {k}."),
    "lives": Kind(
        w.person, _one_of(w.PLACES),
        phrases("{k} lives near the {v}. *3 | {k} has a house near the {v}."),
        phrases("Where does {k} live? *2 | Tell me where {k} lives. | Do you know where {k} lives?"),
        "{k} lives near the {v}.", "I do not know where {k} lives."),
    "works": Kind(
        w.person, _one_of(w.JOBS),
        phrases("{k} works as {av}. *2 | {k} is {av}."),
        phrases("What is the job of {k}? | What does {k} do? | What job does {k} have?"),
        "{k} works as {av}.", "I do not know the job of {k}."),
    "color": Kind(
        w.person, _one_of(w.COLORS),
        phrases("The favorite color of {k} is {v}."),
        phrases("What is the favorite color of {k}? | Which color does {k} like best?"),
        "The favorite color of {k} is {v}.", "I do not know the favorite color of {k}."),
    "food": Kind(
        w.person, _one_of(w.FOODS),
        phrases("The favorite food of {k} is {v}."),
        phrases("What is the favorite food of {k}? | What does {k} like to eat?"),
        "The favorite food of {k} is {v}.", "I do not know the favorite food of {k}."),
    "pet": Kind(
        w.person, _one_of(w.ANIMALS),
        phrases("{k} has a pet {v}."),
        phrases("What pet does {k} have? | Which pet does {k} have?"),
        "{k} has a pet {v}.", "I do not know what pet {k} has."),
    "age": Kind(
        w.person, _from(4, 100),
        phrases("{k} is {v} years old."),
        phrases("How old is {k}?"),
        "{k} is {v} years old.", "I do not know how old {k} is."),
    "birthday": Kind(
        w.person, _one_of(w.MONTHS),
        phrases("The birthday of {k} is in {v}."),
        phrases("When is the birthday of {k}?"),
        "The birthday of {k} is in {v}.", "I do not know the birthday of {k}."),
    "where": Kind(
        _one_of(w.OBJECTS), _one_of(w.PLACES),
        phrases("The {k} is at the {v}. | We left the {k} at the {v}."),
        phrases("Where is the {k}?"),
        "The {k} is at the {v}.", "I do not know where the {k} is."),
}
OWN_KINDS = {  # about the user
    "name": Kind(
        _no_key, w.person,
        phrases("My name is {v}. *3 | I am {v}. | Hello, my name is {v}. | Hi, I am {v}. | Call me {v}. | I am called {v}. | "
                "Hello! I am {v}."),
        phrases("What is my name? *2 | Do you know my name? | Who am I? | Do you remember my name? | What am I called?"),
        "Your name is {v}.", "I do not know your name yet.", "Nice to meet you, {v}!"),
    "lives": Kind(
        _no_key, _one_of(w.PLACES),
        phrases("I live near the {v}. | My house is near the {v}."),
        phrases("Where do I live? | Where is my house? | Do you know where I live?"),
        "You live near the {v}.", "I do not know where you live.", "Okay, you live near the {v}."),
    "color": Kind(
        _no_key, _one_of(w.COLORS),
        phrases("My favorite color is {v}. | I like {v} best of all colors."),
        phrases("What is my favorite color? | Which color do I like best?"),
        "Your favorite color is {v}.", "I do not know your favorite color.", "Okay, your favorite color is {v}."),
    "food": Kind(
        _no_key, _one_of(w.FOODS),
        phrases("My favorite food is {v}. | I like to eat {v}."),
        phrases("What is my favorite food? | What do I like to eat?"),
        "Your favorite food is {v}.", "I do not know your favorite food.", "Okay, your favorite food is {v}."),
    "works": Kind(
        _no_key, _one_of(w.JOBS),
        phrases("I am {av}. | I work as {av}. | My job is {v}."),
        phrases("What is my job? | What do I do? | What do I work as?"),
        "You work as {av}.", "I do not know your job.", "Okay, you work as {av}."),
    "age": Kind(
        _no_key, _from(5, 95),
        phrases("I am {v} years old. | My age is {v}."),
        phrases("How old am I? | What is my age?"),
        "You are {v} years old.", "I do not know how old you are.", "Okay, you are {v} years old."),
    "birthday": Kind(
        _no_key, _one_of(w.MONTHS),
        phrases("My birthday is in {v}."),
        phrases("When is my birthday? | In which month is my birthday?"),
        "Your birthday is in {v}.", "I do not know your birthday.", "Okay, your birthday is in {v}."),
    "called": Kind(
        _one_of(w.PETS + w.FAMILY), w.person,
        phrases("My {k} is called {v}. | My {k} is named {v}. | The name of my {k} is {v}. | I have a {k} called {v}."),
        phrases("What is my {k} called? | What is the name of my {k}? | How is my {k} called? | "
                "Do you remember the name of my {k}?"),
        "Your {k} is called {v}.", "I do not know the name of your {k}.", "Okay, your {k} is called {v}."),
    "number": Kind(
        _one_of(["lucky number", "locker code", "phone number", "room number", "password", "bus number", "secret number"]),
        _digits,
        phrases("My {k} is {v}."),
        phrases("What is my {k}? | Tell me my {k}. | Do you remember my {k}?"),
        "Your {k} is {v}.", "I do not know your {k}.", "Okay, your {k} is {v}."),
    "word": Kind(
        _no_key, _secret_word,
        phrases("The secret word is {v}. | The magic word is {v}."),
        phrases("What is the secret word? | What is the magic word? | Tell me the secret word."),
        "The secret word is {v}.", "I do not know the secret word.", "Okay, the secret word is {v}."),
}


def filler(rng):
    """A sentence that tells nothing worth remembering."""
    r = rng.choice
    name, place, animal = w.person(rng), r(w.PLACES), r(w.ANIMALS)
    return r((
        lambda: f"The {r(w.JOBS)} walked to the {place}.",
        lambda: f"{name} saw {w.with_article(r(w.COLORS))} {animal} near the {place}.",
        lambda: f"It was a {r('sunny rainy windy cold warm quiet'.split())} day at the {place}.",
        lambda: f"{name} and {r(w.NAMES)} ate {r(w.FOODS)} at the {place}.",
        lambda: f"A {r('small big happy sad hungry sleepy'.split())} {animal} slept under the {r(w.FURNITURE)}.",
        lambda: f"The {r(w.JOBS)} bought {w.with_article(r(w.TOOLS))} and some {r(w.FOODS)}.",
        lambda: f"Then {name} went home and read a book.",
        lambda: f"The {animal} ran from the {place} to the {r(w.PLACES)}.",
        lambda: f"{name} thinks that {r(w.FOODS)} is better than {r(w.FOODS)}.",
        lambda: f"On {r(w.DAYS)} the {place} was {r('open closed full empty loud quiet'.split())}.",
        lambda: f"In {r(w.MONTHS)} there are many {r('people birds flowers boats children'.split())} at the {place}.",
        lambda: f"{name} put the {r(w.TOOLS)} next to the {r(w.OBJECTS)}.",
        lambda: f"Nobody knows why the {r(w.OBJECTS)} is so {r('old big small heavy bright'.split())}.",
        lambda: f"After {r(w.NUMBER_WORDS[2:])} days the {r(w.JOBS)} came back from the {place}.",
        lambda: f"They talked about {r(w.TOPICS)} for a long time.",
        lambda: (f"{w.upper_first(w.pseudo_word(rng))} is a {r('small big old quiet'.split())} "
                 f"{r('town river hill street'.split())}."),
    ))()


class Memory:
    """The facts of one conversation. `hard`: the share of codes whose key or value resembles an earlier one."""

    def __init__(self, rng, hard=0.0):
        self.rng, self.hard, self.told = rng, hard, {}

    def tell(self, code_share=0.6):
        """A new fact, as a sentence; or a filler if the fact picked is already told."""
        if self.rng.random() < code_share:
            return self._tell_code()
        name = self.rng.choice([n for n in KINDS if n != "code"])
        return self._tell(name, KINDS[name], KINDS[name].key(self.rng)) or filler(self.rng)

    def tell_own(self):
        """A fact about the user as a turn, or None."""
        name = self.rng.choice(["name", "name", "called", "number"] + list(OWN_KINDS))
        kind = OWN_KINDS[name]
        key = kind.key(self.rng)
        text = self._tell("own " + name, kind, key)
        if text is None:
            return None
        value = self.told["own " + name, key]
        noted = kind.noted if self.rng.random() < 0.8 or name == "name" else "Okay, I will remember that."
        return Turn(text, fill(noted, key, value))

    def ask(self):
        """A question about something told before."""
        groups = {}
        for name, key in self.told:
            group = "code" if name == "code" else "own" if name.startswith("own") else "other"
            groups.setdefault(group, []).append((name, key))
        group = self.rng.choices(list(groups), [2 if g == "code" else 1 for g in groups])[0]
        name, key = self.rng.choice(groups[group])
        kind = kind_of(name)
        return Turn(fill(self.rng.choice(kind.ask), key, ""), fill(kind.answer, key, self.told[name, key]))

    def ask_absent(self):
        """A question about something never told."""
        while True:
            roll = self.rng.random()
            if roll < 0.3:
                name = "code"
            else:
                name = self.rng.choice(list(KINDS)) if roll < 0.65 else "own " + self.rng.choice(list(OWN_KINDS))
            kind = kind_of(name)
            key = self._near_code_key() if name == "code" else kind.key(self.rng)
            if (name, key) not in self.told:
                return Turn(fill(self.rng.choice(kind.ask), key, ""), fill(kind.unknown, key, ""))

    def _tell(self, name, kind, key):
        if (name, key) in self.told:
            return None
        value = self.told[name, key] = kind.value(self.rng)
        return fill(self.rng.choice(kind.tell), key, value)

    def _codes(self):
        return [(key, value) for (name, key), value in self.told.items() if name == "code"]

    def _near_code_key(self):
        """A key that, with probability `hard`, shares a word with an earlier key."""
        key, codes = _code_key(self.rng), self._codes()
        if codes and self.rng.random() < self.hard:
            other, mine = self.rng.choice(codes)[0].split(), key.split()
            if len(other) == len(mine) == 2:
                key = f"{mine[0]} {other[1]}" if self.rng.random() < 0.65 else f"{other[0]} {mine[1]}"
        return key

    def _tell_code(self):
        codes = self._codes()
        for _ in range(50):
            key = self._near_code_key()
            if ("code", key) not in self.told:
                break
        value = _digits(self.rng)
        if codes and self.rng.random() < 0.4 * self.hard:
            other = self.rng.choice(codes)[1]
            same = self.rng.randrange(1, 4)
            if len(value) > same and len(other) > same:
                value = other[:same] + value[same:]
        self.told["code", key] = value
        return fill(self.rng.choice(KINDS["code"].tell), key, value)


def kind_of(name):
    return OWN_KINDS[name[4:]] if name.startswith("own ") else KINDS[name]


def fill(template, key, value):
    text = template.format(k=key, v=value, av=w.with_article(value) if value else "")
    return text if template.startswith("{k}") else w.upper_first(text)


def story(rng):
    """(hero, animal, text, questions about it)."""
    r = rng.choice
    hero, friend = rng.sample(w.NAMES, 2)
    place, thing, animal, job, food = r(w.PLACES), f"{r(w.ADJECTIVES)} {r(w.OBJECTS)}", r(w.ANIMALS), r(w.JOBS), r(w.FOODS)
    opening = r(phrases(f"Once upon a time there was {w.with_article(job)} named {hero}. | "
                        f"There once was {w.with_article(job)} called {hero}."))
    walk = r(phrases(f"One day {hero} went to the {place}. | "
                     f"On a {r('sunny rainy cold windy'.split())} morning {hero} went to the {place}."))
    found = r(phrases(f"There {hero} found {w.with_article(thing)}. | "
                      f"Under {w.with_article(r(w.FURNITURE))} {hero} found {w.with_article(thing)}."))
    meet = r(phrases(f"{w.upper_first(w.with_article(animal))} was sitting next to it. | "
                     f"Next to it sat {w.with_article(animal)}."))
    feed = r(phrases(f"{hero} gave the {animal} some {food}. | The {animal} was hungry, so {hero} gave it some {food}."))
    come = f"Then {friend} came and asked about the {thing}."
    end = r(phrases(f"{hero} gave it to {friend}, and they went home together. | "
                    f"{hero} gave it to {friend}, and the {animal} was happy. | They all became good friends."))
    questions = [
        Turn(f"Who found the {thing}?", f"{hero} found the {thing}."),
        Turn(f"Where did {hero} go?", f"{hero} went to the {place}."),
        Turn(f"What did {hero} find?", f"{hero} found {w.with_article(thing)}."),
        Turn(f"What did the {animal} eat?", f"The {animal} ate some {food}."),
        Turn(f"Who came to ask about the {thing}?", f"{friend} came to ask about the {thing}."),
        Turn(f"What was the job of {hero}?", f"{hero} was {w.with_article(job)}."),
        Turn(r(("Which animal was there?", "What animal was in the story?")), f"There was {w.with_article(animal)}."),
    ]
    return hero, animal, " ".join((opening, walk, found, meet, feed, come, end)), questions
