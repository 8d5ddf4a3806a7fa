"""A server on a free port of this machine, for as long as a measurement asks it."""
import http.client
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(sys.argv[0]).name


class Server:
    """`name` stands in messages; `command` is the server's, without an address. As a context it is stopped at the end."""

    def __init__(self, name, command):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.name, self.log = name, tempfile.TemporaryFile()
        words = [str(word) for word in command] + ["--host", "127.0.0.1", "--port", str(self.port)]
        print("$", *words, file=sys.stderr, flush=True)
        try:
            self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        except OSError as error:
            sys.exit(f"{PROGRAM}: {words[0]} cannot be run: {error.strerror}")
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def wait(self):
        end = time.monotonic() + 300
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"{PROGRAM}: {self.name} does not start: {self.log.read()[-600:].decode(errors='replace')}")
            time.sleep(0.05)

    def healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def request(self, path, body=None, timeout=3600):
        """The reply to POST, or to GET if there is no body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request(*(("GET", path) if body is None else ("POST", path, json.dumps(body), {"Content-Type": "application/json"})))
        reply = connection.getresponse()
        if reply.status != 200:
            sys.exit(f"{PROGRAM}: {self.name} answers {reply.status}: {reply.read(300)}")
        return reply

    def json(self, path, body=None):
        return json.loads(self.request(path, body).read())

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
