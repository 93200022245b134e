"""Whether a Prefect API answers at the address that a person named, asked the way our drivers will ask it."""

from __future__ import annotations

import socket
import ssl
from importlib import import_module
from os import environ
from urllib.parse import urlsplit, urlunsplit

import certifi
import httpx

from profiles.errors import ProfileError, Unavailable
from tasks.addresses import API_URL, proxy_of, unusable_proxies, without_password

ANSWER_SECONDS = 5.0
LATER = frozenset({408, 425, 429})
"""Statuses that may be another one a moment later; those from 500 on too."""
CLOSED = frozenset({401, 403, 407})
PASSWORD = "PREFECT_API_AUTH_STRING"  # noqa: S105 - the name of a variable


def reached_api(url: str, password: str = "") -> str:
    """The address at which the API answers: the one that was given, the same with `/api`, or where it redirects.

    `password` is `user:password`, "" where none is known.

    Raises:
        Unavailable: nobody answers now.
        ProfileError: asking again would not help; says what to correct.
    """
    with _client(url, password) as client:
        first = _ask(client, f"{url}/health")
        for candidate in (url, *([] if url.endswith("/api") else [f"{url}/api"])):
            answer = first if candidate == url else _ask(client, f"{candidate}/health")
            if answer.status_code == 200 and _is_json(answer):
                found = str(answer.url).removesuffix("/health")
                _check_door(_ask(client, f"{found}/admin/version"), found, password)
                return found
    _check_door(first, url, password)
    what = f"{without_password(url)} is not the API of a Prefect server: {_said(first)}"
    raise ProfileError(API_URL, f"{what}; {_where_else(without_password(url))}")


def _client(url: str, password: str) -> httpx.Client:
    """A client with the certificates, the password and the proxy that Prefect's own will have."""
    user, _, secret = password.partition(":")
    try:
        if proxy_of(url).lower().startswith("socks"):
            import_module("python_socks")  # the stream of events wants it, and says so nowhere
        return httpx.Client(
            auth=(user, secret) if password else None,
            verify=_certificates(),
            timeout=ANSWER_SECONDS,
            follow_redirects=True,
            trust_env=False,
            proxy=proxy_of(url) or None,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise ProfileError(API_URL, unusable_proxies(url, error)) from error


def _certificates() -> ssl.SSLContext:
    known = ssl.create_default_context(cafile=environ.get("PREFECT_API_SSL_CERT_FILE") or certifi.where())
    if environ.get("PREFECT_API_TLS_INSECURE_SKIP_VERIFY", "").lower() in {"1", "true", "yes", "on", "t", "y"}:
        known.check_hostname, known.verify_mode = False, ssl.CERT_NONE
    return known


def _ask(client: httpx.Client, url: str) -> httpx.Response:
    try:
        answer = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _lost(url, error) from error
    if answer.status_code in LATER or answer.status_code >= 500:
        raise Unavailable(f"{API_URL}: {without_password(url)} answers {answer.status_code}{_through_any(url)}")
    return answer


def _lost(url: str, error: Exception) -> ProfileError | Unavailable:
    """What it means that no answer came."""
    said, cause, url = f"{type(error).__name__}: {error}", error.__context__, without_password(url)
    while cause is not None:
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            return ProfileError(API_URL, f"nobody knows the host of {url}: correct the name, or connect to its network")
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "name the authority's file in PREFECT_API_SSL_CERT_FILE"
            return ProfileError(API_URL, f"the certificate of {url} is not trusted ({cause.verify_message}): {advice}")
        if isinstance(cause, ssl.SSLError):
            return ProfileError(API_URL, f"{url} speaks no HTTPS ({cause.reason}): is it http:// ?")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.RemoteProtocolError | httpx.UnsupportedProtocol | httpx.TooManyRedirects):
        return ProfileError(API_URL, f"what answers at {url} is no HTTP server of Prefect's ({said}): correct it")
    return Unavailable(f"{API_URL}: the Prefect server at {url} does not answer{_through_any(url)} ({said})")


def _check_door(answer: httpx.Response, url: str, password: str) -> None:
    if answer.status_code in CLOSED:
        advice = f"{PASSWORD} is not its user:password" if password else f"set {PASSWORD} to its user:password"
        if answer.status_code == 407:
            advice = f"the proxy {without_password(proxy_of(url))} wants a user and a password"
        said = f"{answer.status_code} {answer.reason_phrase}".rstrip()
        raise ProfileError(API_URL, f"{without_password(url)} answers {said}: {advice}")


def _is_json(answer: httpx.Response) -> bool:
    try:
        answer.json()
    except ValueError:
        return False
    return True


def _said(answer: httpx.Response) -> str:
    if answer.status_code == 200:
        return "it answers with a page"
    return f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()


def _where_else(url: str) -> str:
    parts = urlsplit(url)
    root = urlunsplit((parts.scheme, parts.netloc, "/api", "", ""))
    return f"its address ends in /api by default, here {root}" if root != url else "ask who runs it for its address"


def _through_any(url: str) -> str:
    proxy = proxy_of(url)
    return f" through the proxy {without_password(proxy)} of the environment" if proxy else ""
