"""Replicas of tq-run serve, and what a test of a fleet needs to start them."""
import glob
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from network import Loopback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEY = "fleet-test-key"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def driver_file(kind):
    """The Vulkan driver of a kind of replica; None if this machine does not have it."""
    patterns = {"lavapipe": ["/usr/share/vulkan/icd.d/lvp_icd*.json", "/usr/local/share/vulkan/icd.d/lvp_icd*.json"],
                "swiftshader": [str(ROOT / "build/swiftshader/*.json")]}
    return next((found for pattern in patterns[kind] for found in sorted(glob.glob(pattern))), None)


# About how fast they are on one machine: more requests for the faster.
WEIGHTS = {"cpu": 16, "lavapipe": 4, "swiftshader": 1}


def kinds_here():
    return ["cpu"] + [kind for kind in ("lavapipe", "swiftshader") if driver_file(kind)]


class Replica:
    """tq-run serve on a port of its own, which it keeps when it is started again."""

    def __init__(self, program, kind, folder, flags=(), host=Loopback):
        self.kind, self.host, self.port, self.folder = kind, host, free_port(), pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.environment = {**os.environ, "TQ_CACHE_DIR": str(self.folder), "TQ_PROVE": "0"}
        device = "cpu"
        if kind != "cpu":
            self.environment["VK_DRIVER_FILES"] = self.environment["VK_ICD_FILENAMES"] = driver_file(kind)
            device = "0"
        self.command = [*host.prefix, program, "serve", "--device", device, "-np", "4", "-c", "2048", "--host", host.address, "--port", str(self.port),
                        "--api-key", KEY, *flags]
        self.process, self.stopped_in = None, 0.0

    def start(self):
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=self.log, stderr=self.log)

    def said(self):
        return (self.folder / "log").read_text(errors="replace")

    def wait_until_healthy(self, timeout=600):
        end = time.monotonic() + timeout
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"a replica on {self.kind} does not start: {self.said()[-500:]}")
            time.sleep(0.05)

    def healthy(self):
        try:
            return self.call("GET", "/health", timeout=5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def call(self, method, path, body=None, timeout=120):
        connection = http.client.HTTPConnection(self.host.address, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {KEY}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def answer(self, request):
        """The text of an answer, and why it ended."""
        status, body = self.call("POST", "/v1/chat/completions", json.dumps({**request, "stream": False}))
        if status != 200:
            raise AssertionError(f"a replica on {self.kind} alone answers {status}: {body[:300]}")
        choice = json.loads(body)["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Asks it to stop, and returns its exit status."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(1800)
        self.stopped_in = time.monotonic() - began
        return status


def missing_program():
    return next((program for program in ("haproxy", "openssl") if not shutil.which(program)), None)
