"""The store that replicas share, a Redis of the test's own, and what becomes of it while they run."""
import random
import re
import shutil
import signal
import socket
import subprocess
import time

from network import Loopback
from processes import free_port


class Store:
    """redis-server on a port of its own, which it keeps when it is started again, then empty."""

    def __init__(self, folder, host=Loopback):
        self.host, self.port, self.folder, self.process = host, free_port(), folder, None

    def start(self):
        command = [*self.host.prefix, "redis-server", "--bind", self.host.address, "--port", str(self.port), "--protected-mode", "no", "--save", "",
                   "--appendonly", "no", "--dir", str(self.folder), "--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                return self.ask("PING")
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"redis-server does not start: {error}") from error
                time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def flags(self):
        """Of a replica that keeps nothing anywhere else but on its device."""
        return ["--cache-shared", f"redis://{self.host.address}:{self.port}", "--cache-ram", "0", "--cache-disk", "0"]

    def ask(self, *words):
        """The answer to a command: bytes, a number, a list, or None."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        with socket.create_connection((self.host.address, self.port), timeout=10) as connection:
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            with connection.makefile("rb") as reply:
                return read_value(reply)

    def pages(self):
        return self.ask("KEYS", "tqrun:page:*")

    def info(self, name):
        return int(re.search(rf"^{name}:(\d+)", self.ask("INFO").decode(), re.MULTILINE)[1])


def read_value(reply):
    line = reply.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-" or not line:
        raise OSError(f"Redis says: {rest.decode()}" if line else "Redis closes the connection")
    if kind == b"$":
        return None if rest == b"-1" else reply.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read_value(reply) for _ in range(int(rest))]
    return int(rest) if kind == b":" else rest


def worse(page, others, chance):
    """What could be in a page's place: random bytes, a piece of it, more than it, one byte that is another, another page, nothing."""
    at = chance.randrange(len(page))
    return chance.choice([
        lambda: chance.randbytes(len(page)),
        lambda: page[:at],
        lambda: page + chance.randbytes(100),
        lambda: page[:at] + bytes([page[at] ^ 1 << chance.randrange(8)]) + page[at + 1:],
        lambda: chance.choice(others),
        lambda: b""
    ])()


PLACES = {"device": 'tqrun_found_tokens_total{place="device"}', "store": 'tqrun_found_tokens_total{place="shared"}', "run": "llamacpp:prompt_tokens_total"}
EVENTS = {
    **{result: f'tqrun_shared_reads_total{{result="{result}"}}' for result in ("found", "missed", "late", "failed", "rejected")},
    **{result: f'tqrun_shared_writes_total{{result="{result}"}}' for result in ("written", "not_written")}
}


class Numbers:
    """The replicas' counters, added up over their restarts."""

    def __init__(self, replicas):
        self.replicas, self.last, self.total, self.marked = replicas, {}, {}, {}

    def look(self):
        for replica in self.replicas:
            try:
                text = replica.call("GET", "/metrics", timeout=30)[1].decode()
            except OSError:
                continue  # it is not there
            for name, metric in {**PLACES, **EVENTS}.items():
                found = re.search(rf"^{re.escape(metric)} (\S+)$", text, re.MULTILINE)
                now, before = float(found[1]) if found else 0, self.last.get((replica, name), 0)
                self.total[name] = self.total.get(name, 0) + (now - before if now >= before else now)
                self.last[replica, name] = now

    def phase(self):
        """What has been counted since the last phase ended."""
        self.look()
        since = {name: int(value - self.marked.get(name, 0)) for name, value in self.total.items()}
        self.marked = dict(self.total)
        return since


class Disturber:
    """Kills, hangs, fills and corrupts the store, and waits until replicas have noticed."""

    def __init__(self, fleet, store):
        self.fleet, self.store, self.numbers, self.phases = fleet, store, Numbers(fleet.replicas), []
        self.chance = random.Random(fleet.options.seed)
        # Over a network that is slower than computing, pages are late, and what is in them hardly matters.
        self.slow = ["missed", "late", "failed"] if fleet.network else []
        self.reads, self.refusals = ["found", *self.slow], ["rejected", *self.slow]

    def actions(self):
        return [self.kill_store, self.hang_store, self.fill_store, self.corrupt_store]

    def end_phase(self, what):
        self.phases.append((what, self.numbers.phase()))

    def wait_for(self, names, what):
        """Until one of these counters has grown."""
        end = time.monotonic() + self.fleet.options.patience
        self.numbers.look()
        before = sum(self.numbers.total.get(name, 0) for name in names)
        while sum(self.numbers.total.get(name, 0) for name in names) == before:
            if self.fleet.errors:
                return
            if time.monotonic() > end:
                return self.fleet.errors.append(f"no replica has noticed that {what}: none of {', '.join(names)} in /metrics has grown")
            time.sleep(0.2)
            self.numbers.look()

    def during(self, what, names):
        """The store is as it should not be: until that was noticed, and then for a while."""
        self.wait_for(names, what)
        self.fleet.wait(self.fleet.options.seconds / 20)
        self.end_phase(what)

    def recovered(self, what):
        """It is as it should be again."""
        self.wait_for(self.reads, f"the store, which {what}, is there again")
        self.end_phase(f"after it {what}")

    def kill_store(self):
        self.wait_for(self.reads, "the store is there")
        self.end_phase("before")
        self.store.kill()
        self.during("the store was dead", ["failed", "late", "not_written"])
        self.store.start()
        self.recovered("was dead")

    def hang_store(self):
        self.store.process.send_signal(signal.SIGSTOP)  # it takes connections and says nothing
        self.during("the store hung", ["late", "failed", "not_written"])
        self.store.process.send_signal(signal.SIGCONT)
        self.recovered("hung")

    def fill_store(self):
        self.store.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.store.ask("CONFIG", "SET", "maxmemory", max(1, self.store.info("used_memory") // 2))
        self.during("the store was full", ["not_written", *self.slow])
        self.store.ask("CONFIG", "SET", "maxmemory", "256mb")
        self.store.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        self.recovered("was full")

    def corrupt_store(self):
        def refused():
            return sum(self.numbers.total.get(name, 0) for name in self.refusals)

        self.numbers.look()
        before, written, end = refused(), 0, time.monotonic() + self.fleet.options.patience
        while refused() == before and not self.fleet.errors:
            names = self.store.pages()
            pages = {name: page for name in names if (page := self.store.ask("GET", name))}
            for name, page in pages.items():
                self.store.ask("SET", name, worse(page, list(pages.values()), self.chance))
            written += len(pages)
            self.fleet.wait(0.5)
            self.numbers.look()
            if time.monotonic() > end:
                return self.fleet.errors.append(f"no replica has noticed that {written} pages were corrupted: none was rejected")
        self.end_phase(f"{written} values in the store were overwritten")
        self.recovered("was corrupted")

    def report(self):
        for what, count in self.phases:
            tokens = sum(count.get(name, 0) for name in PLACES)
            rates = ", ".join(f"{count.get(name, 0) / max(tokens, 1):.0%} {how}" for name, how in (("device", "found on the device"), ("store", "found in the store")))
            events = ", ".join(f"{count[name]} {name}" for name in EVENTS if count.get(name))
            print(f"{what}: {tokens} tokens of prompts, {rates}; pages: {events or 'none'}")


def missing_program():
    return None if shutil.which("redis-server") else "redis-server"
