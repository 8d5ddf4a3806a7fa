"""Tools made up from a seed, questions that call for them, and the check of a call against its tool."""
import json
import random

VERBS = ["book", "cancel", "create", "delete", "find", "list", "move", "order", "print", "report", "schedule", "send", "share", "update"]
NOUNS = ["appointment", "backup", "budget", "contract", "delivery", "flight", "invoice", "meeting", "parcel", "report", "room", "table", "ticket", "trip"]
CITIES = ["Oslo", "Lisbon", "Graz", "Turku", "Leeds", "Porto", "Basel", "Gdansk"]
NAMES = ["Amara", "Bruno", "Chen", "Dilek", "Edda", "Farid", "Greta", "Hugo"]
WORDS = ["amber", "copper", "harbour", "lantern", "meadow", "orchid", "raven", "willow"]
STRING, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

# name: (schema, value of a random generator, description)
FIELDS = {
    "city": (STRING, lambda r: r.choice(CITIES), "city in which it is"),
    "title": (STRING, lambda r: " ".join(r.sample(WORDS, 2)), "its title"),
    "contact": (STRING, lambda r: f"{r.choice(NAMES).lower()}@{r.choice(WORDS)}.example", "e-mail address of the person in charge"),
    "reference": (STRING, lambda r: f"{r.choice('ABCDEF')}{r.randrange(10000, 99999)}-{r.randrange(10, 99)}", "reference number"),
    "date": (STRING, lambda r: f"2027-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}", "date as YYYY-MM-DD"),
    "count": (INTEGER, lambda r: r.randrange(2, 400), "how many"),
    "amount": ({"type": "number"}, lambda r: r.randrange(100, 99999) / 4, "amount in euros"),
    "urgent": (BOOLEAN, lambda r: r.random() < 0.5, "whether it is urgent"),
    "priority": ({"type": "string", "enum": ["low", "normal", "high", "critical"]}, None, "its priority"),
    "format": ({"type": "string", "enum": ["pdf", "csv", "html", "plain_text"]}, None, "format of the result"),
    "language": ({"type": "string", "enum": ["en", "de", "fr", "pt", "ja"]}, None, "language, as a code"),
    "tags": ({"type": "array", "items": STRING}, lambda r: r.sample(WORDS, r.randrange(1, 4)), "tags"),
    "people": ({"type": "array", "items": STRING}, lambda r: r.sample(NAMES, r.randrange(2, 4)), "names of those who take part"),
    "address": ({"type": "object", "properties": {"street": STRING, "number": INTEGER, "city": STRING},
                 "required": ["street", "number", "city"]},
                lambda r: {"street": f"{r.choice(WORDS).title()} Lane", "number": r.randrange(1, 300), "city": r.choice(CITIES)},
                "postal address"),
    "period": ({"type": "object", "properties": {"start": STRING, "end": STRING}, "required": ["start", "end"]},
               lambda r: {"start": f"{r.randrange(8, 12):02}:15", "end": f"{r.randrange(13, 19):02}:45"}, "from when to when, as HH:MM"),
    "items": ({"type": "array", "items": {"type": "object", "properties": {"name": STRING, "quantity": INTEGER},
                                          "required": ["name", "quantity"]}},
              lambda r: [{"name": word, "quantity": r.randrange(1, 60)} for word in r.sample(WORDS, 2)], "what it has, and how many of each"),
}


def spoken(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " and ".join(spoken(element) for element in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {spoken(element)}" for name, element in value.items())
    return str(value)


def make_questions(count, seed):
    """A list of (tool, question, arguments that are asked for): `count` tools of different names, as OpenAI's API has them."""
    rng, questions = random.Random(seed), []
    for verb, noun in rng.sample([(verb, noun) for verb in VERBS for noun in NOUNS], count):
        names = rng.sample(list(FIELDS), rng.randrange(2, 6))
        values = {name: FIELDS[name][1](rng) if FIELDS[name][1] else rng.choice(FIELDS[name][0]["enum"]) for name in names}
        properties = {name: {**FIELDS[name][0], "description": FIELDS[name][2]} for name in names}
        parameters = {"type": "object", "properties": properties, "required": sorted(names[:-1])}
        tool = {"type": "function", "function": {"name": f"{verb}_{noun}", "description": f"{verb.capitalize()}s a {noun}.",
                                                 "parameters": parameters}}
        article = "an" if noun[0] in "aeiou" else "a"
        question = f"Please {verb} {article} {noun}. " + " ".join(f"The {name}: {spoken(value)}." for name, value in values.items())
        questions.append((tool, question, values))
    return questions


def fits(value, schema):
    """Whether a value is one of the schema, of those that FIELDS has: with no property besides the schema's."""
    kind = schema["type"]
    if kind == "object":
        known = schema["properties"]
        return (isinstance(value, dict) and set(schema["required"]) <= set(value) <= set(known) and
                all(fits(element, known[name]) for name, element in value.items()))
    if kind == "array":
        return isinstance(value, list) and all(fits(element, schema["items"]) for element in value)
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "string":
        return isinstance(value, str) and value in schema.get("enum", [value])
    return isinstance(value, int) or (kind == "number" and isinstance(value, float))


def judge(answer, tool, arguments):
    """(valid, as_asked) of a message: whether it is one call of `tool` whose arguments are JSON of its schema, and those asked for."""
    calls = [call["function"] for call in answer.get("tool_calls") or []]
    if [call["name"] for call in calls] != [tool["function"]["name"]]:
        return False, False
    try:
        given = json.loads(calls[0]["arguments"])
    except ValueError:
        return False, False
    return fits(given, tool["function"]["parameters"]), given == arguments
