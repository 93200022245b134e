"""HTTP of the node daemon: a thread a connection, within limits of size, rate and number.

Standard library only, Python 3.9. A slow or silent client costs one place for a few seconds; who comes beyond the
limits is refused with 429, and liveness, readiness and metrics are not counted, so that a flood kills no pod.
"""

from __future__ import annotations

import socket
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Collection, List, Tuple

from workflows.programs.health.routes import PageResponse, Pages

IDLE_SECONDS = 10.0
"""For a request to arrive whole, and for each piece of an answer to be taken."""
BODY_BYTES = 65536
"""All requests are GETs; a body is read away and means nothing."""
PATH_CHARACTERS = 65536
UNCOUNTED = ("/healthz", "/readinessprobe", "/metrics")
READING_ROOM = 32
"""Places beside the limit for `UNCOUNTED` paths on their own ports."""
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


BURST = 10.0
"""Seconds of the rate that may come at once: a fleet's questions arrive together."""


class RateLimiter:
    """A token bucket that fills at `per_second`; requests are refused while it is empty."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = per_second, now
        self._most = max(1.0, BURST * per_second)
        self._level, self._at = self._most, now()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        with self._lock:
            now = self._now()
            self._level = min(self._most, self._level + (now - self._at) * self._rate)
            self._at = now
            if self._level < 1.0:
                return False
            self._level -= 1.0
            return True


class ConnectionLimiter:
    """So many at the same time."""

    def __init__(self, most: int) -> None:
        self._slots = threading.Semaphore(most)

    def enter(self) -> bool:
        """Whether there is room; `leave` afterwards."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        """Give the place back."""
        self._slots.release()


class HealthPort(ThreadingHTTPServer):
    """One listening port; raises OSError where it cannot be bound.

    `place` is address and port (0: a free one); `paths` are those of this port (empty: all).
    """

    daemon_threads = True
    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(
        self,
        place: Tuple[str, int],
        pages: Pages,
        paths: Collection[str],
        rate: RateLimiter,
        room: ConnectionLimiter,
        count: Callable[[str, int], None],
    ) -> None:
        self.pages, self.paths, self.rate, self.room, self.count = pages, paths, rate, room, count
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for it, where there is room."""
        if not self.room.enter():
            self.count("refused", 429)
            try:
                request.settimeout(0.1)
                request.sendall(REFUSED)
            except OSError:
                pass
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.room.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.leave()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: HealthPort  # pyright: ignore[reportIncompatibleVariableOverride] - the only one that makes us
    protocol_version = "HTTP/1.1"
    server_version = "primus-health"
    sys_version = ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        self._respond(True)

    def do_HEAD(self) -> None:
        self._respond(False)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are counted in metrics, not logged."""

    def _respond(self, body: bool) -> None:
        path, _, query = self.path.partition("?")
        path = path.rstrip("/") or "/"
        answer = self._answer(path, query)
        name = path if self.server.pages.known(path) else "other"
        self.server.count(name, answer.status)
        data = answer.body.encode("utf-8", "replace")
        self.close_connection = True
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status == 429:
            self.send_header("Retry-After", "1")
        if answer.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _answer(self, path: str, query: str) -> PageResponse:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit() or int(length) > BODY_BYTES:
            return PageResponse(413, f"a request has no body, or one of at most {BODY_BYTES} bytes with its length\n")
        self.rfile.read(int(length))
        if len(self.path) > PATH_CHARACTERS:
            return PageResponse(414, f"path and query have at most {PATH_CHARACTERS} characters\n")
        if self.server.paths and path not in self.server.paths:
            return PageResponse(404, f"this port serves {', '.join(self.server.paths)}\n")
        if path not in UNCOUNTED and not self.server.rate.take():
            return PageResponse(429, "too many requests: ask again in a second\n")
        typed = "application/json" in self.headers.get("Accept", "")
        try:
            return self.server.pages.answer(path, query, self.headers.get("Authorization", ""), typed)
        except Exception as error:
            traceback.print_exc()
            return PageResponse(500, f"{path}: {type(error).__name__}: {error}\n")


class HealthPorts:
    """All ports of one daemon, in threads of their own."""

    def __init__(self) -> None:
        self._servers: List[HealthPort] = []

    def add(self, server: HealthPort) -> int:
        """Serve; the port."""
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._servers.append(server)
        thread.start()
        return server.server_port

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
