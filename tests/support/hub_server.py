#!/usr/bin/env python3
"""A hub on loopback for the tests, with every fault that a hub, a proxy or an attacker may have: the repository's name chooses it.

usage: hub_server.py FILE
FILE is the content of test/demo's model. Prints "PORT PORT": the hub's and that of another host, to which it redirects.
GET /log returns, and forgets, what has been asked for.
"""

import hashlib
import http.server
import json
import os
import random
import re
import sys
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 1 << 16
lock = threading.Lock()
log, counts, ports = [], {}, []


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def one_model(seed=1, name="m-Q8_0.gguf"):
    return {name: noise(1_500_000, seed)}


def make_repositories(demo):
    config = {"config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b"{}", "README.md": b"# a model\n"}
    shards = {f"model-0000{i}-of-00002.safetensors": noise(70_000, i) for i in (1, 2)}
    repositories = {
        "test/demo": {"README.md": b"# demo\n", "demo-F16.gguf": noise(2000, 3), "demo-Q8_0.gguf": demo,
                      "mmproj-demo-Q8_0.gguf": noise(100, 4), "config.json": b"{}", "empty.txt": b""},
        "test/safetensors": {**config, **shards, "model.safetensors.index.json": b"{}", "onnx/model.onnx": b"x",
                             "merges.txt": b""},
        "test/halfsplit": {"m-Q8_0-00001-of-00002.gguf": noise(10, 1)},
        "test/split": {f"q8/m-Q8_0-0000{i}-of-00003.gguf": noise(50_000 + i, i) for i in (1, 2, 3)},
        "test/paged": {f"m-Q{i}_0.gguf": noise(1000 + i, i) for i in range(1, 9)},
        "test/traversal": {"../../../evil-Q8_0.gguf": b"evil"},
        "test/absolute": {"/tmp/evil-Q8_0.gguf": b"evil"},
        "test/backslash": {"..\\..\\evil-Q8_0.gguf": b"evil"},
        "test/control": {"evil\x1b[31m\0-Q8_0.gguf": b"evil"},
        "test/c1": {"evil\u009b31m-Q8_0.gguf": b"evil"},
        "test/bidi": {"evil\u202efugg-Q8_0.gguf": b"evil"},
    }
    for name in ("plain cut norange corrupt shifted cdn loop file paged gated private limited busy down slow longer shorter huge "
                 "badjson hugejson deepjson nocommit badoid listless stall norest rangeless badrange").split():
        repositories.setdefault("test/" + name, one_model())
    return repositories


def describe(repository, path, content):
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    item = {"type": "file", "path": path, "oid": blob, "size": len(content)}
    if path.endswith((".gguf", ".safetensors")):
        item["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    if repository == "test/huge":
        item["lfs"]["size"] = 1 << 49
    if repository == "test/badoid":
        item["lfs"]["oid"] = "../../../../evil"
    if repository == "test/longer":
        item["lfs"]["size"] = item["size"] = len(content) - 1000
    return item


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def count(self):
        with lock:
            counts[self.path] = counts.get(self.path, 0) + 1
            return counts[self.path]

    def do_GET(self):
        port = self.server.server_address[1]
        if self.path == "/log":
            with lock:
                body = json.dumps(log).encode()
                log.clear()
            return self.send(200, body)
        headers = {"port": port, "path": self.path, "range": self.headers.get("Range", ""),
                   "authorization": self.headers.get("Authorization", "")}
        with lock:
            log.append(headers)
        path, _, query = self.path.partition("?")
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)/(revision|tree|resolve)/(?:main|%s)(?:/(.*))?" % COMMIT, path)
        repository = found and found[1]
        if repository == "test/renamed":
            return self.send(307, Location=self.path.replace("renamed", "demo"))
        if not found or repository not in repositories:
            return self.send(404, b'{"error": "Repository not found"}', X_Error_Message="Repository not found")
        self.answer(repository, found[2], found[3], query)

    def answer(self, repository, verb, file, query):
        fault, number = repository.partition("/")[2], self.count()
        if fault == "private" and self.headers.get("Authorization") != "Bearer hf_good":
            return self.send(401, X_Error_Message="Invalid username or password.")
        if fault == "gated" and verb == "resolve":
            return self.send(403, X_Error_Message="Access to model test/gated is restricted\x1b[31m")
        if fault == "limited":
            return self.send(429, Retry_After="3600")
        if fault == "down" or (fault == "busy" and number <= 2):
            return self.send(503, b"busy" * 50_000)
        if verb == "revision":
            return self.revision(fault)
        if verb == "tree":
            return self.tree(repository, fault, query)
        content = repositories[repository].get(file)
        if content is None:
            return self.send(404)
        self.content(fault, number, content)

    def revision(self, fault):
        answers = {"badjson": b'{"sha": "0123', "deepjson": b"[" * 100_000, "nocommit": b'{"sha": "../../evil"}'}
        if fault == "hugejson":
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            try:
                for _ in range(64 << 4):
                    self.wfile.write(b" " * BLOCK)
            except OSError:
                pass
            return
        self.send(200, answers.get(fault, json.dumps({"id": "x", "sha": COMMIT}).encode()))

    def tree(self, repository, fault, query):
        if fault == "listless":
            return self.send(200, b'{"error": 3}')
        items = [describe(repository, path, content) for path, content in repositories[repository].items()]
        items.insert(0, {"type": "directory", "path": "q8", "oid": "0" * 40, "size": 0})
        if fault != "paged":
            return self.send(200, json.dumps(items).encode())
        cursor = int((re.search(r"cursor=(\d+)", query) or [0, "0"])[1])
        headers = {}
        if cursor + 3 < len(items):
            url = f"http://127.0.0.1:{ports[0]}{self.path.partition('?')[0]}?recursive=true&cursor={cursor + 3}"
            headers["Link"] = f'<{url}>; rel="next"'
        self.send(200, json.dumps(items[cursor:cursor + 3]).encode(), **headers)

    def content(self, fault, number, content):
        here = self.server.server_address[1]
        if fault == "cdn" and here == ports[0]:
            return self.send(302, Location=f"http://127.0.0.1:{ports[1]}{self.path}?signature=abc")
        if fault == "loop":
            return self.send(302, Location=self.path)
        if fault == "file":
            return self.send(302, Location="file:///etc/passwd")
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and fault != "norange" else 0
        if first > 0 and (first >= len(content) or fault == "norest"):
            return self.send(416)
        body = content[first:]
        if fault == "corrupt":
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(206 if first else 200)
        if first:
            begin = first - 7 if fault == "shifted" else first
            ranges = {"rangeless": None, "badrange": "bytes 99999999999999999999999-"}
            value = ranges.get(fault, f"bytes {begin}-{len(content) - 1}/{len(content)}")
            if value:
                self.send_header("Content-Range", value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "shorter" or fault == "cut" or (fault == "norange" and number == 1):
            body, self.close_connection = body[:0 if fault == "shorter" else 400_000], True
        if fault in ("norest", "rangeless", "badrange"):  # each time more than an attempt must bring
            body, self.close_connection = body[:1_200_000], True
        self.dribble(fault, body)

    def dribble(self, fault, body):
        try:
            for begin in range(0, len(body), BLOCK):
                self.wfile.write(body[begin:begin + BLOCK])
                if fault == "slow":
                    time.sleep(0.05)
                if fault == "stall":
                    time.sleep(60)
        except OSError:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


with open(sys.argv[1], "rb") as demo_file:
    repositories = make_repositories(demo_file.read())
servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
ports += [server.server_address[1] for server in servers]
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdout.write("{} {}\n".format(*ports))
sys.stdout.flush()
parent = os.getppid()
while os.getppid() == parent:  # a killed test leaves no server running
    time.sleep(0.5)
