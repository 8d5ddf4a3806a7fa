"""The word lists from which the corpus is made, and small helpers for phrases, names and articles."""
import re

ADJECTIVES = ("amber green silver old tiny heavy broken golden red blue wooden round quiet bright dusty striped hollow narrow "
              "frozen hidden polished copper velvet rusty black white yellow secret square soft").split()
OBJECTS = ("kettle lamp drum ladder basket clock mirror wagon barrel bottle chair piano rocket statue tower bridge garden "
           "cabinet anchor lantern violin carpet kite helmet door box key safe book boat").split()
NAMES = ("Mira Tom Anna Felix Nora Oscar Lena Hugo Ida Max Clara Ben Ruth Leo Vera Paul Emma Karl Zoe Finn Otto Sara John Mary "
         "Peter Lucy David Sam Alex Maria James Bob Alice Eva Jack Kate Mark Julia Adam Ella Luna Bella Charlie Milo Daisy "
         "Rocky Coco Simba Grace Henry Omar Yuki Priya Ali Chen Diego Fatima Ivan Jonas Laura Nina Rosa Simon Theo").split()
PLACES = ("market harbor forest library station bakery mountain river castle school farm beach museum village mill park lake "
          "church hospital airport").split()
COLORS = "red blue green yellow black white orange purple brown pink".split()
JOBS = "baker teacher sailor farmer doctor painter gardener tailor carpenter pilot singer cook nurse writer driver".split()
ANIMALS = "cat dog fox horse owl rabbit bear mouse duck goat sheep cow wolf frog pig hen lion tiger monkey snake".split()
PETS = "cat dog rabbit horse mouse parrot fish hamster duck goat".split()
FAMILY = "brother sister mother father friend son daughter aunt uncle teacher".split()
FRUITS = "apple pear plum cherry lemon banana grape peach melon fig orange mango".split()
VEGETABLES = "carrot potato onion tomato bean pea cabbage pumpkin pepper spinach".split()
TOOLS = "hammer saw drill wrench brush shovel axe knife rope nail".split()
FURNITURE = "table chair bed shelf desk sofa bench stool".split()
FOODS = "bread soup cheese rice cake honey salad butter pie porridge pizza pasta".split()
INSTRUMENTS = "piano violin drum flute guitar trumpet harp cello".split()
VEHICLES = "car bus train boat bicycle plane wagon truck".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine ten".split()

CATEGORIES = {
    "animals": ANIMALS, "fruits": FRUITS, "vegetables": VEGETABLES, "tools": TOOLS, "colors": COLORS, "foods": FOODS,
    "jobs": JOBS, "instruments": INSTRUMENTS, "vehicles": VEHICLES, "pets": PETS, "pieces of furniture": FURNITURE,
    "days of the week": DAYS, "months": MONTHS, "names": NAMES[:20], "places": PLACES,
}
OPPOSITES = [pair.split() for pair in (
    "hot cold,big small,fast slow,old new,light dark,open closed,wet dry,high low,happy sad,early late,full empty,strong weak,"
    "near far,hard soft,loud quiet,long short,rich poor,clean dirty,good bad,up down,left right,day night,yes no,"
    "black white,first last,in out,true false,heavy light").split(",")]
SOUNDS = {"cat": "meow", "dog": "woof", "cow": "moo", "sheep": "baa", "duck": "quack", "frog": "ribbit", "pig": "oink",
          "owl": "hoot", "horse": "neigh", "mouse": "squeak", "lion": "roar", "wolf": "howl", "snake": "hiss", "hen": "cluck"}
CAPITALS = dict(pair.split() for pair in (
    "France Paris,Italy Rome,Spain Madrid,Germany Berlin,Japan Tokyo,Egypt Cairo,Norway Oslo,Greece Athens,Poland Warsaw,"
    "Cuba Havana,Peru Lima,Austria Vienna,Russia Moscow,Portugal Lisbon,Ireland Dublin,Sweden Stockholm,England London,"
    "China Beijing,Canada Ottawa,Kenya Nairobi,Finland Helsinki,Denmark Copenhagen,Hungary Budapest,India Delhi").split(","))
UNKNOWN_COUNTRIES = ("Mongolia Brazil Mexico Chile Nepal Ghana Turkey Iran Iraq Korea Vietnam Thailand Ukraine Romania Serbia "
                     "Croatia Iceland Estonia Latvia Nigeria Ethiopia Morocco Argentina Bolivia Texas Australia Scotland "
                     "Switzerland Belgium Holland Wales Jordan Syria Chad Mali Togo Fiji Malta Cyprus").split()
THING_COLORS = {"the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "a lemon": "yellow",
                "coal": "black",
                "milk": "white", "a tomato": "red", "a carrot": "orange", "blood": "red", "chocolate": "brown",
                "a frog": "green"}
LEGS = {"spider": "eight", "dog": "four", "cat": "four", "horse": "four", "bird": "two", "duck": "two", "person": "two",
        "chair": "four", "snake": "no", "fish": "no", "bee": "six", "ant": "six"}

FACTS = [
    ("How many days are in a week?", "There are seven days in a week."),
    ("How many days does a week have?", "There are seven days in a week."),
    ("How many months are in a year?", "There are twelve months in a year."),
    ("How many hours are in a day?", "There are twenty-four hours in a day."),
    ("How many minutes are in an hour?", "There are sixty minutes in an hour."),
    ("How many wheels does a bicycle have?", "A bicycle has two wheels."),
    ("How many wheels does a car have?", "A car has four wheels."),
    ("Where do fish live?", "Fish live in water."),
    ("What do bees make?", "Bees make honey."),
    ("What do cows eat?", "Cows eat grass."),
    ("What do cows give us?", "Cows give us milk."),
    ("What is ice made of?", "Ice is frozen water."),
    ("What is ice?", "Ice is frozen water."),
    ("Is the sun hot?", "Yes, the sun is very hot."),
    ("Is ice cold?", "Yes, ice is very cold."),
    ("What shape is a ball?", "A ball is round."),
    ("When do we see the stars?", "We see the stars at night."),
    ("What do we read?", "We read books."),
    ("What does a baker make?", "A baker makes bread."),
    ("What does a teacher do?", "A teacher works in a school and helps children learn."),
    ("What does a farmer do?", "A farmer grows food and keeps animals."),
    ("What does a pilot do?", "A pilot flies planes."),
]

# Subjects this model knows nothing about: raw material for honest refusals.
TOPICS = ("quantum physics,the roman empire,football,the stock market,black holes,the human brain,climate change,chess,"
          "artificial intelligence,the moon landing,dinosaurs,evolution,democracy,volcanoes,the internet,electricity,gravity,"
          "world war two,the french revolution,photosynthesis,vaccines,philosophy,economics,music theory,machine learning,"
          "the universe,time travel,bitcoin,cooking,yoga,politics,history,love,death,happiness,dreams,money,computers,python,"
          "javascript,vulkan,linux,graphics cards,phones,cars,movies,video games,basketball,the weather in london,the ocean,"
          "medicine,dna,atoms,robots,space,religion,art,poetry,taxes,law,transformers,neural networks,compression,algebra,"
          "geometry,earthquakes,pyramids,vikings,samurai,the olympic games,shakespeare,jazz,opera,astronomy,biology,the law of "
          "large numbers,prime numbers,recursion,a compiler,an operating system,the cold war,inflation,sleep,exercise").split(",")
WORKS = ("Hamlet,the Bible,Moby Dick,Star Wars,the Mona Lisa,Harry Potter,Don Quixote,War and Peace,the telephone,the light bulb,"
         "the airplane,Facebook,Titanic,Faust,the Iliad,penicillin,the computer,America,Linux,Yesterday,the ninth symphony,"
         "the wheel,paper,radium,Python,Minecraft,Frankenstein,Dracula,the printing press").split(",")
PEOPLE = ("Einstein,Newton,Napoleon,Mozart,Shakespeare,Cleopatra,Gandhi,Picasso,Darwin,Caesar,Obama,Lincoln,Beethoven,Plato,"
          "Marie Curie,Elon Musk,Taylor Swift,Messi,Madonna,Batman,Sherlock Holmes,Alan Turing,Galileo,Columbus,Socrates,"
          "Leonardo,Goethe,Kant,Trump,the queen,the pope,the president,Elvis,Bill Gates,Steve Jobs").split(",")
LANGUAGES = "French German Spanish Italian Latin Chinese Japanese Russian Arabic Greek Polish Dutch Korean Hindi".split()
UNKNOWN_THINGS = ("mount everest,the eiffel tower,a blue whale,an elephant,the sun,the moon,mars,a giraffe,the nile,a laptop,"
                  "the earth,a train,the great wall,a plane,an atom,a star,the amazon,a truck,a cell,a ship,a house,jupiter,"
                  "a football field,the pacific ocean,a proton,a city bus").split(",")
UNKNOWN_ANIMALS = ("giraffe elephant whale penguin zebra dolphin turtle kangaroo spider shark camel panda crocodile bat "
                   "snail").split()
UNKNOWN_WORDS = "purple table seven music river window tuesday paper apple dog yellow computer bread name garden music".split()

_ONSETS = "b bl br c cr d dr f fl g gr h j k kl l m n p pl r s st t tr v w z sh th".split()
_VOWELS = "a e i o u ai ee oo".split()
_CODAS = ["", "", "", "n", "r", "l", "m", "s", "t", "x", "nd", "rk", "sh"]


def phrases(text):
    """Phrases separated by '|', each as often as a final '*n' says."""
    found = []
    for phrase in " ".join(text.split()).split(" | "):
        phrase, times = re.fullmatch(r"(.*?)(?: \*(\d+))?", phrase).groups()
        found += [phrase] * int(times or 1)
    return found


def pseudo_word(rng):
    """An invented word of one to three syllables, so that copying does not depend on the word lists."""
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.choice((1, 2, 2, 3))))


def person(rng):
    """A name from the list, now and then an invented one (sometimes written in lower case)."""
    if rng.random() < 0.88:
        return rng.choice(NAMES)
    word = pseudo_word(rng)
    return word if rng.random() < 0.25 else word.capitalize()


def with_article(noun):
    """'an owl', 'a cat'."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def upper_first(text):
    return text[:1].upper() + text[1:]


def join_items(items):
    """'a, b and c'."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
