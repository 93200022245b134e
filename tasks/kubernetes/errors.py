"""From an answer of the Kubernetes API to our errors. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from profiles.errors import Conflict, NotFound, Permanent, PrimusError, Refused, Unavailable

RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
"""Worth asking again: too many requests, or the server (or what stands before it) is in trouble."""
_REFUSALS = frozenset({400, 403, 413, 415, 422})
"""Statuses that say no to what was asked."""
_ADVICE = {401: ": the cluster does not accept our credentials, log in again"}
_UNTYPED = "failed to create typed patch object"
"""How a server-side apply says that a field is unknown or has the wrong type; it does so with status 500."""
_FIELDS = (
    re.compile(r'(?:unknown|duplicate) field "([^"]+)"'),
    re.compile(r"\): (?:errors:\s+)?\.(\S+): "),
)
"""Where a message names the offending field."""


class Expired(Unavailable):
    """The version asked for is no longer kept (410): the list must be read anew."""


_MEANINGS: Mapping[int, Callable[[str], PrimusError]] = {
    401: lambda text: Unavailable(text, retry_after_seconds=10.0),
    404: NotFound,
    409: Conflict,
    410: lambda text: Expired(text, retry_after_seconds=0.0),
}
"""What a status means; every other one is `Permanent`."""


def parse_status(body: bytes) -> dict[str, Any]:
    """The API server's own `Status` object, or {} where the body is something else."""
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    status = cast("dict[str, Any]", parsed)
    return status if status.get("kind") == "Status" and status.get("apiVersion") == "v1" else {}


def worth_repeating(code: int, body: bytes) -> bool:
    """Whether the same request may get a better answer a little later."""
    return code in RETRYABLE and not (code == 500 and _is_untyped(parse_status(body)))


def retry_after_seconds(headers: Mapping[str, str], status: dict[str, Any], otherwise: float = 1.0) -> float:
    """How long the server wants us to wait; at most a minute is believed."""
    for text in (headers.get("Retry-After", ""), str(_details(status).get("retryAfterSeconds", ""))):
        if text.strip().isdecimal():
            return min(float(text), 60.0)
    return otherwise


def failure(code: int, headers: Mapping[str, str], body: bytes, what: str) -> PrimusError:
    """The error that an unsuccessful answer means.

    The body is a `Status` object, or text of a proxy; `what` was asked, e.g. `apply JobSet demo-a1`.
    """
    status = parse_status(body)
    message = str(status.get("message") or body[:300].decode("utf-8", "replace").strip() or "no explanation")
    text = f"{what}: {message} (HTTP {code})"
    if code in _REFUSALS or (code == 500 and _is_untyped(status)):
        advice = ": grant our account the right to do this" if code == 403 and " cannot " in message else ""
        return Refused(_field(status, message) or what, f"{message}{advice}")
    if any(cause.get("reason") == "ResourceVersionTooLarge" for cause in _causes(status)):
        return Expired(text, 1.0)  # the cluster was restored from an older copy: what we have seen is not its past
    if code in RETRYABLE:
        return Unavailable(text, retry_after_seconds(headers, status))
    if code == 404 and not status:
        text = f"{what}: the cluster does not serve this kind: install its controller (HTTP 404)"
    make = _MEANINGS.get(code, Permanent)
    return make(f"{text}{_ADVICE.get(code, '')}")


def is_other_manager(body: bytes) -> bool:
    """True for the conflict of a server-side apply: somebody else set the field, asking again does not help."""
    return any(cause.get("reason") == "FieldManagerConflict" for cause in _causes(parse_status(body)))


def _field(status: dict[str, Any], message: str) -> str:
    """Path of the offending field inside the object, "" where the server does not say."""
    named = [str(cause["field"]) for cause in _causes(status) if cause.get("field") not in (None, "", "<nil>")]
    found = [match.group(1) for match in (pattern.search(message) for pattern in _FIELDS) if match]
    return next(iter([*named, *found]), "")


def _is_untyped(status: dict[str, Any]) -> bool:
    return str(status.get("message", "")).startswith(_UNTYPED)


def _details(status: dict[str, Any]) -> dict[str, Any]:
    details: Any = status.get("details")
    return cast("dict[str, Any]", details) if isinstance(details, dict) else {}


def _causes(status: dict[str, Any]) -> list[dict[str, Any]]:
    causes: Any = _details(status).get("causes")
    return cast("list[dict[str, Any]]", causes) if isinstance(causes, list) else []
