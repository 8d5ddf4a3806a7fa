"""HAProxy with the configuration that is shipped."""
import hashlib
import http.client
import pathlib
import re
import ssl
import subprocess
import time

from network import Loopback
from processes import KEY, ROOT, free_port

CONFIGURATION = ROOT / "packaging/haproxy/haproxy.cfg"


class Proxy:
    """HAProxy with the shipped configuration, or with `text`: only addresses, files and the list of servers are this test's. servers: host, port
    and weight of each."""

    def __init__(self, folder, servers, balance=None, text=None, keys=(KEY,), host=Loopback):
        self.folder, self.host, self.port, self.numbers_port = pathlib.Path(folder), host, free_port(), free_port()
        self.names = [f"replica{i + 1}" for i in range(len(servers))]
        self.make_certificate()
        (self.folder / "keys").write_text("".join(hashlib.sha256(key.encode()).hexdigest() + "\n" for key in keys))
        self.file, self.admin = self.folder / "haproxy.cfg", self.folder / "admin.sock"
        self.file.write_text(self.configure(text or CONFIGURATION.read_text(), servers, balance))
        self.tls = ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))
        self.check()
        self.start()

    def check(self):
        result = subprocess.run(["haproxy", "-dW", "-c", "-f", self.file], capture_output=True, text=True, timeout=60)
        if result.returncode != 0:
            raise AssertionError(f"`haproxy -dW -c` says: {result.stderr}")

    def start(self, *flags):
        with open(self.folder / "haproxy.log", "ab") as log:
            self.process = subprocess.Popen([*self.host.prefix, "haproxy", "-db", "-f", self.file, *flags], stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def reload(self):
        """As an operator does, for new keys, certificates or replicas, and as systemd's unit does it: the new process takes over the listening
        sockets, and the old one answers what it has begun. Returns that."""
        before = self.process
        self.start("-x", str(self.admin), "-sf", str(before.pid))
        return before

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", f"subjectAltName=IP:{self.host.address}", "-keyout", self.folder / "key.pem", "-out",
                        self.folder / "certificate.pem"], check=True, capture_output=True)
        whole = (self.folder / "certificate.pem").read_text() + (self.folder / "key.pem").read_text()
        (self.folder / "tq-run.pem").write_text(whole)

    def configure(self, text, servers, balance):
        def replace(pattern, by, count=1):
            nonlocal text
            text, found = re.subn(pattern, by, text, flags=re.MULTILINE)
            if found != count:
                raise AssertionError(f"{CONFIGURATION} has {found} lines of the form {pattern}, not {count}")

        replace(r"bind :443 ssl", f"bind {self.host.address}:{self.port} ssl")
        replace(r"bind 127\.0\.0\.1:8404", f"bind {self.host.address}:{self.numbers_port}")
        replace(r"/etc/haproxy/tq-run\.pem", str(self.folder / "tq-run.pem"))
        replace(r"/etc/haproxy/tq-run-keys", str(self.folder / "keys"))
        replace(r"/run/haproxy/admin\.sock", str(self.admin))
        replace(r"^    server .*\n", "", 3)
        if balance:
            replace(r"^    balance hash .*$", f"    balance {balance}")
            replace(r"^    hash-balance-factor .*\n", "")
        lines = "".join(f"    server {name} {host.address}:{port} id {i + 1} weight {weight}\n" for i, (name, (host, port, weight)) in enumerate(zip(self.names, servers)))
        at = text.index("\nlisten numbers")
        before = text.rindex("\n\n", 0, at) + 1
        return text[:before] + lines + text[before:]

    def connect(self, timeout):
        return http.client.HTTPSConnection(self.host.address, self.port, timeout=timeout, context=self.tls)

    def rows(self):
        """HAProxy's statistics of the replicas and of all together, by name."""
        connection = http.client.HTTPConnection(self.host.address, self.numbers_port, timeout=10)
        try:
            connection.request("GET", "/;csv")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        fields = lines[0].lstrip("# ").split(",")
        rows = [dict(zip(fields, line.split(","))) for line in lines[1:] if line]
        return {row["svname"]: row for row in rows if row["pxname"] == "replicas"}

    def up(self):
        """How many replicas the proxy sends requests to."""
        return sum(row["status"].startswith("UP") for name, row in self.rows().items() if name in self.names)

    def open_requests(self):
        return int(self.rows()["BACKEND"]["scur"])

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
