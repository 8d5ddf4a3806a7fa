"""One machine of a fleet: its slots, its prefix cache, and how fast it is with so many requests at once."""
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """Rates in tokens a second, with nothing before them. `decode` is one answer's alone, `decode_all` that of `slots` answers together; while a
    prompt runs, each answer has a token between two blocks of it. What runs must fit into `device_bytes`, or run alone. Attention: a prompt's token after `prefill_half` others takes twice as long,
    and a token of an answer reads the cache of those before it at `memory_bytes_s`."""
    name: str
    prefill: float
    decode: float
    decode_all: float
    slots: int
    cache_bytes: float
    network_bytes_s: float
    block: int = 512
    device_bytes: float = math.inf
    weight: float = 1.0
    prefill_half: float = math.inf
    memory_bytes_s: float = math.inf

    def pass_s(self, answers, cache_bytes=0.0):
        """Seconds of a token of each of n answers: (1 + (n - 1) k) / decode, where k is such that `slots` answers have `decode_all`; and what it
        takes to read their caches."""
        k = (self.slots * self.decode / self.decode_all - 1) / (self.slots - 1) if self.slots > 1 else 0.0
        return (1 + (answers - 1) * k) / self.decode + cache_bytes / self.memory_bytes_s

    def prompt_s(self, begin, end):
        """Seconds of the tokens of a prompt from `begin` to `end`, alone."""
        return (end - begin + (end * end - begin * begin) / (2 * self.prefill_half)) / self.prefill


@dataclass(eq=False)
class Request:
    """A turn: a prompt of `context` tokens that an earlier turn left, and `new` ones; an answer of `answer` tokens."""
    talk: object
    arrival: float
    context: int
    new: int
    answer: int
    shared: object = None  # whose first `shared_tokens` the context begins with: a system prompt of many conversations
    shared_tokens: int = 0
    machine: object = None
    found: int = 0         # tokens in the machine's cache
    fetched: int = 0       # and from the store
    first_token: float = 0.0
    end: float = 0.0
    left: float = field(default=0.0, repr=False) # of a prompt seconds, of an answer tokens

    @property
    def prompt(self):
        return self.context + self.new


class PrefixCache:
    """The prompts that were run last, in whole conversations; the beginnings that they share are kept apart. Sizes in tokens. Answers are not in
    it: their tokens are run again, as a part of the next prompt."""

    def __init__(self, tokens):
        self.capacity, self.used, self.entries = tokens, 0.0, OrderedDict()

    def put(self, key, tokens):
        self.used += tokens - self.entries.pop(key, 0)
        self.entries[key] = tokens
        while self.used > self.capacity and self.entries:
            self.used -= self.entries.popitem(last=False)[1]

    def get(self, key):
        if key not in self.entries:
            return 0
        self.entries.move_to_end(key)
        return self.entries[key]

    def found(self, request, look=False):
        """How many tokens of the prompt are here; with `look`, without counting as a use. The last token is always run."""
        read = (lambda key: self.entries.get(key, 0)) if look else self.get
        begin = min(read(("shared", request.shared)), request.shared_tokens) if request.shared_tokens else 0
        own = read(("talk", request.talk)) if begin == request.shared_tokens else 0
        return min(begin + min(own, request.prompt - request.shared_tokens), request.prompt - 1)

    def keep(self, request):
        if request.shared_tokens:
            self.put(("shared", request.shared), request.shared_tokens)
        self.put(("talk", request.talk), request.prompt - request.shared_tokens)


class Machine:
    """Requests wait for a slot; prompts are run one after the other, answers all at once. `advance` moves time on while nothing begins or ends."""

    def __init__(self, kind, number, bytes_per_token):
        self.kind, self.number, self.bytes_per_token = kind, number, bytes_per_token
        self.cache = PrefixCache(kind.cache_bytes / bytes_per_token)
        self.waiting, self.prompts, self.answers = deque(), deque(), []
        self.running, self.now, self.version = [], 0.0, 0 # the requests that have slots, also those whose pages are fetched
        self.busy_s, self.network_free = 0.0, 0.0

    def load(self):
        return len(self.waiting) + sum(not request.end for request in self.running)

    def has_room(self, request):
        """A slot, and memory for it beside what runs."""
        self.running = [one for one in self.running if not one.end]
        needs = sum(one.prompt + one.answer for one in [*self.running, request]) * self.bytes_per_token
        return len(self.running) < self.kind.slots and (not self.running or needs <= self.kind.device_bytes)

    def missing_s(self, request):
        """Seconds of what its cache does not have of a prompt."""
        return self.kind.prompt_s(self.cache.found(request, look=True), request.prompt)

    def work_s(self):
        """Seconds until the prompts here have run, as far as their caches are known."""
        return sum(self.missing_s(request) for request in self.waiting) + sum(request.left for request in self.prompts)

    def answer_rate(self):
        """Tokens a second of each answer, if no prompt runs beside them. Its cache is taken as that in its middle."""
        tokens = sum(request.prompt + request.answer / 2 for request in self.answers)
        return 1 / self.kind.pass_s(len(self.answers), tokens * self.bytes_per_token)

    def rates(self):
        """Seconds of the prompt that run in a second, and tokens of each answer."""
        if not self.answers:
            return float(bool(self.prompts)), 0.0
        rate = self.answer_rate()
        if not self.prompts:
            return 0.0, rate
        at = self.prompts[0].prompt
        block_s = self.kind.prompt_s(max(0, at - self.kind.block), at)
        share = block_s / (block_s + 1 / rate)
        return share, (1 - share) * rate

    def advance(self, now):
        prompt_rate, answer_rate = self.rates()
        passed = now - self.now
        if self.prompts:
            self.prompts[0].left -= prompt_rate * passed
        for request in self.answers:
            request.left -= answer_rate * passed
        self.busy_s += passed if self.prompts or self.answers else 0.0
        self.now = now

    def next_change(self):
        """When the first prompt or answer ends; None if none runs."""
        prompt_rate, answer_rate = self.rates()
        times = [self.prompts[0].left / prompt_rate] if self.prompts else []
        times += [request.left / answer_rate for request in self.answers] if answer_rate else []
        return self.now + max(0.0, min(times)) if times else None

    def begin_prompt(self, request):
        request.left = self.kind.prompt_s(request.found + request.fetched, request.prompt)
        self.prompts.append(request)

    def take_ended(self):
        """Moves on what has ended by now, and returns the answers that are complete."""
        small = 1e-6 # tokens; a prompt's seconds are a thousandth of that
        if self.prompts and self.prompts[0].left <= 1e-3 * small:
            request = self.prompts.popleft()
            request.first_token, request.left = self.now, request.answer - 1  # a prompt's run gives the first token
            self.answers.append(request)
        ended = [request for request in self.answers if request.left <= small]
        self.answers = [request for request in self.answers if request.left > small]
        for request in ended:
            request.end = self.now
            self.cache.keep(request)
        return ended
