"""Rotation: tests that are told in every eighth run, at the run's turn, and wherever what they prove has changed.

`PRIMUS_PROOF` says which of the tests with the marker `rotation` run: `turn` (as without it), `all` or `none`. Whoever
names a file on the command line gets all of it. docs/testing.md says when to ask for what.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import pytest

TURNS = 8
ROOT = Path(__file__).resolve().parent.parent
AREAS = ROOT / "tests" / "areas.toml"


class Mode(StrEnum):
    """Which rotating tests run."""

    TURN = "turn"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class Area:
    """Product paths, and the files of rotating tests that prove what stands there. `*` in a path matches `/` too."""

    paths: tuple[str, ...]
    tests: tuple[str, ...]


def turn_of(node_id: str) -> int:
    """At which of the turns 0 to 7 a test comes up; it depends on nothing but its name."""
    return int.from_bytes(hashlib.sha256(node_id.encode()).digest()[:8]) % TURNS


def file_of(node_id: str) -> str:
    """The file of a test."""
    return node_id.partition("::")[0]


def files_of_changes(changed: Collection[str], areas: Iterable[Area]) -> frozenset[str]:
    """Files of tests that were changed themselves, or to whose area a changed path belongs."""
    hit = (area for area in areas if any(fnmatchcase(path, glob) for path in changed for glob in area.paths))
    return frozenset(changed).union(*(area.tests for area in hit))


def selection(
    node_ids: Iterable[str], turn: int, changed: Collection[str], areas: Iterable[Area], mode: Mode
) -> frozenset[str]:
    """Which of these rotating tests run.

    Args:
        node_ids: as pytest calls them.
        turn: 0 to 7.
        changed: paths below the root of the repository.
        areas: of `tests/areas.toml`.
        mode: where it is not `turn`, turn and changes decide nothing.
    """
    if mode is not Mode.TURN:
        return frozenset(node_ids if mode is Mode.ALL else ())
    whole = files_of_changes(changed, areas)
    return frozenset(one for one in node_ids if turn_of(one) == turn or file_of(one) in whole)


def areas_of(document: Mapping[str, Any]) -> tuple[Area, ...]:
    """The areas of a parsed `areas.toml`."""
    return tuple(Area(tuple(one["paths"]), tuple(one["tests"])) for one in document.values())


@dataclass(frozen=True)
class Proof:
    """What one run of pytest has to select by; the same for all its workers."""

    mode: Mode = Mode.TURN
    turn: int = 0
    changed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    """Files named on the command line, all of whose tests run."""
    doubt: str = ""
    """What could not be found out, for people."""

    def selected(self, node_ids: Iterable[str], areas: Iterable[Area]) -> frozenset[str]:
        """Which of these rotating tests run."""
        ids = frozenset(node_ids)
        named = frozenset(one for one in ids if file_of(one) in self.named)
        return named | selection(ids, self.turn, self.changed, areas, self.mode)

    def lines(self, left: int) -> list[str]:
        """What is told at the end of a run that left out so many tests."""
        if not left:
            return []
        told = [f"rotation: {self.doubt}"] if self.doubt else []
        if self.mode is Mode.NONE:
            return [*told, f"left out by PRIMUS_PROOF=none: {left} tests (all of them: make proof)"]
        where = f"turn {self.turn + 1} of {TURNS}"
        return [*told, f"left to other turns: {left} tests ({where}; all of them: make proof)"]


def git(root: Path, *words: str) -> str:
    """What git answers.

    Raises:
        OSError, subprocess.CalledProcessError: there is no git, no repository, or no such commit.
    """
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True, timeout=30).stdout


def proof_of(root: Path, environment: Mapping[str, str]) -> Proof:
    """Mode, turn and changes of a checkout.

    The turn is the number of commits modulo 8. A shallow clone does not know that number: there the name of the commit
    decides.

    Raises:
        ValueError: `PRIMUS_PROOF` is none of the modes.
    """
    found = Proof(Mode(environment.get("PRIMUS_PROOF") or Mode.TURN))
    if found.mode is not Mode.TURN:
        return found
    try:
        if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            turn = int(git(root, "rev-parse", "HEAD"), 16) % TURNS
            found = replace(found, turn=turn, doubt="a shallow clone: the name of the commit gives the turn")
        else:
            found = replace(found, turn=int(git(root, "rev-list", "--count", "HEAD")) % TURNS)
    except (OSError, subprocess.SubprocessError):
        return replace(
            found, doubt="no git history can be read here: it is always the first turn, and nothing counts as changed"
        )
    base = environment.get("PRIMUS_PROOF_BASE") or "HEAD~1"
    try:
        changed = git(root, "diff", "--name-only", "-z", base, "--").split("\0")
    except (OSError, subprocess.SubprocessError):
        doubts = [found.doubt, f"{base} is not known here: nothing counts as changed"]
        return replace(found, doubt="; ".join(doubt for doubt in doubts if doubt))
    return replace(found, changed=tuple(path for path in changed if path))


class Rotation:
    """The plug-in: leaves out what has another turn, and says how much that was."""

    def __init__(self, proof: Proof) -> None:
        self.proof, self.left = proof, 0

    @classmethod
    def of(cls, config: pytest.Config) -> Self:
        """What a worker is told; else what is found out here. Git is asked once, and all workers collect the same."""
        given: dict[str, Any] | None = getattr(config, "workerinput", {}).get("rotation")
        if given is not None:
            return cls(Proof(**{**given, "mode": Mode(given["mode"])}))
        words = (str(word).partition("::")[0] for word in config.invocation_params.args)
        paths = (config.invocation_params.dir / word for word in words if word.endswith(".py"))
        named = (path.resolve() for path in paths if path.is_file())
        files = tuple(str(path.relative_to(ROOT)) for path in named if path.is_relative_to(ROOT))
        try:
            return cls(replace(proof_of(ROOT, os.environ), named=files))
        except ValueError as problem:
            raise pytest.UsageError(f"PRIMUS_PROOF: {problem}") from problem

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker."""
        node.workerinput["rotation"] = {**asdict(self.proof), "mode": str(self.proof.mode)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """After all others: what is not asked for anyway is not counted."""
        rotating = frozenset(item.nodeid for item in items if item.get_closest_marker("rotation"))
        if not rotating:
            return
        areas = areas_of(tomllib.loads(AREAS.read_text(encoding="utf-8")))
        left = rotating - self.proof.selected(rotating, areas)
        if left:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
            items[:] = [item for item in items if item.nodeid not in left]
        self.left = len(left)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker says how much it left out."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_to_other_turns"] = self.left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """All workers left out the same."""
        self.left = max(self.left, getattr(node, "workeroutput", {}).get("left_to_other_turns", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line, where anything was left out."""
        for line in self.proof.lines(self.left):
            terminalreporter.write_line(line)
