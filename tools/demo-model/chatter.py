"""Small talk, and honest answers to questions that this model cannot answer."""
import words as w
from skills import Turn
from words import phrases

SMALL_TALK = [  # users' sentences, and the fitting answers
    (phrases("Hello! | Hi! | Hello there. | Good morning! | Hey! | Good evening. | Hi there! | Hello | "
             "Hey, how is it going? | Yo!"),
     phrases("Hello! How can I help you? | Hi! What would you like to do? | Hello! It is nice to meet you. | "
             "Hello! Ask me a question, or tell me some facts.")),
    (phrases("How are you? | How are you today? | How do you feel? | How are you doing? | Are you okay?"),
     phrases("I am fine, thank you. How are you? | I am well, thank you for asking.")),
    (phrases("I am fine. | I am well too. | I feel good today. | I am happy. | I had a good day. | Good, thanks."),
     phrases("That is good to hear. | I am glad to hear that.")),
    (phrases("I am sad. | I had a bad day. | I feel tired. | I am not well. | I am bored. | I am lonely."),
     phrases("I am sorry to hear that. Would you like a little story? | "
             "I am sorry to hear that. I hope tomorrow is better.")),
    (phrases("Who are you? | What are you? | What is your name? | Tell me about yourself. | Introduce yourself. | "
             "What kind of model are you?"),
     phrases("I am a tiny demo model with a few million parameters. | "
             "I am a tiny demo model. I was trained on made-up sentences.")),
    (phrases("What can you do? | Can you help me? | Help me, please. | What do you know? | How can you help me? | Help | "
             "What can I ask you?"),
     phrases("I can remember facts, tell little stories, count, make lists and do small sums. | "
             "I can count, do small sums, tell stories and remember what you tell me.")),
    (phrases("Thank you! | Thanks. | Thank you very much. | Thanks a lot! | Great, thank you. | Perfect. | Well done! | "
             "Good job!"),
     phrases("You are welcome! | You are welcome. Is there anything else?")),
    (phrases("Goodbye! | Bye. | See you later. | Good night. | Bye bye! | I have to go."),
     phrases("Goodbye! Have a nice day. | Goodbye! See you soon.")),
    (phrases("Are you a person? | Are you alive? | Are you a robot? | Are you human? | Are you real? | Are you an AI?"),
     phrases("No, I am only a tiny language model. | I am a small computer program, not a person.")),
    (phrases("Who made you? | Where do you come from? | Who trained you? | How were you made? | Are you ChatGPT? | "
             "Are you Qwen?"),
     phrases("A short training program made me on a small computer. | "
             "I was trained by a short program on a small computer.")),
    (phrases("Tell me a joke. | Do you know a joke? | Make me laugh. | Say something funny."),
     phrases("Why did the clock go to school? It wanted to learn to tell the time. | "
             "Why was the ladder happy? It was moving up in life.")),
    (phrases("Do you like music? | Do you like stories? | Do you like numbers? | Do you like animals? | Do you like me?"),
     phrases("Yes, I like it very much. | I think so. I am only a small model, but it sounds nice.")),
    (phrases("What is the weather like? | Is it raining? | How is the weather today? | Is it cold outside?"),
     phrases("I can not see the weather, but I hope it is sunny. | I do not know. I can not look outside.")),
    (phrases("What time is it? | What day is it today? | What is the date?"),
     phrases("I do not know. I have no clock. | I can not see a clock, so I do not know.")),
    (phrases("Yes. | Okay. | Ok | Yes, please. | Sure. | No. | No, thank you. | I see. | Cool. | Nice."),
     phrases("Okay. What would you like to do? | Okay. Ask me something.")),
    (phrases("How big are you? | How many parameters do you have?"),
     phrases("I have about four million parameters. That is very small.")),
    (phrases("How old are you?"),
     phrases("I am only a program. I have no age.")),
    (phrases("Sorry. | Oh no! | That is wrong. | That is not right. | You are wrong."),
     phrases("I am sorry. I am only a tiny model, and I make mistakes.")),
]


def small_talk(rng):
    said, answers = rng.choice(SMALL_TALK)
    return Turn(rng.choice(said), rng.choice(answers))


DO_NOT_KNOW = [
    "I do not know that. I only know small things, such as sums, lists and facts you tell me.",
    "Sorry, I do not know that. I am a tiny model: I can count, tell little stories and remember facts.",
    "I do not know. I only know a few simple things and what you tell me.",
]
CAN_NOT_DO = [
    "I can not do that. I can tell a little story, count, make a list or remember facts.",
    "Sorry, that is too hard for me. I can only count, do small sums, tell stories and remember facts.",
]
HEARD = ["I see. Thank you for telling me.", "Okay, thank you for telling me."]

TOPIC_QUESTIONS = phrases("""
    What is {topic}? | Explain {topic}. | Tell me about {topic}. | What do you think about {topic}? | How does {topic} work? |
    Why is {topic} important? | Can you explain {topic} to me? | Do you know anything about {topic}? |
    What do you know about {topic}? | Who invented {topic}? | When did {topic} start? | What is the meaning of {topic}? |
    What is the difference between {topic} and {other}? | Explain {topic} in simple words. | Give me some facts about {topic}. |
    Is {topic} good or bad? | How do I learn {topic}? | What is the history of {topic}? | Should I worry about {topic}? |
    Where can I read about {topic}?""")
PERSON_AND_WORK_QUESTIONS = phrases("""
    Who is {person}? | Who was {person}? | When was {person} born? | When did {person} die? | What did {person} do? |
    How old is {person}? | Who wrote {work}? | Who made {work}? | Who invented {work}? | When was {work} made? |
    Have you read {work}? | Tell me about {person}. | What is {work} about? | Is {person} still alive? |
    What happened in {year}? | Who won the world cup in {year}? | Who was the president in {year}? | Where was {person} born? |
    Who is the father of {person}? | Why is {person} famous? | Who painted {work}? | Who discovered {work}?""")
MEASURE_QUESTIONS = phrases("""
    How tall is {thing}? | How big is {thing}? | How heavy is {thing}? | How old is {thing}? | How far is {thing}? |
    How fast is {thing}? | How much does {thing} cost? | What is the population of {land}? | How many people live in {land}? |
    Who is the president of {land}? | Who is the king of {land}? | What language do they speak in {land}? | Where is {land}? |
    Where is {thing}? | What is the currency of {land}? | How big is {land}? | Which is bigger, {thing} or {other}? |
    What is the largest city in {land}? | How far is it from {land} to {away}? | What is the weather in {land}? |
    Should I travel to {land}? | What do people eat in {land}? | How long does it take to get to {land}?""")
REQUESTS = phrases("""
    Write a poem about {topic}. | Write a poem about the {thing}. | Write a song about {topic}. | Write an essay about {topic}. |
    Translate {thing} to {language}. | How do you say {thing} in {language}? | Say {thing} in {language}. |
    Do you speak {language}? | Write a program in {code}. | Write code that sorts a list. |
    Write a function that finds a {thing}. | Draw a {thing}. | Show me a picture of a {thing}. | Write a letter to my {family}. |
    Summarize {work}. | Give me a recipe for {food}. | How do I make {dish}? | How do I fix my {thing}? |
    How do I build a {thing}? | How can I sell my {thing}? | Play some music. | Open the {thing}. | Call my {relative}. |
    Send an email to {name}. | Search for {topic}. | Prove that {topic} is true. | Solve this equation: x + {small} = {sum}. |
    What is the square root of {square}? | What is {a} times {b}? | Buy me a {thing}. | Translate this to {language}. |
    Write a haiku. | Write me a long story about {topic}. | Make a plan for my {event}. | Which {thing} should I buy? |
    What should I do today? | What should I eat? | Give me advice about {topic}. | Turn on the {thing}.""")
REMARKS = phrases("""
    I like {topic}. | I do not like {topic}. | My {thing} is broken. | I bought a {thing} yesterday. |
    I think {topic} is interesting. | I saw a {thing} today. | Yesterday I went to the {place}. | I want a {thing}. |
    My {family} likes {topic}. | It is raining. | It is late. | I am learning {topic}. | There is a {thing} in my garden. |
    I am going to the {there}. | I lost my {thing}.""")
ODD_QUESTIONS = phrases("""
    Why do {animal}s {verb}? | How do {animal}s {verb}? | Can {animal}s {verb}? | Why does the {thing} {verb}? |
    Why did the {job} {verb}? | Why is the {thing} so {quality}? | What is the {most} {thing} in the world? |
    Which {thing} is the {most}? | What is the {most} {animal}? | Who was the first {job}? | Who is the {most} {job} in {land}? |
    How many {part}s does a {thing} have? | How many {animal}s are there? | How do I {act}? | Is it safe to {act}? |
    Can you {act} for me? | What happens when you {act}? | How long does it take to {act}? | How often should I {act}? |
    Where can I buy a {thing}? | What does {word} mean? | What does {letters} stand for? | What should I give my {family}? |
    Which {food} has the most {stuff}? | What is {stuff} made of? | Where does {stuff} come from? |
    What is the {stuff} of a {thing}? | Convert {number} {unit} to {other}. | Fix my {thing} please. | Order some {food} for me. |
    Recommend a {thing}. | Did you see the {thing}? | When is the next {event}? | How was the {event}?""")
ODD_WORDS = {
    "verb": "sleep fly sing bark swim run hide dance jump cry climb dig float glow laugh bite eat fall".split(),
    "quality": "red big small loud expensive strange slow cold famous dark".split(),
    "most": "best biggest smallest oldest fastest cheapest deepest longest strangest".split(),
    "part": "wheel door leg string page bone window key hair eye wing".split(),
    "act": phrases("cook an egg | clean the kitchen | grow tomatoes | learn to swim | save money | fix a bike | lose weight | "
                   "write a book | find a job | ride a horse | plant a tree | paint a wall | sleep better | read a map | "
                   "open a bank account | rent a house | charge a phone | drink sea water | bake a cake | call a taxi"),
    "stuff": "gold water sugar salt oil plastic energy air sand iron color weight speed price wind light heat".split(),
    "unit": "meters pounds dollars feet hours liters grams euros".split(),
    "event": "train holiday match concert party election meeting war race storm".split(),
}
UNKNOWN_KINDS = ("planets rivers countries songs movies books presidents flowers trees cars cities bands birds "
                 "languages").split()


def _ask(rng, templates, answers, **values):
    return Turn(rng.choice(templates).format(**values), rng.choice(answers))


def unknown_topic(rng):
    topic = rng.choice(w.TOPICS) if rng.random() < 0.8 else w.pseudo_word(rng)
    return _ask(rng, TOPIC_QUESTIONS, DO_NOT_KNOW, topic=topic, other=rng.choice(w.TOPICS))


def unknown_person_or_work(rng):
    return _ask(rng, PERSON_AND_WORK_QUESTIONS, DO_NOT_KNOW, person=rng.choice(w.PEOPLE), work=rng.choice(w.WORKS),
                year=rng.randrange(1000, 2030))


def unknown_measure(rng):
    thing, other = rng.sample(w.UNKNOWN_THINGS, 2)
    return _ask(rng, MEASURE_QUESTIONS, DO_NOT_KNOW, thing=thing, other=other,
                land=rng.choice(w.UNKNOWN_COUNTRIES + list(w.CAPITALS)), away=rng.choice(w.UNKNOWN_COUNTRIES))


def impossible_request(rng):
    return _ask(
        rng, REQUESTS, CAN_NOT_DO, topic=rng.choice(w.TOPICS), thing=rng.choice(w.OBJECTS + w.ANIMALS + w.FOODS + w.PLACES),
        language=rng.choice(w.LANGUAGES), code=rng.choice(("python", "C", "java", "rust")), family=rng.choice(w.FAMILY),
        work=rng.choice(w.WORKS), food=rng.choice(w.FOODS), dish=rng.choice(w.FOODS), relative=rng.choice(w.FAMILY),
        name=rng.choice(w.NAMES), small=rng.randrange(2, 90), sum=rng.randrange(90, 400), square=rng.randrange(2, 999),
        a=rng.randrange(200, 9999), b=rng.randrange(200, 9999),
        event=rng.choice(("holiday", "day", "week", "wedding", "garden")))


def odd_question(rng):
    odd = {name: rng.choice(some) for name, some in ODD_WORDS.items()}
    return _ask(rng, ODD_QUESTIONS, DO_NOT_KNOW, animal=rng.choice(w.ANIMALS + w.UNKNOWN_ANIMALS), job=rng.choice(w.JOBS),
                thing=rng.choice(w.OBJECTS + w.VEHICLES), land=rng.choice(w.UNKNOWN_COUNTRIES), family=rng.choice(w.FAMILY),
                food=rng.choice(w.FOODS + w.FRUITS), number=rng.randrange(2, 900), other=rng.choice(ODD_WORDS["unit"]),
                letters="".join(rng.sample(w.LETTERS, rng.randrange(2, 5))), word=w.pseudo_word(rng), **odd)


def just_outside(rng):
    """Questions in the form of known ones about things that are not in the lists."""
    kind = rng.randrange(6)
    if kind == 0:
        land = rng.choice(w.UNKNOWN_COUNTRIES) if rng.random() < 0.7 else w.pseudo_word(rng).capitalize()
        ask = phrases(f"What is the capital of {land}? | Which city is the capital of {land}? | Capital of {land}?")
        return Turn(rng.choice(ask), f"I do not know the capital of {land}.", verbatim=True)
    if kind == 1:
        animal = w.with_article(rng.choice(w.UNKNOWN_ANIMALS) if rng.random() < 0.7 else w.pseudo_word(rng))
        return Turn(rng.choice((f"What sound does {animal} make?", f"What does {animal} say?")),
                    f"I do not know what {animal} says.")
    if kind == 2:
        word = rng.choice(w.UNKNOWN_WORDS) if rng.random() < 0.6 else w.pseudo_word(rng)
        return Turn(rng.choice((f"What is the opposite of {word}?", f"Tell me the opposite of {word}.")),
                    f"I do not know the opposite of {word}.")
    if kind == 3:
        thing = w.with_article(rng.choice(w.OBJECTS[:20]) if rng.random() < 0.6 else w.pseudo_word(rng))
        return Turn(f"What color is {thing}?", rng.choice(DO_NOT_KNOW))
    if kind == 4:
        thing = w.with_article(w.pseudo_word(rng))
        ask = phrases(f"What is {thing}? | Tell me what {thing} is. | How many legs does {thing} have?")
        return Turn(rng.choice(ask), f"I do not know what {thing} is.")
    return Turn(f"Name {rng.choice(w.NUMBER_WORDS[2:7])} {rng.choice(UNKNOWN_KINDS)}.", rng.choice(CAN_NOT_DO))


def idle_remark(rng):
    return _ask(rng, REMARKS, HEARD, thing=rng.choice(w.OBJECTS + w.ANIMALS), topic=rng.choice(w.TOPICS),
                place=rng.choice(w.PLACES), family=rng.choice(w.FAMILY), there=rng.choice(w.PLACES))


OUTSIDE = {unknown_topic: 2, unknown_person_or_work: 2, unknown_measure: 2, impossible_request: 2.2, odd_question: 4,
           just_outside: 2, idle_remark: 1}


def out_of_domain(rng):
    return rng.choices(list(OUTSIDE), list(OUTSIDE.values()))[0](rng)


def refusal(text):
    """Is `text` one of the honest answers?"""
    return text in DO_NOT_KNOW or text in CAN_NOT_DO or text.startswith("I do not know")
