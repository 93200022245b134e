"""What of a home runs in the background: the Prefect server, and the nursery that forks drivers for it."""

from __future__ import annotations

from pathlib import Path

from deployments.nursery import ensure_nursery, stop_nursery
from deployments.processes import recorded
from deployments.server import ensure_server, server_url, stop_server


def ensure_console(home: Path) -> str:
    """Address of a Prefect server that answers; where it is this home's own, drivers get a warm start too.

    Raises:
        Unavailable: the server does not answer; its log is named.
    """
    known = server_url(home)
    if known is not None:
        warm_up(home)
    return ensure_server(home, started=lambda url: ensure_nursery(home, url))


def warm_up(home: Path) -> None:
    """Keep a nursery beside a server of this home; a server that is somebody else's gets none."""
    ours = recorded(home / "server.json")
    if ours is not None and server_url(home) == ours.detail:
        ensure_nursery(home, ours.detail)


def stop_console(home: Path) -> bool:
    """Stop the nursery and the server of this home, not the drivers; True where a server lived."""
    stop_nursery(home)
    return stop_server(home)
