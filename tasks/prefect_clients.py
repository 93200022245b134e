"""Prefect's clients, each with the one proxy that leads to its server, or with none. Whoever needs one imports it here.

By themselves they read `HTTP_PROXY` and its like before they know whom they will ask, and fail there: by an ImportError
where a SOCKS proxy for others needs a library that is not installed, by a ValueError where `NO_PROXY` holds what they
cannot read. Prefect's engine, its log and its events make clients of their own, so that it would not help to give ours
another argument.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SyncClientContext

from profiles.errors import ProfileError
from tasks.addresses import API_URL, proxy_of, unusable_proxies

__all__ = ["SyncClientContext", "SyncPrefectClient", "get_client"]


def _lead(kind: Any) -> None:
    """Clients of this kind leave the environment unread; one that has its own way to its server keeps that."""
    before = kind.__init__

    @wraps(before)
    def made(self: Any, *words: Any, **named: Any) -> None:
        url = str(named.get("base_url", ""))
        if url and "transport" not in named:
            named = {"trust_env": False, "proxy": proxy_of(url) or None} | named
        try:
            before(self, *words, **named)
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ProfileError(API_URL, unusable_proxies(url, error)) from error

    kind.__init__ = made


for _kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
    _lead(_kind)
