"""What Open OnDemand's Apache does: it shows the session's card, and forwards /node/<host>/<port>/ to the node.

As the generated portal configuration has it: the path as it is, the node's name in Host, `Authorization` removed,
`X-Forwarded-Proto` added, cookies bound to /node/<host>/<port>, WebSockets too.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Portal(ThreadingHTTPServer):
    """On a free port of this machine, in threads, until `close`.

    Args:
        card: HTML of the page at `/`. address: where the node answers, whatever it is called.
    """

    daemon_threads = True

    def __init__(self, card: str, address: str):
        super().__init__(("127.0.0.1", 0), _Request)
        self.card = f"<!DOCTYPE html><title>My Interactive Sessions</title>{card}"
        self.address = address
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: Portal

    def do_GET(self) -> None:
        if self.path != "/":
            self.forward()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.card.encode())

    def forward(self) -> None:
        """Hand one request to the node, and its answer back; the connection ends with it."""
        self.close_connection = True
        found = re.match(r"/node/([\w.-]+)/(\d+)", self.path)
        if found is None:
            self.send_error(404)
            return
        host, port = found.groups()
        upgrade = "Upgrade" in self.headers
        for name in ("Host", "Authorization", *(() if upgrade else ("Connection", "Keep-Alive"))):
            del self.headers[name]
        self.headers["Host"] = f"{host}:{port}"
        self.headers["X-Forwarded-Proto"] = "http"
        if not upgrade:
            self.headers["Connection"] = "close"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with socket.create_connection((self.server.address, int(port)), timeout=60) as node:
            node.settimeout(None)
            node.sendall(f"{self.requestline}\r\n{self.headers}".encode("latin-1") + body)
            if upgrade:
                threading.Thread(target=self.pour, args=(node,), daemon=True).start()
            answer = node.makefile("rb")
            for line in iter(answer.readline, b"\r\n"):
                if not line:
                    break
                line = re.sub(rb"(?i)^(location: )[^/]+//[^/]+", rb"\1", line)
                if line.lower().startswith(b"set-cookie:"):
                    line = re.sub(rb"(?i);\s*path[^;\r]*", b"", line)
                    line = line.rstrip() + f"; Path=/node/{host}/{port}\r\n".encode()
                self.wfile.write(line)
            self.wfile.write(b"\r\n")
            with contextlib.suppress(ConnectionError):
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)

    do_POST = do_PUT = do_PATCH = do_DELETE = forward

    def pour(self, node: socket.socket) -> None:
        """What the browser sends on a WebSocket, to the node."""
        with contextlib.suppress(OSError):
            while chunk := self.rfile.read1(65536):
                node.sendall(chunk)
            node.shutdown(socket.SHUT_WR)

    def log_message(self, *_: object) -> None:
        """Quiet."""
