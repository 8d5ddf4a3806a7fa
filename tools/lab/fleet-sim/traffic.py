"""Where requests come from: a list with times, or agents that ask again when they have done what the answer says."""
import random

from machine import Request


class Listed:
    """Requests whose times are known. Each entry has talk, arrival (s), context, new and answer (tokens)."""

    def __init__(self, entries):
        self.requests = [Request(**entry) for entry in entries]

    def first(self):
        return self.requests

    def after(self, request):
        return None


class Agents:
    """Each agent has a conversation after another: a system prompt that all share, and turns of tools' results and answers, whose lengths are
    exponential about their means, until the context is full. Between an answer and the next turn an exponential time passes."""

    def __init__(self, agents, system_tokens, new_tokens, answer_tokens, context_tokens, pause_s, ramp_s, seed=1):
        self.agents, self.system = agents, system_tokens
        self.new_tokens, self.answer_tokens, self.context, self.pause_s, self.ramp_s = new_tokens, answer_tokens, context_tokens, pause_s, ramp_s
        self.chance, self.talks = random.Random(seed), 0

    def tokens(self, mean):
        return max(1, round(self.chance.expovariate(1 / mean)))

    def turn(self, talk, arrival, context):
        return Request(talk=talk, arrival=arrival, context=context, new=self.tokens(self.new_tokens), answer=self.tokens(self.answer_tokens),
                       shared="system", shared_tokens=self.system)

    def begin_talk(self, arrival, context):
        self.talks += 1
        return self.fitting(f"talk {self.talks}", arrival, context)

    def fitting(self, talk, arrival, context):
        """A turn, or if the context cannot have it the first one of a new conversation."""
        turn = self.turn(talk, arrival, context)
        return turn if turn.prompt + turn.answer <= self.context or context == self.system else self.begin_talk(arrival, self.system)

    def first(self):
        """Agents come one after the other, each somewhere in a conversation, of which nothing is cached."""
        return [self.begin_talk(self.chance.uniform(0, self.ramp_s), round(self.chance.uniform(self.system, self.context))) for _ in range(self.agents)]

    def after(self, request):
        return self.fitting(request.talk, request.end + self.chance.expovariate(1 / self.pause_s), request.prompt + request.answer)
