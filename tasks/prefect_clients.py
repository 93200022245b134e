"""Prefect's clients, kept from looking for a proxy on the way to this machine. Whoever needs one imports it from here.

The client reads `HTTP_PROXY` and its like before it knows whom it will ask, and fails there: by an ImportError where a
SOCKS proxy needs a library that is not installed, by a ValueError where `NO_PROXY` holds what it cannot read. Prefect's
engine, its log and its events make clients of their own, so that it would not help to give ours another argument.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SyncClientContext

from profiles.errors import ProfileError
from tasks.addresses import API_URL, is_own, unusable_proxies

__all__ = ["SyncClientContext", "SyncPrefectClient", "get_client"]


def _direct_to_own(kind: Any) -> None:
    """Clients of this kind that are made for a server of this machine leave the environment unread."""
    before = kind.__init__

    @wraps(before)
    def made(self: Any, *words: Any, **named: Any) -> None:
        url = str(named.get("base_url", ""))
        if is_own(url):
            named.setdefault("trust_env", False)
        try:
            before(self, *words, **named)
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ProfileError(API_URL, unusable_proxies(url, error)) from error

    kind.__init__ = made


for _kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
    _direct_to_own(_kind)
