"""`primus workflow run`: any Argo Workflow, submitted, watched and shown."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deployments.edge import FAILED, GOOD, INTERRUPTED, UNKNOWN, out, out_json, say
from deployments.workflow_tree import tree_lines
from profiles.errors import NotFound, ProfileError
from profiles.load import load_cluster
from tasks.cluster import Cluster, Manifest
from tasks.clusters import open_cluster
from tasks.opening import localised
from tasks.settings import Settings
from tasks.workflow_files import read_workflow, with_name, with_parameters
from tasks.workflow_nodes import unpacked
from tasks.workflow_runs import check_workflow, follow_workflow, phase_of, submit_workflow

if TYPE_CHECKING:
    from rich.text import Text

REDRAWS_PER_SECOND = 4


@dataclass(frozen=True)
class RunOptions:
    """The flags of `primus workflow run`."""

    file: str
    """Path of the manifest; `-`: standard input."""
    cluster: str
    parameters: tuple[str, ...]
    name: str
    as_json: bool


class View(Protocol):
    """Who shows the workflow while it runs."""

    def show(self, found: Manifest) -> None:
        """The workflow as it is now."""
        ...


def run_workflow(options: RunOptions) -> int:
    """Submit, wait, show: 0 Succeeded, 1 Failed or Error, 3 where its end cannot be found out.

    Raises:
        ProfileError: the file, a parameter or the cluster's name is wrong; nothing was started.
        Refused: the cluster does not accept the workflow; nothing was started.
        Conflict: another workflow has its name.
        Unavailable: the cluster does not answer.
    """
    source = "standard input" if options.file == "-" else options.file
    manifest = with_parameters(read_workflow(_text_of(options.file), source), options.parameters)
    manifest = with_name(manifest, options.name)
    name = str(manifest["metadata"]["name"])
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(options.cluster or settings.cluster), settings.home)
    cluster = open_cluster(profile, settings.home)
    check_workflow(cluster, manifest, profile.namespace)
    try:
        submit_workflow(cluster, manifest)
        say(f"workflow {name} on {profile.name}")
        found = _watched(cluster, name)
    except KeyboardInterrupt:
        say(f"\nstopped watching; the workflow {name} goes on. Watch it again: {_again(options, name)}")
        return INTERRUPTED
    except NotFound as error:
        say(f"primus: {error}: how it would have ended is not known")
        return UNKNOWN
    if options.as_json:
        out_json(found)
    else:
        out("\n".join(tree_lines(found["status"], name, time.time())))
    return GOOD if phase_of(found) == "Succeeded" else FAILED


def _again(options: RunOptions, name: str) -> str:
    words = ["primus workflow run", options.file, f"--name {name}"]
    words += [f"--cluster {options.cluster}"] if options.cluster else []
    return " ".join([*words, *(f"-p '{word}'" for word in options.parameters)])


def _text_of(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise ProfileError("FILE", f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError("FILE", f"{file} is not UTF-8 text") from error


def _watched(cluster: Cluster, name: str) -> Manifest:
    """The workflow once it has ended."""
    found: Manifest = {}
    with _view(name) as view:
        for one in follow_workflow(cluster, name):
            found = unpacked(one)
            view.show(found)
    return found


@contextmanager
def _view(name: str) -> Generator[View]:
    if not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.live import Live

    shown = _Shown(name)
    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=REDRAWS_PER_SECOND, transient=True, get_renderable=shown.text):
        yield shown


class _Quiet:
    """Nobody looks."""

    def show(self, found: Manifest) -> None:
        """Nothing."""


class _Shown:
    """The tree on a terminal, drawn anew a few times a second, so that the times of what runs move."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._status: dict[str, Any] = {}

    def show(self, found: Manifest) -> None:
        """Remember it for the next drawing."""
        self._status = found.get("status") or {}

    def text(self) -> Text:
        """What fits on the screen: the first line and the newest ones."""
        from rich.text import Text

        lines = tree_lines(self._status, self._name, time.time())
        size = shutil.get_terminal_size()
        room = max(3, size.lines - 2)
        shown = lines if len(lines) <= room else [lines[0], f"… {len(lines) - room + 1} lines", *lines[2 - room :]]
        return Text("\n".join(line[: size.columns] for line in shown))
