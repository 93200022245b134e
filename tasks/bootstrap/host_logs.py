"""The log of each host: what was begun there, every task that changed or failed, and what the proof saw, all in full.

Screens and pages show the last words alone, cut to a line; whoever wants the rest is told this file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tasks.context import world
from tasks.settings import Settings
from tasks.ssh.masking import masked
from workflows.model.bootstrap import Step
from workflows.programs.runtime.text import uncoloured


def log_folder(settings: Settings, cluster: str) -> Path:
    """Where the logs of a cluster's hosts lie."""
    return settings.home / "logs" / "bootstrap" / cluster


def log_step(cluster: str, step: Step, ending: str, said: str) -> None:
    """Write a line about a step into the log of its subject. A log that cannot be written holds nothing up."""
    folder = log_folder(world().settings, cluster)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(world().now()))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{step.subject}.log").open("a", encoding="utf-8") as file:
            file.write(f"{at} {ending:<11} {step.stage}: {masked(uncoloured(said)).strip()}\n")


def kept_logs(cluster: str, subjects: Iterable[str]) -> tuple[Path, ...]:
    """Those logs of these hosts and components that there are."""
    folder = log_folder(world().settings, cluster)
    return tuple(path for name in subjects if (path := folder / f"{name}.log").is_file())
