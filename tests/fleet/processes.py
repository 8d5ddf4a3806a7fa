"""What the tests of a fleet start: replicas of tq-run serve, the shipped configuration of HAProxy before them, and slow links between."""
import glob
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGURATION = ROOT / "packaging/haproxy/haproxy.cfg"
KEY = "fleet-test-key"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def driver_file(kind):
    """The Vulkan driver of a kind of replica; None where this machine does not have it."""
    patterns = {"lavapipe": ["/usr/share/vulkan/icd.d/lvp_icd*.json", "/usr/local/share/vulkan/icd.d/lvp_icd*.json"],
                "swiftshader": [str(ROOT / "build/swiftshader/*.json")]}
    return next((found for pattern in patterns[kind] for found in sorted(glob.glob(pattern))), None)


def kinds_here():
    return ["cpu"] + [kind for kind in ("lavapipe", "swiftshader") if driver_file(kind)]


class Replica:
    """tq-run serve on a port of its own, which it keeps when it is started again."""

    def __init__(self, program, kind, folder, flags=()):
        self.kind, self.port, self.folder = kind, free_port(), pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.environment = {**os.environ, "TQ_CACHE_DIR": str(self.folder), "TQ_PROVE": "0"}
        device = "cpu"
        if kind != "cpu":
            self.environment["VK_DRIVER_FILES"] = self.environment["VK_ICD_FILENAMES"] = driver_file(kind)
            device = "0"
        self.command = [program, "serve", "--device", device, "-np", "4", "-c", "2048", "--port", str(self.port), "--api-key", KEY, *flags]
        self.process, self.stopped_in = None, 0.0

    def start(self):
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=self.log, stderr=self.log)

    def said(self):
        return (self.folder / "log").read_text(errors="replace")

    def wait_until_healthy(self, timeout=120):
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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
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
        status = self.process.wait(120)
        self.stopped_in = time.monotonic() - began
        return status


class Link:
    """A slow way to a replica: each piece arrives after `delay_s`, some after the wait of a retransmission, in order."""

    def __init__(self, port, delay_s, loss):
        self.target, self.delay_s, self.loss = port, delay_s, loss
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        pieces, ready = [], threading.Condition()

        def deliver():
            while True:
                with ready:
                    ready.wait_for(lambda: pieces)
                    due, piece = pieces.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    sink.sendall(piece) if piece else sink.shutdown(socket.SHUT_WR)
                except OSError:
                    source.close()
                    return
                if not piece:
                    return

        threading.Thread(target=deliver, daemon=True).start()
        due, piece = 0.0, b"-"
        while piece:
            try:
                piece = source.recv(65536)
            except OSError:
                piece = b""
            lost = random.random() < self.loss
            due = max(due, time.monotonic() + self.delay_s + (0.2 + 2 * self.delay_s if lost else 0.0))
            with ready:
                pieces.append((due, piece))
                ready.notify()


class Proxy:
    """HAProxy with the shipped configuration: only addresses, files and the list of servers are this test's."""

    def __init__(self, folder, ports, balance=None):
        self.folder, self.port, self.numbers_port = pathlib.Path(folder), free_port(), free_port()
        self.names = [f"replica{i + 1}" for i in range(len(ports))]
        self.make_certificate()
        (self.folder / "keys").write_text(hashlib.sha256(KEY.encode()).hexdigest() + "\n")
        self.file = self.folder / "haproxy.cfg"
        self.file.write_text(self.configure(CONFIGURATION.read_text(), ports, balance))
        self.log = open(self.folder / "haproxy.log", "wb")
        self.process = subprocess.Popen(["haproxy", "-db", "-f", self.file], stdout=self.log, stderr=self.log)
        self.tls = ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", self.folder / "key.pem", "-out",
                        self.folder / "certificate.pem"], check=True, capture_output=True)
        whole = (self.folder / "certificate.pem").read_text() + (self.folder / "key.pem").read_text()
        (self.folder / "tq-run.pem").write_text(whole)

    def configure(self, text, ports, balance):
        def replace(pattern, by, count=1):
            nonlocal text
            text, found = re.subn(pattern, by, text, flags=re.MULTILINE)
            if found != count:
                raise AssertionError(f"{CONFIGURATION} has {found} lines of the form {pattern}, not {count}")

        replace(r"bind :443 ssl", f"bind 127.0.0.1:{self.port} ssl")
        replace(r"bind 127\.0\.0\.1:8404", f"bind 127.0.0.1:{self.numbers_port}")
        replace(r"/etc/haproxy/tq-run\.pem", str(self.folder / "tq-run.pem"))
        replace(r"/etc/haproxy/tq-run-keys", str(self.folder / "keys"))
        replace(r"^    server .*\n", "", 3)
        if balance:
            replace(r"^    balance hash .*$", f"    balance {balance}")
            replace(r"^    hash-balance-factor .*\n", "")
        servers = "".join(f"    server {name} 127.0.0.1:{port} id {i + 1}\n" for i, (name, port) in enumerate(zip(self.names, ports)))
        at = text.index("\nlisten numbers")
        before = text.rindex("\n\n", 0, at) + 1
        return text[:before] + servers + text[before:]

    def connect(self, timeout):
        return http.client.HTTPSConnection("localhost", self.port, timeout=timeout, context=self.tls)

    def up(self):
        """How many replicas the proxy sends requests to."""
        connection = http.client.HTTPConnection("127.0.0.1", self.numbers_port, timeout=10)
        connection.request("GET", "/;csv")
        lines = connection.getresponse().read().decode().splitlines()
        fields = lines[0].lstrip("# ").split(",")
        rows = [dict(zip(fields, line.split(","))) for line in lines[1:] if line]
        return sum(row["pxname"] == "replicas" and row["svname"] in self.names and row["status"].startswith("UP") for row in rows)

    def wait_until_up(self, count, timeout=60):
        end = time.monotonic() + timeout
        while True:
            try:
                if self.up() == count:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"HAProxy does not see {count} replicas: {(self.folder / 'haproxy.log').read_text()[-800:]}")
            time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def missing_program():
    return next((program for program in ("haproxy", "openssl") if not shutil.which(program)), None)
