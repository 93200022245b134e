"""A server that is named is asked before anything is written down: what answers, and what is told where none does."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from profiles.errors import ProfileError, Unavailable
from tasks.prefect import server
from tasks.prefect.reach import reached_api
from tasks.prefect.server import named_server
from tasks.prefect_clients import get_client
from tests.support.servers.proxies import Answers, Proxy, proxy

API: Answers = {"/api/health": (200, "true"), "/api/admin/version": (200, '"3.8.8"')}
PAGE: Answers = {"/api/health": (200, "true"), "/health": (200, "<!doctype html>")}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        for one in (name, name.lower()):
            monkeypatch.delenv(one, raising=False)


@pytest.fixture
def front() -> Iterator[Proxy]:
    """A server that answers as an API does."""
    with proxy(API) as made:
        yield made


def test_the_address_of_an_api_stays(front: Proxy) -> None:
    assert reached_api(f"{front.url}/api") == f"{front.url}/api"
    assert front.asked == ["GET /api/health", "GET /api/admin/version"]


def test_an_api_below_what_was_named_is_found(front: Proxy) -> None:
    assert reached_api(front.url) == f"{front.url}/api"
    front.answers = PAGE
    assert reached_api(front.url) == f"{front.url}/api", "a page is no answer of an API"


def test_an_api_without_that_ending_stays_too(front: Proxy) -> None:
    front.answers = {"/health": (200, "true")}
    assert reached_api(f"{front.url}/team") == f"{front.url}/team"


def test_where_it_redirects_is_its_address(front: Proxy) -> None:
    with proxy({"/health": (307, f"{front.url}/api/health")}) as before:
        assert reached_api(f"{before.url}/api") == f"{front.url}/api"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({}, "is not the API of a Prefect server: it answers 404 Not Found"),
        ({"/health": (200, "<html>")}, "is not the API of a Prefect server: it answers with a page"),
        ({"/health": (401, "")}, "answers 401 Unauthorized: set PREFECT_API_AUTH_STRING to its user:password"),
        ({"/health": (403, "")}, "answers 403 Forbidden: set PREFECT_API_AUTH_STRING"),
        ({"/health": (200, "true"), "/version": (401, "")}, "answers 401 Unauthorized: set PREFECT_API_AUTH_STRING"),
        ({"/health": (400, "")}, "it answers 400 Bad Request"),
    ],
)
def test_a_final_answer_is_final(answers: Answers, told: str) -> None:
    with proxy(answers) as other, pytest.raises(ProfileError, match=told):
        reached_api(f"{other.url}/api")


def test_a_wrong_password_is_told_as_one(front: Proxy) -> None:
    front.answers = {"/health": (200, "true"), "/version": (401, "")}
    with pytest.raises(ProfileError, match="PREFECT_API_AUTH_STRING is not its user:password"):
        reached_api(f"{front.url}/api", "admin:wrong")
    assert all(head["Authorization"].startswith("Basic ") for head in front.heads)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_answer_that_may_change_is_asked_again_later(status: int) -> None:
    with proxy({"/health": (status, "")}) as other, pytest.raises(Unavailable, match=f"answers {status}"):
        reached_api(f"{other.url}/api")


def test_who_speaks_another_language_is_told(front: Proxy) -> None:
    with pytest.raises(ProfileError, match=r"speaks no HTTPS .*: is it http:// \?"):
        reached_api(f"{front.url.replace('http', 'https')}/api")
    with pytest.raises(ProfileError, match="nobody knows the host"):
        reached_api("http://no-such-host.invalid/api")
    with socket.socket() as shut:
        shut.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match=r"does not answer .*refused"):
            reached_api(f"http://127.0.0.1:{shut.getsockname()[1]}/api")


def test_a_server_elsewhere_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch, front: Proxy) -> None:
    monkeypatch.setenv("HTTP_PROXY", front.url.replace("//", "//me:secret@"))
    assert reached_api("http://prefect.test/api") == "http://prefect.test/api"
    assert front.asked == ["GET http://prefect.test/api/health", "GET http://prefect.test/api/admin/version"]
    front.answers = {"/health": (407, "")}
    with pytest.raises(ProfileError, match=r"407 .*the proxy http://127[0-9.:]+ wants a user and a password") as told:
        reached_api("http://prefect.test/api")
    assert "secret" not in str(told.value)
    front.answers = {"/health": (502, "")}
    with pytest.raises(Unavailable, match="answers 502 through the proxy http://127"):
        reached_api("http://prefect.test/api")


def test_prefect_s_own_client_goes_the_same_way(monkeypatch: pytest.MonkeyPatch, front: Proxy) -> None:
    monkeypatch.setenv("HTTP_PROXY", front.url)
    monkeypatch.setenv("NO_PROXY", "[::1],fd00::/8")  # which it cannot read by itself
    for url in ("http://prefect.test/api", f"{front.url}/api"):
        with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
            assert client.api_healthcheck() is None
    assert [one for one in front.asked if one.endswith("health")] == [
        "GET http://prefect.test/api/health",
        "GET /api/health",
    ]


@pytest.mark.parametrize("proxied", ["socks5://proxy.test:1080", "socks4://proxy.test:1080", "nonsense://x"])
def test_a_proxy_that_cannot_be_used_is_told_and_no_matter_here(
    monkeypatch: pytest.MonkeyPatch, front: Proxy, proxied: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxied)
    with pytest.raises(ProfileError, match=r"pip install|correct them"):
        reached_api("http://prefect.test/api")
    assert reached_api(front.url) == f"{front.url}/api"


def test_the_environment_says_from_then_on_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, front: Proxy, tmp_path: Path
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert named_server(tmp_path) == ""
    monkeypatch.setenv("PREFECT_API_URL", f" {front.url}/ ")
    assert named_server(tmp_path) == os.environ["PREFECT_API_URL"] == f"{front.url}/api"


def test_who_does_not_answer_is_waited_for_and_then_told(
    monkeypatch: pytest.MonkeyPatch, front: Proxy, tmp_path: Path
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{front.url}/api")
    front.answers = {"/health": (503, "")}
    monkeypatch.setattr(server.time, "sleep", lambda _: front.answers.update(API) or front.answers.pop("/health", None))
    assert named_server(tmp_path) == f"{front.url}/api"
    front.answers = {"/health": (503, "")}
    monkeypatch.setattr(server, "NAMED_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="answers 503"):
        named_server(tmp_path)
