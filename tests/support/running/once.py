"""What is made once for all workers of a test run: the first that wants it makes it, the others wait and read it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, which must be JSON.

    Args:
        folders: of this worker; those of all workers lie in one folder, new in each run.
        name: of what is made.
        make: makes it. Where it fails nothing is kept, and whoever wants it next tries again.
    """
    shared = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            kept = shared / f"{name}.json"
            if not kept.exists():
                _write(kept, make())
            return json.loads(kept.read_text())
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing it is not enough: what `make` started may hold it too


def _write(path: Path, value: object) -> None:
    written = path.with_suffix(".new")
    written.write_text(json.dumps(value))
    written.rename(path)
