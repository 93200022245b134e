"""Addresses that the environment names: their one form, which are this machine's, which proxy leads to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.settings import PREFECT_API_URL, temporary_settings
from websockets.proxy import get_proxy
from websockets.uri import parse_uri

from profiles.errors import ProfileError
from tasks import addresses
from tasks.addresses import api_url, exempt, is_own, prepare, proxy_of
from tasks.kubernetes.api_server import ApiServer, Request
from tasks.prefect_clients import get_client
from tests.support.cases.rows import rows

OWN = "http://127.0.0.1:4200/api"
OUTSIDE = "http://prefect.test/api"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of whoever runs the tests; and a hosts file as Debian writes it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        for one in (name, name.lower()):
            monkeypatch.delenv(one, raising=False)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 laptop\n::1 ip6-localhost\n127.0.0.1 both\n10.1.2.3 both far\n")
    monkeypatch.setattr(addresses, "_HOSTS_FILE", hosts)


@rows("tasks/addresses")
def test_an_address_has_one_form(given: str, address: str) -> None:
    assert api_url(given) == address


@rows("tasks/addresses")
def test_what_is_no_address_is_told(given: str, told: str) -> None:
    with pytest.raises(ProfileError, match=told):
        api_url(given)


@rows("tasks/addresses")
def test_which_servers_are_this_machine(url: str, own: bool) -> None:
    assert is_own(url) is own


def settings_of(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> dict[str, str]:
    """What the environment exempts, set in ours."""
    made = given | exempt(given)
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


@rows("tasks/addresses")
def test_no_library_asks_this_machine_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], through: str
) -> None:
    """Prefect's requests and its events, ours, and those of Kubernetes; the outside is asked as the user wants it."""
    made = settings_of(monkeypatch, {"PREFECT_API_URL": "http://laptop:4200/api", **given})
    assert made["no_proxy"].startswith(given.get("no_proxy", "")), "what stood there stays"
    for host in ("127.0.0.1", "localhost", "[::1]", "laptop"):
        assert proxy_of(f"http://{host}:4200/api") == ""
        assert get_proxy(parse_uri(f"ws://{host}:4200/api/events/in")) is None
        for kind in (PrefectHttpxSyncClient, PrefectHttpxAsyncClient):
            client: Any = kind(base_url=f"http://{host}:4200/api")
            assert client._transport_for_url(httpx.URL(f"http://{host}:4200/api/health")) is client._transport
    for host in ("127.0.0.1", "localhost", "127.9.9.9"):
        pool: Any = RESTClientObject(Configuration(host=f"https://{host}:6443")).pool_manager
        assert pool.proxy is None
    assert proxy_of(OUTSIDE) == through


def test_an_environment_without_a_proxy_stays_as_it_is() -> None:
    environ = {"PATH": "/bin", "PREFECT_API_URL": f" {OWN}/ "}
    prepare(environ)
    assert environ == {"PATH": "/bin", "PREFECT_API_URL": OWN}
    for url in ("ftp://x", "http://x:99999/api", "http://[::1"):
        nonsense = {"PREFECT_API_URL": url, "HTTP_PROXY": "http://proxy.test:3128"}
        prepare(nonsense)
        assert nonsense["PREFECT_API_URL"] == url, "whoever needs no server does not mind"
    blank = {"PREFECT_API_URL": "  "}
    prepare(blank)
    assert blank == {}


def test_preparing_twice_is_preparing_once() -> None:
    environ = {"HTTP_PROXY": "http://proxy.test:3128", "NO_PROXY": "a.test b.test"}
    prepare(environ)
    once = dict(environ)
    kept = "a.test,b.test,localhost,127.0.0.1,::1,127.0.0.0/8,laptop,ip6-localhost"
    assert once["NO_PROXY"] == once["no_proxy"] == kept
    prepare(environ)
    assert environ == once


@pytest.mark.parametrize("kind", [PrefectHttpxSyncClient, PrefectHttpxAsyncClient])
def test_a_proxy_that_needs_a_library_is_told_with_its_name(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@proxy.test:1080")
    with pytest.raises(ProfileError, match=r"pip install 'httpx\[socks\]'.* or name prefect.test in NO_PROXY") as told:
        kind(base_url=OUTSIDE)
    assert "secret" not in str(told.value)
    kind(base_url=OWN)
    with pytest.raises(ProfileError, match="httpx"), temporary_settings({PREFECT_API_URL: OUTSIDE}):
        get_client(sync_client=True)


def test_kubernetes_behind_such_a_proxy_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.test:1080")
    server = ApiServer(lambda: Configuration(host="https://cluster.test:6443"))
    with pytest.raises(ProfileError, match="PySocks"), pytest.warns():
        server.once(Request("GET", "/version", "ask"), 1.0)


def test_a_proxy_without_a_scheme_speaks_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "proxy.test:3128")
    assert proxy_of("https://prefect.test/api") == "http://proxy.test:3128"
    assert proxy_of(OUTSIDE) == ""


@rows("tasks/addresses")
def test_a_server_elsewhere_is_asked_as_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, url: str, given: dict[str, str], through: str
) -> None:
    """Also where Prefect's client by itself could not read it; its requests and its events go the same way."""
    settings_of(monkeypatch, {"PREFECT_API_URL": url, **given})
    assert proxy_of(url) == through
    client: Any = PrefectHttpxSyncClient(base_url=url)
    assert (client._transport_for_url(httpx.URL(f"{url}/health")) is client._transport) is not bool(through)
    assert get_proxy(parse_uri(f"{url.replace('http', 'ws')}/events/in")) == (through or None)
