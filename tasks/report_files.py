"""Where reports that a flow makes go: pages into the home, and their main numbers onto the Prefect server."""

from __future__ import annotations

import os
from pathlib import Path

from profiles.errors import Unavailable
from tasks.console_server import console_server
from tasks.world import patient, touch, world
from workflows.console import Sheet


@patient
def write_page(name: str, text: str) -> Path:
    """Write a page to PRIMUS_HOME/reports/<name>.html, in place of one of that name; whoever reads sees it whole.

    Raises:
        Unavailable: the folder cannot be written (a full disk); waited out.
    """
    folder = world().settings.home / "reports"
    path = folder / f"{name}.html"
    fresh = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}): make room, or its owner ours") from error
    return path


@touch("put the artifact {sheet.key}")
def put_artifact(flow_run: str, sheet: Sheet) -> None:
    """Show a sheet on the page of a flow run; "" where it belongs to none."""
    with console_server() as server:
        server.put(flow_run or None, sheet)
