"""Addresses of servers that the environment names, and which of them are this machine's own.

`prepare` is called once at the start of each of our processes, before any library reads its environment: from then on
`PREFECT_API_URL` has the form that everybody expects, and no library asks this machine through a proxy. Children get
the environment that was prepared.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from profiles.errors import ProfileError
from tasks.config_file import read_config
from tasks.secret_files import read_secret_files
from workflows.programs.runtime.http_client import hosts_of
from workflows.programs.runtime.proxies import LOOPBACK, exempted

API_URL = "PREFECT_API_URL"
SOCKS = {"socksio": "httpx[socks]", "python_socks": "python-socks[asyncio]", "socks": "PySocks"}
"""What clients need for a SOCKS proxy, by module: Prefect's requests, its stream of events, Kubernetes' requests."""
_HOSTS_FILE = Path("/etc/hosts")
_EXAMPLE = "expected an address such as http://prefect.example.com:4200/api"


def prepare(environ: MutableMapping[str, str]) -> None:
    """Make the environment what our libraries can use; safe to repeat.

    What is no address at all stays as it is: who needs the server says what is wrong with it, nobody else minds.

    Raises:
        ProfileError: a file that a secret is to be read from cannot be read, or the home's file of defaults is wrong.
    """
    read_secret_files(environ)
    read_config(environ)
    with suppress(ProfileError):
        url = api_url(environ.get(API_URL, ""))
        environ.pop(API_URL, None)
        if url:
            environ[API_URL] = url
    environ.update(exempt(environ))


def exempt(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which libraries leave proxies out on the way to this machine; empty where no proxy is named.

    A server that the user exempts by its network is named too: most libraries know names and addresses only.
    """
    url = environ.get(API_URL, "")
    direct = [] if not url or proxy_of(url, environ) else [_host(url)]
    return exempted(environ, (*LOOPBACK, *_own_names(), *direct))


def api_url(text: str) -> str:
    """The address of an API without blanks, slashes at its end and capitals in its scheme; "" where none is named.

    Raises:
        ProfileError: it is no address of HTTP.
    """
    words = text.strip().strip("\"'").strip()
    if not words:
        return ""
    given = re.sub(r"^(https?):/+", r"\1://", words, flags=re.IGNORECASE)
    given = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(given)
        _ = parts.port
    except ValueError as error:
        raise ProfileError(API_URL, f"{words!r}: {error}; {_EXAMPLE}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"\s", words):
        raise ProfileError(API_URL, f"{words!r} is no address of a server; {_EXAMPLE}")
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def is_own(url: str) -> bool:
    """Whether the server at this address is this machine: by loopback, or a name that its hosts file gives to it."""
    host = _host(url)
    return host in {"localhost", *_own_names()} or host.endswith(".localhost") or _is_loopback(host)


def proxy_of(url: str, environ: Mapping[str, str] | None = None) -> str:
    """The proxy that leads to a server, as clients of HTTP find it in the environment; "": it is asked directly."""
    named = _proxies(os.environ if environ is None else environ)
    scheme, host = url.partition("://")[0].lower(), _host(url)
    found = named.get(scheme) or named.get("all") or ""
    if not found or is_own(url) or _is_exempt(host, _authority(url), named.get("no", "")):
        return ""
    return found if "://" in found else f"http://{found}"


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables about proxies by what stands before `_proxy`; small letters count where both are there."""
    known: dict[str, str] = {}
    for name in sorted(environ):
        if name.lower().endswith("_proxy"):
            known[name.lower().removesuffix("_proxy")] = environ[name].strip()
    return known


def _is_exempt(host: str, authority: str, text: str) -> bool:
    """Whether `NO_PROXY` names the host by itself or with its port, a domain above it, its network, or everything."""
    for entry in (one.lower().strip("[]") for one in re.split(r"[,\s]+", text) if one):
        name = entry.removeprefix("*").removeprefix(".")
        if entry == "*" or host == name or authority == entry or (name and host.endswith(f".{name}")):
            return True
        with suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
    return False


def unusable_proxies(url: str, error: Exception) -> str:
    """What to correct where a client of HTTP cannot be made for the way to a server; `error` is what it said."""
    proxy = proxy_of(url)
    if proxy.lower().startswith("socks"):
        install = " ".join(f"'{name}'" for name in SOCKS.values())
        return (
            f"the way to {url} leads through the proxy {without_password(proxy)} of the environment ({error}): "
            f"pip install {install}, or name {_host(url)} in NO_PROXY"
        )
    return f"{url} cannot be asked as HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY want it: {error}; correct them"


def without_password(proxy: str) -> str:
    """The address of a proxy as it may be shown."""
    return re.sub(r"//[^/@]*@", "//", proxy)


def _own_names() -> list[str]:
    """Names that the hosts file gives to loopback: often the machine's own."""
    with suppress(OSError):
        known = hosts_of(_HOSTS_FILE.read_text(encoding="utf-8", errors="replace"))
        return [name for name, addresses in known.items() if all(map(_is_loopback, addresses))]
    return []


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        # Nobody can be asked at 0.0.0.0 but oneself: servers print it as the address that they listen on.
        return address.is_loopback or address.is_unspecified
    return False


def _authority(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""
