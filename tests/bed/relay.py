"""A relay before the API server that a story can make answer badly: plain HTTP on this machine, TLS behind it.

Who asks keeps its own credentials: they are passed on as they are.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.bed.layout import Folder
from tests.bed.options import Options
from tests.support.running.waiting import patience

LIMIT_S = patience(60.0)
HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive"})
"""Headers that are between two neighbours, not passed on."""


@dataclass(frozen=True)
class Answer:
    """What the relay says instead of the API server."""

    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass
class Relay:
    """How it behaves now."""

    address: str
    """`http://127.0.0.1:<port>`."""
    instead: Callable[[str, str], Answer | None] = lambda method, path: None
    """Called with method and path; None: pass on."""
    answered: int = 0
    """How often `instead` had something to say."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    watches: set[socket.socket] = field(default_factory=set[socket.socket])
    """Connections to clients that watch or follow."""

    def cut(self) -> int:
        """Break every watch that is open now; how many there were."""
        with self.lock:
            found = list(self.watches)
            self.watches.clear()
        for connection in found:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(found)


@contextmanager
def relay(folder: Folder, options: Options) -> Generator[Relay]:
    """A relay for a while."""
    context = ssl.create_default_context(cafile=str(folder.certificates / "ca.crt"))

    class Handler(_Handler):
        to, how = (options.plane, 6443), context

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.relay = Relay(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Handler.relay
    finally:
        server.shutdown()
        thread.join()
        Handler.relay.cut()
        server.server_close()


def kubeconfig(made: Path, known: Path, address: str = "", token: str = "") -> Path:
    """A kubeconfig like a known one, through another address or with another token; complete at any moment."""
    content = yaml.safe_load(known.read_text(encoding="utf-8"))
    if address:
        content["clusters"][0]["cluster"] = {"server": address}
    if token:
        content["users"][0]["user"] = {"token": token}
    temporary = made.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(yaml.safe_dump(content), encoding="utf-8")
    return temporary.replace(made)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    relay: Relay
    to: tuple[str, int]
    how: ssl.SSLContext

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        instead = self.relay.instead(self.command, self.path)
        if instead is not None:
            with self.relay.lock:
                self.relay.answered += 1
            return self._say(instead)
        connection = http.client.HTTPSConnection(*self.to, timeout=LIMIT_S, context=self.how)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            connection.request(self.command, self.path, body or None, headers)
            self._pass_on(connection.getresponse())
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # whoever asked sees a broken connection, as without a relay
        finally:
            connection.close()
        return None

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

    def _say(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        length = answer.getheader("Content-Length")
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length" if length else "Transfer-Encoding", length or "chunked")
        self.end_headers()
        if length:
            self.wfile.write(answer.read())
            return
        with self.relay.lock:
            self.relay.watches.add(self.connection)
        try:
            while piece := answer.read1(1 << 16):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            with self.relay.lock:
                self.relay.watches.discard(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a story prints its own lines."""
