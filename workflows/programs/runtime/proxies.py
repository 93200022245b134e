"""Which hosts are never asked through the proxy that the environment names.

Sites set `HTTP_PROXY`, `HTTPS_PROXY` or `ALL_PROXY` for everything and often no `NO_PROXY`, and libraries then ask even
this machine's own servers through the proxy, which cannot reach them.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1", "127.0.0.0/8")
"""As libraries understand it: most want a name or an address, some take networks, none minds what it does not know."""


def host_of(url: str) -> str:
    """The host of `http://host:port`, without the brackets of an IPv6 address; "" of ""."""
    return url.partition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]")


def names_proxy(environ: Mapping[str, str]) -> bool:
    """Whether a variable names a proxy."""
    return any(
        value and name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name, value in environ.items()
    )


def exempted(environ: Mapping[str, str], hosts: Iterable[str]) -> Dict[str, str]:
    """`NO_PROXY` and `no_proxy` as they stand in the environment, with these hosts; empty where no proxy is named.

    Libraries read the one or the other, or the second before the first.
    """
    if not names_proxy(environ):
        return {}
    upper, lower = environ.get("NO_PROXY"), environ.get("no_proxy")
    return {
        "NO_PROXY": _with(upper if upper is not None else lower or "", hosts),
        "no_proxy": _with(lower if lower is not None else upper or "", hosts),
    }


def _with(text: str, hosts: Iterable[str]) -> str:
    if text.strip() == "*":  # everything; beside other entries libraries do not know it
        return text
    known = [entry for entry in re.split(r"[,\s]+", text) if entry]
    return ",".join(dict.fromkeys([*known, *(host for host in hosts if host)]))
