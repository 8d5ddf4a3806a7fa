"""What the reports share: commands that are run, caches by name, and logs that a later run goes on with."""
import json
import math
import subprocess
import sys

PRESETS = ["accurate", "balanced", "compact", "smallest", "f16"]


def run(command, output=None):
    """Runs a command and returns its standard output, which also goes to the file `output`."""
    print("$", " ".join(str(word) for word in command), flush=True)
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"quality-report: {command[0]} cannot be run: {error.strerror}")
    if output:
        output.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        sys.exit(f"quality-report: that failed with exit status {done.returncode}; run this again to resume"
                 if done.returncode != 130 else 130)
    return done.stdout


def run_shared(launch, command):
    """Runs a measurement that has a log: first in shards by the processes that `launch` starts, if it is given."""
    if launch:
        run([*launch, *command, "--shard", "auto"])
    return run(command)


def sides(cache):
    """tq-run's flags for a cache: a preset, a type, or keys/values, and +N for a window."""
    if cache in PRESETS:
        return ["--kv", cache]
    types, _, window = cache.partition("+")
    k, _, v = types.partition("/")
    return ["-ctk", k, "-ctv", v or k, "--kv-window", window or "0"]


def file_name(cache):
    return cache.replace("/", "-")


def mean(values):
    average = sum(values) / len(values)
    return average, math.sqrt(sum((v - average) ** 2 for v in values) / max(len(values) - 1, 1) / len(values))


class Log:
    """Results by their keys, in a file of JSON lines whose first line says of what: it must be that of this run."""

    def __init__(self, path, **head):
        self.path, self.results = path, {}
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []  # a line that was cut is measured again
        try:
            rows = [json.loads(line) for line in lines]
            self.results = {row["key"]: row["value"] for row in rows[1:]}
        except (ValueError, TypeError, KeyError):
            sys.exit(f"quality-report: {path} is damaged: delete it")
        if rows and rows[0] != head:
            sys.exit(f"quality-report: {path} is of another measurement ({lines[0][:300]}): delete it, or give another folder with -o")
        path.write_text("".join(line + "\n" for line in lines or [json.dumps(head)]), encoding="utf-8")

    def add(self, key, value):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
        self.results[key] = value
