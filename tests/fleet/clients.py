"""Conversations with a fleet through its proxy, by clients that send a request again where its answer broke off."""
import http.client
import json
import random
import threading
import time

from processes import KEY

NAMES = "Mira Jonas Tilda Oskar Nele Ivan Rosa Emil Hanna Pavel Lena Theo Ida Boris Alma Karl".split()
PLACES = "harbor mill forest bridge market river tower garden".split()
THINGS = "silver kettle, red lamp, old clock, blue chair".split(", ")
QUESTIONS = ["Tell me a little story.", "Count to nine.", "What is my name?", "Where do I live?", "Thank you!"]
SYSTEM = "You are a helpful assistant. " + "Answer in short and friendly sentences. " * 20


class Broken(Exception):
    """An answer that ends before its end."""


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.by_name, self.first_token_s, self.tokens, self.streams, self.broken = {}, {}, {}, {}, {}

    def count(self, name, by=1):
        with self.lock:
            self.by_name[name] = self.by_name.get(name, 0) + by

    def add_answer(self, replica, turn, first_s, usage):
        with self.lock:
            self.first_token_s.setdefault(min(turn, 1), []).append(first_s)
            prompt, cached = self.tokens.get((replica, min(turn, 1)), (0, 0))
            found = usage["prompt_tokens_details"]["cached_tokens"]
            self.tokens[replica, min(turn, 1)] = (prompt + usage["prompt_tokens"], cached + found)

    def open_stream(self, replica):
        with self.lock:
            self.streams[replica] = self.streams.get(replica, 0) + 1

    def end_stream(self, replica, whole):
        with self.lock:
            self.streams[replica] -= 1
            self.broken[replica] = self.broken.get(replica, 0) + (not whole)

    def open_streams(self, replicas):
        """How many streams are between their first and their last piece."""
        with self.lock:
            return sum(self.streams.get(replica, 0) for replica in replicas)

    def broken_streams(self, replicas):
        with self.lock:
            return sum(self.broken.get(replica, 0) for replica in replicas)


def settings(chance):
    """How a conversation's answers are sampled: so that the same device always writes the same."""
    return {"temperature": chance.choice([0, 0.8]), "seed": chance.randrange(1000)}


class Conversation:
    """Turns of a user, and the answers that came."""

    def __init__(self, chance, instructions=SYSTEM):
        self.chance, self.sampling = chance, settings(chance)
        name, place, thing = chance.choice(NAMES), chance.choice(PLACES), chance.choice(THINGS)
        first = f"My name is {name} and I live near the {place}. The code of the {thing} is {chance.randrange(1000, 9999)}."
        self.turns = [first, f"What is the code of the {thing}?", *chance.sample(QUESTIONS, 2)]
        self.identity = chance.choice(["header", "key", "none", "parts"])
        self.id = f"talk-{chance.randrange(10**12)}"
        self.messages = [{"role": "system", "content": instructions}] if chance.random() < 0.7 else []

    def request(self, turn):
        text = self.turns[turn]
        content = [{"type": "text", "text": text}] if self.identity == "parts" else text
        self.messages.append({"role": "user", "content": content})
        long = self.chance.random() < 0.4
        return {"messages": list(self.messages), **self.sampling, "max_tokens": 250 if long else 40, "ignore_eos": long}

    def headers(self):
        return {"x-session-affinity": self.id} if self.identity == "header" else {}

    def fields(self):
        return {"prompt_cache_key": self.id} if self.identity == "key" else {}


class Client(threading.Thread):
    """Has one conversation after another until the fleet's test ends. It adds to the fleet's `answers` and `partial` answers, by
    replica and request, and to its `errors` what must not happen."""

    def __init__(self, number, fleet):
        super().__init__(daemon=True)
        self.number, self.proxy, self.counts, self.errors, self.end = number, fleet.proxy, fleet.counts, fleet.errors, fleet.end
        self.answers, self.partial = fleet.answers, fleet.partial
        self.instructions = 2 * SYSTEM if fleet.store else SYSTEM  # more than a page
        self.patience_s, self.talks = fleet.options.patience, fleet.options.talks
        self.chance = random.Random(f"{fleet.options.seed} {number}")

    def run(self):
        try:
            while not self.end.is_set() and not self.errors:
                talk = Conversation(random.Random(self.chance.randrange(self.talks)), self.instructions)
                for turn in range(len(talk.turns)):
                    if self.end.is_set() and turn > 0:
                        break
                    self.have_turn(talk, turn)
        except Exception as error:  # of any kind: it is the result of the test
            self.errors.append(f"client {self.number}: {type(error).__name__}: {error}")

    def have_turn(self, talk, turn):
        request = talk.request(turn)
        streams = self.chance.random() < 0.7
        end = time.monotonic() + 3 * self.patience_s
        while time.monotonic() < end:
            try:
                answer = self.ask(request, talk, turn, streams)
            except (Broken, OSError, http.client.HTTPException) as error:
                if isinstance(error, TimeoutError):
                    raise AssertionError(f"nothing came for {self.patience_s:g} s: a client that hangs") from error
                self.counts.count("no connection" if isinstance(error, ConnectionRefusedError) else "broke off")
                time.sleep(0.2)
                continue
            if answer is None:
                time.sleep(0.5)
                continue
            talk.messages.append({"role": "assistant", "content": answer})
            return self.counts.count("answers")
        raise AssertionError(f"no answer in {3 * self.patience_s:g} s")

    def ask(self, request, talk, turn, streams):
        """Returns the answer; None if the client is told to come again."""
        connection, began = self.proxy.connect(self.patience_s), time.monotonic()
        try:
            body = {**request, **talk.fields(), "stream": streams}
            if streams:
                body["stream_options"] = {"include_usage": True}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": f"Bearer {KEY}", **talk.headers()})
            reply = connection.getresponse()
            if reply.status in (429, 502, 503, 504):
                self.counts.count(f"status {reply.status}")
                return None
            if reply.status != 200:
                raise AssertionError(f"a good request is answered {reply.status}: {reply.read(300)}")
            replica = reply.getheader("x-replica")
            text, reason, first, usage = self.read_stream(reply, replica, began, request) if streams else self.read_whole(reply, began)
        finally:
            connection.close()
        self.counts.add_answer(replica, turn, first, usage)
        self.answers.setdefault((replica, json.dumps(request)), set()).add((text, reason))
        return text

    def read_whole(self, reply, began):
        whole = json.loads(reply.read())
        choice = whole["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"], time.monotonic() - began, whole["usage"]

    def read_stream(self, reply, replica, began, request):
        text, reason, first, usage, done = "", None, None, None, False
        try:
            for line in reply:
                if not line.endswith(b"\n"):
                    break  # the connection ended within the line
                done = done or line.startswith(b"data: [DONE]")
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise Broken(event["error"])
                usage = event.get("usage") or usage
                for choice in event.get("choices", []):
                    piece = choice["delta"].get("content")
                    if piece and first is None:
                        first = time.monotonic() - began
                        self.counts.open_stream(replica)
                    text, reason = text + (piece or ""), choice["finish_reason"] or reason
        finally:
            if first is not None:
                self.counts.end_stream(replica, done)
                if not done:
                    self.partial.setdefault((replica, json.dumps(request)), []).append(text)
        if not done:
            raise Broken("a stream without its end")
        return text, reason, first or time.monotonic() - began, usage
