"""Replicas that run no model: they say who they are and what they were asked, and can be made to refuse, to break off or to stop."""
import http.server
import json
import threading
import time


class Stub:
    """Its `mode` says what becomes of a request: ok, refuse (503), mute (the connection is closed without an answer), break (in the middle of a
    stream), slow (an event every 0.3 s until it is told otherwise), think (no answer). `left` is set when the proxy goes away before it has its
    answer, `asked` has the bodies; what is not a POST takes `health_s`."""

    def __init__(self, name):
        self.name, self.mode, self.health_s, self.asked, self.left = name, "ok", 0.0, [], threading.Event()
        self.server = self.port = None
        self.start()

    def start(self):
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                time.sleep(stub.health_s)
                self.reply(503 if stub.mode == "refuse" else 200, {"path": self.path, "name": stub.name})

            do_HEAD = do_OPTIONS = do_DELETE = do_GET

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub.asked.append(body)
                if stub.mode == "mute":
                    self.close_connection = True
                elif stub.mode == "think":
                    self.wait_for_end()
                elif stub.mode in ("break", "slow"):
                    self.stream()
                else:
                    self.reply(503 if stub.mode == "refuse" else 200, {"name": stub.name, "bytes": len(body)})

            def reply(self, status, what):
                body = json.dumps(what).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def wait_for_end(self):
                self.connection.settimeout(30)
                try:
                    self.connection.recv(1) # nothing more is sent here
                except TimeoutError:
                    return
                except OSError:
                    pass
                stub.left.set()

            def stream(self):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                try:
                    while stub.mode in ("break", "slow"):
                        self.wfile.write(b"9\r\ndata: x\n\n\r\n")
                        if stub.mode == "break":
                            return
                        time.sleep(0.3)
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    stub.left.set()

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size, allow_reuse_address = True, 256, True

            def handle_error(self, *_):
                """The other side went away."""

        self.server = Server(("127.0.0.1", self.port or 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def die(self):
        """Nothing listens any more; the port stays its own."""
        self.server.shutdown()
        self.server.server_close()
