"""Talking to one Kubernetes API server: configuration and TLS of the official client, our own limits and retries.

Every request has a deadline over all its tries. A request is tried again after 429, 5xx and broken connections, as long
as doing it twice does no harm; credentials that were refused are read anew once. An API server that has just started
refuses everything until it has read its rules: that refusal counts as no answer.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlencode

import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3.exceptions import HTTPError, NewConnectionError, ReadTimeoutError

from profiles.errors import Permanent, PrimusError, ProfileError, Unavailable
from tasks.addresses import unusable_proxies
from tasks.kubernetes.errors import failure, parse_status, retry_after_seconds, worth_repeating
from tasks.kubernetes.resources import JSON

READY_PATH = "/readyz"
SETTLE_SECONDS = 20.0
"""Where not even its readiness may be asked about, a no is believed after so long; a start takes a few seconds."""
FORGET_SECONDS = 300.0
"""A no that comes so long after the first one may be of another start."""

REQUEST_SECONDS = 10.0
"""Limit of one request with all its tries."""
CONNECT_SECONDS = 3.0
_BODY_BYTES = 64 << 20
"""More than any page of objects: an answer beyond this is refused instead of filling the memory."""
_LINE_BYTES = 8 << 20
"""More than any object (etcd keeps 1.5 MiB)."""
_CHUNK_BYTES = 1 << 16
_FIRST_WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Request:
    """One request as a value."""

    method: str
    path: str
    what: str
    """For messages: `apply JobSet demo-a1`."""
    query: Mapping[str, str] = field(default_factory=lambda: {})
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    repeatable: bool = True
    """False: only tried again where it certainly did not arrive."""


@dataclass(frozen=True)
class Reply:
    """The whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def decoded(reply: Reply, what: str) -> dict[str, Any]:
    """The JSON object of a good answer.

    Raises:
        Unavailable, NotFound, Conflict, Refused, Permanent: see `tasks.kubernetes.errors.failure`; an answer that is no
            object (the login page of a proxy) is Unavailable.
    """
    if reply.status >= 400:
        raise failure(reply.status, reply.headers, reply.body, what)
    try:
        answer: Any = json.loads(reply.body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"{what}: the answer is no JSON object ({reply.body[:80]!r})")
    return cast("dict[str, Any]", answer)


class ApiServer:
    """One API server. Thread-safe; connects at the first request.

    `load` reads the configuration, and again when credentials were refused; `clock` tells monotonic seconds.
    """

    def __init__(
        self,
        load: Callable[[], Configuration],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._load, self.clock, self.sleep = load, clock, sleep
        self._lock = threading.Lock()
        self._connected: tuple[Configuration, urllib3.PoolManager] | None = None
        self._starting = Starting(self._readiness, clock)

    def json(self, request: Request, timeout_seconds: float = REQUEST_SECONDS) -> dict[str, Any]:
        """The JSON object that the server answers.

        Raises:
            Unavailable, NotFound, Conflict, Refused, Permanent: see `tasks.kubernetes.errors.failure`.
        """
        return decoded(self.ask(request, timeout_seconds), request.what)

    def ask(self, request: Request, timeout_seconds: float = REQUEST_SECONDS) -> Reply:
        """The answer, whatever its status, once no other try may better it or the time is up.

        Raises:
            Unavailable: no answer within the time.
        """
        deadline, wait = self.clock() + timeout_seconds, _FIRST_WAIT_SECONDS
        while True:
            outcome = self._try(request, deadline)
            if isinstance(outcome, Reply) and not _worth_repeating(outcome, request):
                return outcome
            pause = max(wait * random.uniform(0.5, 1.5), _asked_pause(outcome))  # noqa: S311 - spreads load, no secret
            if self.clock() + pause >= deadline or (isinstance(outcome, _Lost) and not outcome.repeatable):
                if isinstance(outcome, Reply):
                    return outcome
                raise outcome.error
            self.sleep(pause)
            wait *= 2

    def once(self, request: Request, timeout_seconds: float) -> Reply:
        """The answer to a single try.

        Raises:
            Unavailable: no answer within the time.
        """
        outcome = self._try(request, self.clock() + timeout_seconds)
        if isinstance(outcome, _Lost):
            raise outcome.error
        return outcome

    @contextmanager
    def lines(self, request: Request, silence_seconds: float) -> Generator[Iterator[bytes]]:
        """The lines of an endless answer, without their newline, as they come; ends when the server ends it.

        It ends quietly after `silence_seconds` without a byte.

        Raises:
            Unavailable: broken connection, also between two lines.
            NotFound, Refused, Expired, Permanent: the server said so at once.
        """
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=silence_seconds)
        with _as_unavailable(request.what):
            response = self._send(request, timeout)
            if response.status == 401:
                response.close()
                self._reload()
                response = self._send(request, timeout)
        try:
            if response.status >= 400:
                body = _read(response, self.clock() + REQUEST_SECONDS, self.clock, request.what)
                error = failure(response.status, response.headers, body, request.what)
                raise self._starting.excuse(response.status, body, request.what) or error
            yield _lines(response, request.what)
        finally:
            # Not read to its end, the connection cannot be used again.
            if not response.closed:
                response.close()
            response.release_conn()

    def close(self) -> None:
        """Close idle connections; the next request opens new ones."""
        with self._lock:
            if self._connected is not None:
                self._connected[1].clear()
            self._connected = None

    def _try(self, request: Request, deadline: float) -> Reply | _Lost:
        outcome = self._try_once(request, deadline)
        # The server's own no, not the one of a pod behind its proxy.
        if isinstance(outcome, Reply) and outcome.status == 401 and parse_status(outcome.body):
            self._reload()
            return self._try_once(request, deadline)
        if isinstance(outcome, Reply) and refuses_rights(outcome.status, outcome.body):
            excuse = self._starting.excuse(outcome.status, outcome.body, request.what)
            return self._try_once(request, deadline) if excuse is None else _Lost(excuse, repeatable=True)
        return outcome

    def _readiness(self) -> int | None:
        answer = self._try_once(Request("GET", READY_PATH, "ask whether it is ready"), self.clock() + CONNECT_SECONDS)
        return answer.status if isinstance(answer, Reply) else None

    def _try_once(self, request: Request, deadline: float) -> Reply | _Lost:
        left = max(0.05, deadline - self.clock())
        try:
            with _as_unavailable(request.what):
                timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=left)
                response = self._send(request, timeout)
                try:
                    body = _read(response, deadline, self.clock, request.what)
                finally:
                    response.release_conn()
                return Reply(response.status, response.headers, body)
        except Unavailable as error:
            never_arrived = isinstance(error.__cause__, NewConnectionError)
            return _Lost(error, request.repeatable or never_arrived)

    def _send(self, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        configuration, pool = self._connection()
        headers = {"Accept": JSON, "User-Agent": "primus-flows", "Content-Type": request.content_type}
        # Asking for it also reads an expired token anew.
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        url = f"{configuration.host}{request.path}"
        if request.query:
            url += f"{'&' if '?' in request.path else '?'}{urlencode(request.query)}"
        return pool.request(
            request.method,
            url,
            body=request.body or None,
            headers=headers | dict(request.headers),
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _connection(self) -> tuple[Configuration, urllib3.PoolManager]:
        with self._lock:
            if self._connected is None:
                configuration = self._load()
                try:
                    self._connected = configuration, RESTClientObject(configuration).pool_manager
                except ImportError as error:
                    raise ProfileError("KUBECONFIG", unusable_proxies(configuration.host, error)) from error
            return self._connected

    def _reload(self) -> None:
        with self._lock:
            self._connected = None


@dataclass(frozen=True)
class _Lost:
    """No answer came."""

    error: PrimusError
    repeatable: bool


def _worth_repeating(reply: Reply, request: Request) -> bool:
    if reply.status == 429:
        return True
    return request.repeatable and worth_repeating(reply.status, reply.body)


def _asked_pause(outcome: Reply | _Lost) -> float:
    if isinstance(outcome, _Lost):
        return 0.0
    return retry_after_seconds(outcome.headers, parse_status(outcome.body), otherwise=0.0)


def _read(response: urllib3.BaseHTTPResponse, deadline: float, clock: Callable[[], float], what: str) -> bytes:
    """The body, within the time however slowly it trickles, and within the memory."""
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_CHUNK_BYTES):
        size += len(piece)
        if size > _BODY_BYTES:
            response.close()
            raise Permanent(f"{what}: the answer is larger than {_BODY_BYTES >> 20} MiB")
        if clock() > deadline:
            response.close()
            raise Unavailable(f"{what}: the answer came too slowly")
        pieces.append(piece)
    return b"".join(pieces)


def _lines(response: urllib3.BaseHTTPResponse, what: str) -> Iterator[bytes]:
    rest = b""
    with _as_unavailable(what):
        try:
            while piece := response.read1(_CHUNK_BYTES):
                *whole, rest = (rest + piece).split(b"\n")
                yield from whole
                if len(rest) > _LINE_BYTES:
                    raise Unavailable(f"{what}: a line longer than {_LINE_BYTES >> 20} MiB")
        except ReadTimeoutError:
            return
    if rest:
        yield rest


@contextmanager
def _as_unavailable(what: str) -> Generator[None]:
    try:
        yield
    except (HTTPError, OSError) as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise Unavailable(f"{what}: the cluster does not answer ({said})") from error


class Starting:
    """Distinguishes a refusal by a server that has just started from a lasting one. Thread-safe.

    `readiness` asks for the answer's status at `READY_PATH` (None where none comes), `clock` for monotonic seconds.
    """

    def __init__(self, readiness: Callable[[], int | None], clock: Callable[[], float]) -> None:
        self._readiness, self._clock = readiness, clock
        self._lock = threading.Lock()
        self._mute_since: float | None = None

    def excuse(self, code: int, body: bytes, what: str) -> Unavailable | None:
        """The error that says to ask later; None where the answer stands, whatever it is.

        `what` was asked, for the message.
        """
        if not refuses_rights(code, body) or not self._starts():
            return None
        return Unavailable(f"{what}: the API server has just started and refuses everything until it knows its rules")

    def _starts(self) -> bool:
        ready = self._readiness()
        if ready != 403:
            return ready is None or ready >= 500
        # It may be our rights that are so narrow: then it never says more.
        with self._lock:
            now = self._clock()
            if self._mute_since is None or now - self._mute_since > FORGET_SECONDS:
                self._mute_since = now
            return now - self._mute_since < SETTLE_SECONDS


def refuses_rights(code: int, body: bytes) -> bool:
    """Whether the server itself says that we may not, by its rules of access."""
    message = str(parse_status(body).get("message", "")) if code == 403 else ""
    return 'User "' in message and " cannot " in message
