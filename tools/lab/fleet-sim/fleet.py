"""The discrete-event simulation: requests arrive, are given to machines, and end; a store keeps what any machine has run."""
import heapq
import itertools
from dataclasses import dataclass

from machine import Machine
from policies import POLICIES


@dataclass
class Store:
    """Whole pages of the prompts of every conversation, as the last turn left it. What leaves and what enters have a line of `bytes_s` each."""
    bytes_s: float
    latency_s: float
    page_tokens: int
    bytes_per_token: float

    def __post_init__(self):
        self.kept, self.out_free, self.in_free = {}, 0.0, 0.0
        self.bytes_out = self.bytes_in = 0.0

    def whole_pages(self, tokens):
        return tokens // self.page_tokens * self.page_tokens

    def offer(self, request, now, missing_after):
        """How many tokens it has beyond those that a machine has, and when they could be there."""
        shared = self.kept.get(("shared", request.shared), 0) if request.shared_tokens else 0
        whole = self.kept.get(("talk", request.talk), 0) or shared
        more = max(0, self.whole_pages(min(whole, request.prompt - 1)) - missing_after)
        lines_free = max(now, self.out_free, request.machine.network_free)
        slowest = min(self.bytes_s, request.machine.kind.network_bytes_s)
        return more, lines_free + self.latency_s + more * self.bytes_per_token / slowest

    def fetch(self, request, tokens, now):
        """Occupies both lines for as long as each needs."""
        size = tokens * self.bytes_per_token
        begin = max(now, self.out_free, request.machine.network_free)
        self.out_free = begin + size / self.bytes_s
        request.machine.network_free = begin + size / request.machine.kind.network_bytes_s
        self.bytes_out += size

    def write(self, request, now):
        """The pages that the turn has completed. They are there when they have arrived, which nothing waits for."""
        key = ("talk", request.talk)
        whole = self.whole_pages(request.prompt)
        before = self.kept.get(key, 0) or (self.kept.get(("shared", request.shared), 0) if request.shared_tokens else 0)
        size = max(0, whole - before) * self.bytes_per_token
        slowest = min(self.bytes_s, request.machine.kind.network_bytes_s)
        if self.in_free > now + 60:  # it does not keep up: a writer drops what it could not send for a minute
            return
        self.in_free = max(now, self.in_free) + size / slowest
        self.bytes_in += size
        self.kept[key] = max(whole, self.kept.get(key, 0))
        if request.shared_tokens:
            self.kept[("shared", request.shared)] = self.whole_pages(request.shared_tokens)


class Simulation:
    def __init__(self, kinds, policy, bytes_per_token, store=None):
        """kinds: one Kind for each machine. policy: a name of POLICIES; hash:1.5 is hash with another bound."""
        self.machines = [Machine(kind, number, bytes_per_token) for number, kind in enumerate(kinds)]
        name, _, bound = policy.partition(":")
        self.choose = POLICIES[name](self.machines, *([float(bound)] if bound else []))
        self.store, self.done, self.open, self.events, self.number = store, [], set(), [], itertools.count()

    def at(self, time, what, *arguments):
        heapq.heappush(self.events, (time, next(self.number), what, arguments))

    def run(self, source, until):
        """Runs what the source asks for. `source.first()` gives the first requests, `source.after(request)` the one, or None, that an answer
        brings. Returns the requests that were answered by `until`, in seconds."""
        self.source = source
        for request in source.first():
            self.at(request.arrival, self.arrive, request)
        while self.events:
            time, _, what, arguments = heapq.heappop(self.events)
            if time > until:
                break
            self.now = time
            what(*arguments)
        for machine in self.machines:
            machine.advance(min(until, max(machine.now, self.now)))
        return self.done

    def arrive(self, request):
        self.open.add(request)
        machine = request.machine = self.choose(request, self.now)
        machine.waiting.append(request)
        self.refresh(machine)

    def refresh(self, machine):
        """Moves the machine to now: what has ended goes, what waits begins, and the next change is planned."""
        machine.advance(self.now)
        while ended := machine.take_ended():
            for request in ended:
                self.finish(request)
        while machine.waiting and machine.has_room(machine.waiting[0]):
            self.begin(machine, machine.waiting.popleft())
        machine.version += 1
        if (time := machine.next_change()) is not None:
            self.at(time, self.change, machine, machine.version)

    def change(self, machine, version):
        if version == machine.version:
            self.refresh(machine)

    def begin(self, machine, request):
        machine.running.append(request)
        request.found = machine.cache.found(request)
        if self.store:
            more, ready = self.store.offer(request, self.now, request.found)
            # It is fetched if that takes less time than running it.
            if more > 0 and ready - self.now < machine.kind.prompt_s(request.found, request.found + more):
                self.store.fetch(request, more, self.now)
                request.fetched = more
                return self.at(ready, self.arrived, machine, request)
        machine.begin_prompt(request)

    def arrived(self, machine, request):
        machine.advance(self.now)
        machine.begin_prompt(request)
        self.refresh(machine)

    def finish(self, request):
        self.open.discard(request)
        self.done.append(request)
        if self.store:
            self.store.write(request, self.now)
        if (following := self.source.after(request)) is not None:
            self.at(following.arrival, self.arrive, following)
