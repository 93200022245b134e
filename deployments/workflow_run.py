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
from typing import Protocol

from deployments.edge import FAILED, GOOD, INTERRUPTED, UNKNOWN, out, out_json, say
from deployments.workflow_tree import tree_lines
from profiles.errors import NotFound, ProfileError
from profiles.load import load_cluster
from tasks.cluster import Cluster, Manifest
from tasks.clusters import open_cluster
from tasks.opening import localised
from tasks.settings import Settings
from tasks.workflow_files import read_workflow, with_name, with_parameters
from tasks.workflow_runs import check_workflow, follow_workflow, phase_of, submit_workflow, unpacked

REDRAWS_PER_SECOND = 10.0


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
    submit_workflow(cluster, manifest)
    say(f"workflow {name} on {profile.name}")
    try:
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

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _Shown(name, live.update)


class _Quiet:
    """Nobody looks."""

    def show(self, found: Manifest) -> None:
        """Nothing."""


class _Update(Protocol):
    def __call__(self, renderable: str, *, refresh: bool) -> None: ...


class _Shown:
    """The tree on a terminal, drawn anew when something changed."""

    def __init__(self, name: str, update: _Update) -> None:
        self._name = name
        self._update = update
        self._drawn_at = 0.0

    def show(self, found: Manifest) -> None:
        """Draw it, unless it was drawn a moment ago."""
        if time.monotonic() - self._drawn_at < 1 / REDRAWS_PER_SECOND:
            return
        lines = tree_lines(found.get("status") or {}, self._name, time.time())
        size = shutil.get_terminal_size()
        room = max(3, size.lines - 2)
        shown = lines if len(lines) <= room else [lines[0], f"… {len(lines) - room + 1} lines", *lines[2 - room :]]
        from rich.text import Text

        self._update(Text("\n".join(line[: size.columns] for line in shown)), refresh=True)  # pyright: ignore[reportArgumentType]
        self._drawn_at = time.monotonic()
