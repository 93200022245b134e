"""`primus up` and `primus down`: the local server, in the background."""

from __future__ import annotations

import os

from deployments.console import ensure_console, stop_console
from deployments.edge import GOOD, out, out_json, say
from deployments.server import server_url
from tasks.settings import Settings


def start(*, as_json: bool) -> int:
    """Start what does not run yet, and say where it is."""
    home = Settings.from_environment(os.environ).home
    url = ensure_console(home)
    page = url.removesuffix("/api")
    if as_json:
        out_json({"ui": page, "api": url})
    else:
        out(f"Prefect: {page}")
    return GOOD


def halt(*, as_json: bool) -> int:
    """Stop what `start` started."""
    home = Settings.from_environment(os.environ).home
    was = server_url(home)
    stopped = stop_console(home)
    if as_json:
        out_json({"stopped": stopped})
    else:
        say(f"stopped the server at {was}" if stopped else "no server of this home was running")
    return GOOD
