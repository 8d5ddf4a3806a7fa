"""Which machine has a request. A policy is called with the request and the machines, and returns one of them."""
import bisect
import hashlib
import itertools
import math


def position(text):
    """A place on the ring, from 0 to 1, the same in every run."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def round_robin(machines):
    turn = itertools.cycle(machines)
    return lambda request, now: next(turn)


def least_loaded(machines):
    """The fewest requests for its weight."""
    return lambda request, now: min(machines, key=lambda m: ((m.load() + 1) / m.kind.weight, m.number))


class ConsistentHash:
    """A conversation's place on a ring, on which each machine has points in proportion to its weight; a machine has at most `bound` times its
    share of all requests, else the next one on the ring has it. Like HAProxy's `hash-type consistent` with `hash-balance-factor`."""

    def __init__(self, machines, bound=2.0, points=100):
        self.machines, self.bound = machines, bound
        self.weight = sum(machine.kind.weight for machine in machines)
        mean = self.weight / len(machines)
        ring = [(position(f"{machine.number} {i}"), machine) for machine in machines for i in range(max(1, round(points * machine.kind.weight / mean)))]
        ring.sort(key=lambda point: point[0])
        self.places, self.owners = [place for place, _ in ring], [owner for _, owner in ring]

    def __call__(self, request, now):
        total = 1 + sum(machine.load() for machine in self.machines)
        at = bisect.bisect(self.places, position(str(request.talk)))
        for i in range(len(self.owners)):
            machine = self.owners[(at + i) % len(self.owners)]
            if machine.load() < math.ceil(self.bound * total * machine.kind.weight / self.weight):
                return machine
        raise AssertionError("the bounds add up to more than all requests, so one machine is below its own")


def prefix_aware(machines):
    """The machine that should give the first token soonest: what waits there, and what its cache does not have of the prompt."""
    def seconds(machine, request):
        return machine.work_s() + machine.missing_s(request) + waits_for_slot(machine, request)

    return lambda request, now: min(machines, key=lambda machine: (seconds(machine, request), machine.number))


def waits_for_slot(machine, request):
    """Seconds until there is room for it, if all answer: that of the answer with the fewest tokens left, for each that waits before."""
    if machine.has_room(request) or not machine.answers:
        return 0.0
    least = min(request.left for request in machine.answers)
    return (len(machine.waiting) + 1) * least / machine.answer_rate()


POLICIES = {"round-robin": round_robin, "least-loaded": least_loaded, "hash": ConsistentHash, "prefix": prefix_aware}
