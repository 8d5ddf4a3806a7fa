"""Starts the scripted server for a client's tests, and runs them: functions named test_..., which get the server's address."""
import contextlib
import os
import subprocess
import sys
import traceback

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": WEATHER}}
# What makes the scripted model call the tool, and its arguments.
ASK_WEATHER = 'please call weather {"city": "Zürich", "days": 2}'
ARGUMENTS = {"city": "Zürich", "days": 2}
UNICODE = "Grüße, 世界 👩‍🚀🎈 ok"


def user(text):
    return [{"role": "user", "content": text}]


@contextlib.contextmanager
def server(*flags):
    child = subprocess.Popen([os.environ["SCRIPTED_SERVER"], *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child.stdout.readline().split()[-1]
    finally:
        child.stdin.close()
        assert child.wait(60) == 0, "the scripted server did not end as it should"


def main(tests, *flags):
    failed = 0
    with server(*flags) as url:
        for name, test in list(tests.items()):
            if not name.startswith("test_"):
                continue
            try:
                test(url)
                print("ok", name)
            except Exception:  # whatever it is, the others are run
                failed += 1
                print("FAILED", name)
                traceback.print_exc()
    sys.exit(1 if failed else 0)
