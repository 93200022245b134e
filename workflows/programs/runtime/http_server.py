"""A small HTTP/1.1 server for one thread: JSON both ways, long polls, thousands of kept connections.

(`http.server` costs 60 ms of imports and a thread for each of a gang's connections, of which two are open per pod.)
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Union, cast

BODY_LIMIT = 16 * 1024 * 1024
HEAD_LIMIT = 32 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            405: "Method Not Allowed", 409: "Conflict"}  # fmt: skip
FULL_SECONDS = 0.25
"""How long nobody new is let in when the system has no descriptor left."""
_PARK_LOOK_SECONDS = 0.25
"""Long polls end this much late at most."""


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str
    """From `Authorization: Bearer` or `X-Primus-Token`; "" where there is none."""
    body: Mapping[str, Any] = field(default_factory=lambda: {})


@dataclass(frozen=True)
class Response:
    """One answer."""

    status: int
    body: Any
    """Text as it is (metrics), everything else as JSON."""


@dataclass(frozen=True)
class DeferredResponse:
    """An answer that may have to wait."""

    poll: Callable[[], Optional[Response]]
    """The answer, once there is one; asked again after every change."""
    seconds: float
    timeout_response: Response
    """The answer when the time is over."""


Handler = Callable[[Request], Union[Response, DeferredResponse]]


class BadRequestError(ValueError):
    """Not HTTP as we read it."""


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.inbox = b""
        self.outbox = b""
        self.parked: Optional[DeferredResponse] = None
        self.until = 0.0
        self.closing = False


class Server:
    """A server at an IPv4 or IPv6 `address` and `port` (0: a free one, see `port`); its only thread calls `handler`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, address: str, port: int, handler: Handler) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((address, port))
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._handler = handler
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._parked: Set[_Connection] = set()
        self._changed = False
        self._next_look = 0.0
        self._full_until = 0.0

    def watch(self, fd: int) -> None:
        """Let `turn` end also when `fd` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, fd)

    def wake(self) -> None:
        """Something changed that long polls may wait for."""
        self._changed = True

    def turn(self, timeout_seconds: float) -> List[int]:
        """Serve what is there; wait for it at most so long. Returns the watched descriptors that are readable."""
        readable: List[int] = []
        if self._full_until and time.monotonic() >= self._full_until:
            self._full_until = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        timeout_seconds = min(timeout_seconds, FULL_SECONDS) if self._full_until else timeout_seconds
        wait = min(timeout_seconds, _PARK_LOOK_SECONDS) if self._parked else timeout_seconds
        for key, mask in self._selector.select(0 if self._changed else wait):
            if key.data is None:
                self._accept()
            elif isinstance(key.data, int):
                readable.append(key.data)
            else:
                self._serve(key.data, mask)
        self._look_at_parked()
        return readable

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Connection):
                key.data.socket.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    # No descriptor is left: who knocks waits, and those who are in are served.
                    self._selector.unregister(self._listener)
                    self._full_until = time.monotonic() + FULL_SECONDS
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(sock, selectors.EVENT_READ, _Connection(sock))

    def _serve(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                data = connection.socket.recv(262144)
                if not data:
                    self._drop(connection)
                    return
                connection.inbox += data
                self._answer_all(connection)
            self._send(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _answer_all(self, connection: _Connection) -> None:
        while connection.parked is None and not connection.closing:
            try:
                request = _next_request(connection)
            except BadRequestError as error:
                connection.closing = True
                connection.outbox += _encode(Response(400, {"error": str(error)}), True)
                return
            if request is None:
                return
            outcome = self._handler(request)
            if isinstance(outcome, DeferredResponse):
                now_known = outcome.poll()
                if now_known is None and outcome.seconds > 0:
                    connection.parked, connection.until = outcome, time.monotonic() + outcome.seconds
                    self._parked.add(connection)
                    return
                outcome = now_known or outcome.timeout_response
            connection.outbox += _encode(outcome)

    def _look_at_parked(self) -> None:
        changed, self._changed = self._changed, False
        now = time.monotonic()
        if not changed and now < self._next_look:
            return
        self._next_look = now + _PARK_LOOK_SECONDS
        for connection in list(self._parked):
            parked = connection.parked
            if parked is None or not (changed or now >= connection.until):
                continue
            answer = parked.poll() or (parked.timeout_response if now >= connection.until else None)
            if answer is not None:
                self._parked.discard(connection)
                connection.parked = None
                connection.outbox += _encode(answer)
                self._answer_all(connection)
                self._try_to_send(connection)

    def _try_to_send(self, connection: _Connection) -> None:
        try:
            self._send(connection)
        except OSError:
            self._drop(connection)

    def _send(self, connection: _Connection) -> None:
        if connection.outbox:
            try:
                sent = connection.socket.send(connection.outbox)
            except BlockingIOError:
                sent = 0
            connection.outbox = connection.outbox[sent:]
        if connection.closing and not connection.outbox:
            self._drop(connection)
            return
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outbox else 0)
        key = self._selector.get_key(connection.socket)
        if key.events != interest:
            self._selector.modify(connection.socket, interest, connection)

    def _drop(self, connection: _Connection) -> None:
        self._parked.discard(connection)
        try:
            self._selector.unregister(connection.socket)
        except KeyError:
            return
        connection.socket.close()


def _next_request(connection: _Connection) -> Optional[Request]:
    head, found, rest = connection.inbox.partition(b"\r\n\r\n")
    if not found:
        if len(connection.inbox) > HEAD_LIMIT:
            raise BadRequestError("the head of the request is too long")
        return None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError("not an HTTP/1.1 request")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length_text = fields.get("content-length", "0")
    plain = length_text.isascii() and length_text.isdigit() and len(length_text) < 10
    if not plain or int(length_text) > BODY_LIMIT or "transfer-encoding" in fields:
        raise BadRequestError("the body must have a Content-Length below 16 MiB")
    length = int(length_text)
    if len(rest) < length:
        return None
    connection.inbox = rest[length:]
    return _read(words[0], words[1], fields, rest[:length])


def _read(method: str, target: str, fields: Mapping[str, str], data: bytes) -> Request:
    path, _, text = target.partition("?")
    pairs = [pair.partition("=") for pair in text.split("&") if pair]
    query: Dict[str, str] = {name: value for name, _, value in pairs}
    try:
        body: Any = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    authorization = fields.get("authorization", "")
    token = authorization[7:] if authorization[:7].lower() == "bearer " else ""
    asked = cast("Dict[str, Any]", body)
    return Request(method, path, query, fields.get("x-primus-token", "") or token, asked)


def _encode(response: Response, close: bool = False) -> bytes:
    text = isinstance(response.body, str)
    data = (response.body if text else json.dumps(response.body, separators=(",", ":"))).encode()
    kind = "text/plain; version=0.0.4; charset=utf-8" if text else "application/json"
    reason = _REASONS.get(response.status, "Error")
    ending = "Connection: close\r\n" if close else ""
    head = f"HTTP/1.1 {response.status} {reason}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(data)}\r\n{ending}\r\n".encode() + data
