"""One HTTP request to whoever is asked to serve, and what a proof says of the answer."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

SECONDS = 10.0
ANSWER_BYTES = 32 << 20
SHOWN_CHARACTERS = 160
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


@dataclass(frozen=True)
class Seen:
    """What one proof saw."""

    word: str
    """`pass`, `fail` or `unknown`: nobody could look."""
    why: str
    """What was asked and what came, in one line."""


@dataclass(frozen=True)
class HttpReply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def shown(self) -> str:
        """Status and the beginning of the body, in one line."""
        return f"{self.status} {' '.join(self.text.split())[:SHOWN_CHARACTERS]}".strip()


class NoAnswerError(Exception):
    """Nobody answered there, or not in HTTP."""


class NotServedError(Exception):
    """It answered, and not what serving means; the message says what was asked and what came."""


def ask(
    method: str,
    url: str,
    body: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
    seconds: float = SECONDS,
) -> HttpReply:
    """The answer, whatever its status. No proxy is asked: everything stands in the cluster.

    Certificates are not verified: a proof asks whether something serves, with nothing secret but what the site made
    for the proof.

    Raises:
        NoAnswerError: none came in time.
    """
    handlers: List[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        request = urllib.request.Request(url, body, dict(headers or {}), method=method)  # noqa: S310
        return _reply(urllib.request.build_opener(*handlers), request, seconds)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{method} {_plain(url)}: {error}") from error


def _reply(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> HttpReply:
    try:
        with opener.open(request, timeout=seconds) as answer:
            return HttpReply(answer.status, _lower(answer.headers.items()), answer.read(ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return HttpReply(error.code, _lower(error.headers.items()), error.read(ANSWER_BYTES))


def served(
    method: str,
    url: str,
    wanted: Tuple[int, ...],
    body: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
) -> HttpReply:
    """The answer with one of the wanted statuses.

    Raises:
        NoAnswerError: none came.
        NotServedError: another status.
    """
    reply = ask(method, url, body, headers)
    if reply.status not in wanted:
        raise NotServedError(f"{method} {_plain(url)} answered {reply.shown}")
    return reply


def _lower(pairs: Iterable[Tuple[str, str]]) -> Dict[str, str]:
    return {name.lower(): value for name, value in pairs}


def _plain(url: str) -> str:
    return url.split("?", maxsplit=1)[0]
