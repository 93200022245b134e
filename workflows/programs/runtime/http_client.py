"""A small HTTP client for the coordinator: one kept connection, JSON both ways, no import that costs start-up time.

(`http.client` alone needs 25 ms to import, a third of what a launcher may take until it starts its ranks.)
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, cast

HEAD_LIMIT = 64 * 1024
ANSWER_LIMIT = 64 * 1024 * 1024


class UnreachableError(Exception):
    """No server answers there now, or not in time, or not in HTTP: try again later."""


class AddressError(ValueError):
    """A URL that is not `http://host[:port]`."""


@dataclass(frozen=True)
class HttpAnswer:
    """What came back."""

    status: int
    body: Dict[str, Any]
    """The JSON object; empty where the body was something else."""


def split_url(url: str) -> Tuple[str, int]:
    """Host and port of `http://host[:port]`; an IPv6 host stands in brackets.

    Raises:
        AddressError: it is something else.
    """
    scheme, marker, rest = url.partition("://")
    place = rest.rstrip("/")
    if scheme != "http" or not marker or not place or "/" in place:
        raise AddressError(f"expected http://host:port, got {url!r}")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "80"
    if not port.isdigit() or not host:
        raise AddressError(f"expected http://host:port, got {url!r}")
    return host.strip("[]"), int(port)


def hosts_of(text: str) -> Dict[str, List[str]]:
    """Addresses by host name, from the text of a file like /etc/hosts."""
    known: Dict[str, List[str]] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        for name in words[1:]:
            known.setdefault(name.lower(), []).append(words[0])
    return known


def addresses(host: str, hosts_file: str = "") -> List[str]:
    """Addresses of `host`: from the hosts file where there is one, else from the system's resolver.

    Raises:
        UnreachableError: nobody knows the name (yet: a pod's name appears when the pod does).
    """
    if hosts_file:
        try:
            with open(hosts_file, encoding="utf-8", errors="replace") as file:
                found = hosts_of(file.read()).get(host.lower())
        except OSError:
            found = None
        if found:
            return found
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise UnreachableError(f"{host}: name not known: {error}") from error


class Client:
    """Requests to one server over one connection that is opened when needed. Use from one thread only.

    `token` is sent with each request; `hosts_file` is tried before DNS ("": DNS only); `local_address` is the source of
    the connection ("": the system chooses).
    """

    def __init__(self, url: str, token: str = "", hosts_file: str = "", local_address: str = "") -> None:
        self._host, self._port = split_url(url)
        self._token = token
        self._hosts_file = hosts_file
        self._local_address = local_address
        self._socket: Optional[socket.socket] = None

    def request(self, method: str, path: str, body: Optional[Any] = None, timeout_seconds: float = 5.0) -> HttpAnswer:
        """Ask once; a kept connection that the server has closed meanwhile is opened again.

        Raises:
            UnreachableError: no answer; whether the request was carried out is not known.
        """
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nX-Primus-Token: {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        kept = self._socket is not None
        try:
            return self._exchange(head.encode() + data, timeout_seconds)
        except (OSError, ValueError, UnreachableError) as error:
            self.close()
            if not kept or isinstance(error, socket.timeout):
                raise UnreachableError(f"{self._host}:{self._port}: {error}") from error
        try:
            return self._exchange(head.encode() + data, timeout_seconds)
        except (OSError, ValueError, UnreachableError) as error:
            self.close()
            raise UnreachableError(f"{self._host}:{self._port}: {error}") from error

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes, timeout_seconds: float) -> HttpAnswer:
        connection = self._connected(timeout_seconds)
        connection.settimeout(timeout_seconds)
        connection.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data = _more(connection, data, HEAD_LIMIT)
        head, _, rest = data.partition(b"\r\n\r\n")
        status, fields = parse_head(head)
        length = int(fields.get("content-length", "0"))
        while len(rest) < length:
            rest = _more(connection, rest, ANSWER_LIMIT)
        if fields.get("connection", "").lower() == "close":
            self.close()
        return HttpAnswer(status, _object(rest[:length]))

    def _connected(self, timeout_seconds: float) -> socket.socket:
        if self._socket is not None:
            return self._socket
        error: Exception = UnreachableError("no address")
        for address in addresses(self._host, self._hosts_file):
            source = (self._local_address, 0) if self._local_address else None
            try:
                self._socket = socket.create_connection((address, self._port), min(timeout_seconds, 5.0), source)
            except OSError as refused:
                error = refused
                continue
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._socket
        raise error


def parse_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    """Status and header fields, their names in lower case.

    Raises:
        ValueError: not the head of an HTTP answer.
    """
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        raise ValueError(f"not HTTP: {lines[0][:80]!r}")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(words[1]), fields


def _more(connection: socket.socket, data: bytes, limit: int) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise UnreachableError("the connection was closed")
    if len(data) > limit:
        raise UnreachableError("the answer is too long")
    return data + piece


def _object(data: bytes) -> Dict[str, Any]:
    try:
        value: Any = json.loads(data) if data else {}
    except ValueError:
        return {}
    return cast("Dict[str, Any]", value) if isinstance(value, dict) else {}
