#!/usr/bin/env python3
"""Measures the rates that the simulation needs of a machine, on a server of its own there; then has agents talk to that server, and compares what
they saw with what the simulation predicts for them.

  python3 tools/lab/fleet-sim/measure.py build/release/tq-run                                  # the demo model on the CPU
  python3 tools/lab/fleet-sim/measure.py build/release/tq-run -- -hf Qwen/Qwen3-8B-GGUF:Q4_K_M -c 32k -np 8
"""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from fleet import Simulation
from machine import Kind, Request


class Server:
    def __init__(self, program, flags, slots, context):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory(prefix="fleet-measure-")
        self.log = tempfile.TemporaryFile("w+")
        command = [program, "serve", "--port", str(self.port), "-np", str(slots), "-c", str(context), "--cache-disk", "0", *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, "TQ_CACHE_DIR": self.folder.name})
        while not self.healthy():
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(f"measure: the server does not start: {self.log.read()[-500:]}")
            time.sleep(0.1)

    def healthy(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()

    def cache_bytes(self):
        """Of a token, and of all tokens that fit beside each other."""
        gauges = dict(line.rsplit(" ", 1) for line in self.get("/metrics")[1].decode().splitlines() if not line.startswith("#"))
        pages = sum(float(value) for name, value in gauges.items() if name.startswith("tqrun_pages"))
        size = float(gauges["tqrun_cache_bytes_per_token"])
        return size, size * 256 * pages

    def run(self, prompt, answer, on_token=lambda: None):
        """Sends token ids. Returns seconds to the first token and to the last, how many tokens were found, and the ids that were answered."""
        connection, began = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600), time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0, "stream": True,
                                                                 "stream_options": {"include_usage": True}}))
        reply, first, text, usage = connection.getresponse(), None, "", None
        if reply.status != 200:
            sys.exit(f"measure: the server answers {reply.status}: {reply.read(300)}")
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event.get("choices"):
                first = first or time.monotonic() - began
                text += event["choices"][0]["text"]
                on_token()
        connection.close()
        return first, time.monotonic() - began, usage["prompt_tokens_details"]["cached_tokens"], text

    def ids(self, text):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/tokenize", json.dumps({"content": text}))
        return json.loads(connection.getresponse().read())["tokens"]

    def close(self):
        self.process.terminate()
        self.process.wait(60)


class Measurement:
    """Each rate is the median of a few; nothing is found in the cache, as each prompt begins anew."""

    def __init__(self, server, slots, context, seed):
        self.server, self.slots, self.context, self.chance = server, slots, context, random.Random(seed)

    def prompt(self, tokens):
        return [self.chance.randrange(20, 200) for _ in range(tokens)]

    def together(self, prompts, answer):
        """Tokens a second of all answers from the last one's first token to the first one's last."""
        results, threads = [], []
        for prompt in prompts:
            times = []
            results.append(times)
            threads.append(threading.Thread(target=self.server.run, args=(prompt, answer, lambda times=times: times.append(time.monotonic()))))
            threads[-1].start()
        for thread in threads:
            thread.join()
        begin, end = max(times[0] for times in results), min(times[-1] for times in results)
        return sum(sum(begin < at <= end for at in times) for times in results) / (end - begin)

    def kind(self, repeats, size):
        short, deep, answer = 256, self.context - 300, 200
        median = lambda measure: statistics.median(measure() for _ in range(repeats))
        t1 = median(lambda: self.server.run(self.prompt(short), 1)[0])
        t2 = median(lambda: self.server.run(self.prompt(deep), 1)[0])
        decode = median(lambda: self.together([self.prompt(16)], answer))
        every = median(lambda: self.together([self.prompt(16) for _ in range(self.slots)], answer))
        at_depth = median(lambda: self.together([self.prompt(deep)], answer))
        # t = (n + n^2 / 2h) / p at both lengths
        ratio = t2 / t1
        half = (deep * deep - ratio * short * short) / (2 * (ratio * short - deep)) if ratio * short > deep else 1e30
        prefill = (short + short * short / (2 * half)) / t1
        more = max(1e-12, 1 / at_depth - 1 / decode)
        return Kind(name="measured", prefill=prefill, decode=decode, decode_all=min(max(every, decode), self.slots * decode), slots=self.slots, cache_bytes=1e12,
                    network_bytes_s=1e9, block=self.block(repeats), prefill_half=half, memory_bytes_s=(deep + answer / 2) * size / more)

    def block(self, repeats):
        """Tokens of a prompt that run between two tokens of an answer: how many of these come while a prompt of so many runs."""
        found, tokens = [], self.context // 2
        for _ in range(repeats):
            times = []
            thread = threading.Thread(target=self.server.run, args=(self.prompt(16), 400, lambda: times.append(time.monotonic())))
            thread.start()
            while len(times) < 20:
                time.sleep(0.001)
            begin = time.monotonic()
            end = begin + self.server.run(self.prompt(tokens), 1)[0]
            thread.join()
            found.append(tokens / max(1, sum(begin < at <= end for at in times)))
        return round(statistics.median(found))


class Script:
    """Agents whose turns are drawn before: (pause, new, answer) of each."""

    def __init__(self, agents, seconds, context, seed, mean_pause, mean_new, mean_answer):
        chance = random.Random(seed)
        draw = lambda mean: max(1, round(chance.expovariate(1 / mean)))
        self.context, self.begins = context, [chance.uniform(0, mean_pause) for _ in range(agents)]
        self.turns = [[(chance.expovariate(1 / mean_pause), draw(mean_new), draw(mean_answer)) for _ in range(1000)] for _ in range(agents)]
        self.at = [0] * agents

    def next(self, agent, arrival, talk, context):
        """The next turn of an agent; if the context cannot have it, the first of a new conversation."""
        _, new, answer = self.turns[agent][self.at[agent]]
        self.at[agent] += 1
        if context + new + answer > self.context:
            talk, context = (agent, self.at[agent]), 0
            new, answer = min(new, self.context // 2), min(answer, self.context // 4)
        return Request(talk=talk, arrival=arrival, context=context, new=new, answer=answer)

    def first(self):
        return [self.next(agent, begin, (agent, 0), 0) for agent, begin in enumerate(self.begins)]

    def after(self, request):
        agent = request.talk[0]
        return self.next(agent, request.end + self.turns[agent][self.at[agent]][0], request.talk, request.prompt + request.answer)


def play(server, script, seconds, make_prompt):
    """The same agents, and the server. Returns what they saw, as requests."""
    began, done, lock = time.monotonic(), [], threading.Lock()

    def live(request):
        history = []
        while request.arrival < seconds:
            time.sleep(max(0.0, began + request.arrival - time.monotonic()))
            prompt = history[:request.context] + make_prompt(request.prompt - min(len(history), request.context))
            request.arrival = time.monotonic() - began
            first, last, request.found, text = server.run(prompt, request.answer)
            request.first_token, request.end = request.arrival + first, request.arrival + last
            history = prompt + server.ids(text)
            with lock:
                done.append(request)
                request = script.after(request)

    threads = [threading.Thread(target=live, args=(request,)) for request in script.first()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def summary(name, done, seconds):
    done = [request for request in done if request.end <= seconds]
    first, whole = (sorted(f(request) for request in done) for f in (lambda r: r.first_token - r.arrival, lambda r: r.end - r.arrival))
    prompt = sum(request.prompt for request in done)
    print(f"| {name} | {len(done)} | {statistics.mean(first) * 1000:.0f} | {statistics.median(first) * 1000:.0f} | {first[int(0.95 * len(first))] * 1000:.0f} | "
          f"{statistics.mean(whole) * 1000:.0f} | {sum(request.found for request in done) / prompt:.0%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="tq-run")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=8192, help="of a request, in tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--agents", default="2,4,8", help="how many talk at once, with commas")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=2, help="seconds between an answer and the next turn, on average")
    parser.add_argument("--new", type=float, default=400, help="tokens of a turn, on average")
    parser.add_argument("--answer", type=float, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="of tq-run serve, after --; default: --device cpu")
    options = parser.parse_args()
    server = Server(options.program, options.flags or ["--device", "cpu"], options.slots, options.context)
    try:
        size, cache_bytes = server.cache_bytes()
        measurement = Measurement(server, options.slots, options.context, options.seed)
        kind = measurement.kind(options.repeats, size)
        half = {"prefill_half": round(kind.prefill_half)} if kind.prefill_half < 1e9 else {}
        print(json.dumps({"name": "measured", "prefill": round(kind.prefill), **half, "decode": round(kind.decode, 1),
                          "decode_all": round(kind.decode_all, 1), "memory_gb_s": round(kind.memory_bytes_s / 1e9, 2), "block": kind.block,
                          "slots": kind.slots, "cache_gb": round(cache_bytes / 1e9, 3)}), flush=True)
        print("| agents | answers | first token, mean, ms | 50 % | 95 % | last token, mean, ms | found |\n|" + "---|" * 7)
        for agents in map(int, options.agents.split(",")):
            what = (agents, options.seconds, options.context, options.seed, options.pause, options.new, options.answer)
            summary(f"{agents}, measured", play(server, Script(*what), options.seconds, measurement.prompt), options.seconds)
            summary(f"{agents}, predicted", Simulation([kind], "round-robin", size).run(Script(*what), options.seconds), options.seconds)
    finally:
        server.close()


if __name__ == "__main__":
    main()
