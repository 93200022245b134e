"""The background processes of a home: all of `primus up`, or only the server and the process that forks drivers."""

from __future__ import annotations

import os
from pathlib import Path

from deployments.processes.prefork import ensure_nursery, stop_nursery
from tasks.prefect.server import ensure_server, own_url, server_url
from tasks.prefect.services import down, serving, up, wish_of


def ensure_console(home: Path) -> str:
    """Address of a Prefect server that answers; where it is this home's own, drivers get a warm start too.

    Where `primus up` was said, everything of it that died is started again; not where the environment names another
    server than it was said for.

    Raises:
        Unavailable: the server does not answer; its log is named.
    """
    wish = wish_of(home)
    if wish is not None and os.environ.get("PREFECT_API_URL", "") == wish.api_url:
        return up(home, wish.cluster, lambda line: None)
    known = server_url(home)
    if known is not None:
        warm_up(home)
    return ensure_server(home, started=lambda url: ensure_nursery(home, url))


def warm_up(home: Path) -> None:
    """Keep a nursery (`prefork`) beside a server of this home that no runner serves; another home's gets none."""
    ours = own_url(home)
    if ours is not None and server_url(home) == ours and not serving(home):
        ensure_nursery(home, ours)


def stop_console(home: Path) -> list[str]:
    """Stop everything of this home that runs in the background, not the drivers; what lived."""
    nursery = ["nursery"] if stop_nursery(home) else []
    return [*nursery, *down(home)]
