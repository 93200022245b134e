"""What a run of pytest proves: mode, turn and changes of this checkout, and the plug-in that leaves out the rest.

Which tests these are is decided in `tests/rotation.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from tests.rotation import ROOT, Mode, Proof, Tables

T = TypeVar("T")


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
    if found.mode is Mode.ALL:
        return found
    try:
        if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            number = int(git(root, "rev-parse", "HEAD"), 16) % 2**16
            found = replace(found, number=number, doubt="a shallow clone: the name of the commit gives the turn")
        else:
            found = replace(found, number=int(git(root, "rev-list", "--count", "HEAD")))
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


@cache
def of_this_checkout() -> Proof:
    """Mode, turn and changes of this checkout, asked once.

    Raises:
        ValueError: see `proof_of`.
    """
    return proof_of(ROOT, os.environ)


def everything() -> bool:
    """Whether nothing is left to other runs."""
    return of_this_checkout().mode is Mode.ALL


def in_turn(items: Sequence[T], modulus: int) -> tuple[T, ...]:
    """Every so-and-so-many-th of these cases, beginning with another one at each turn; all of them in `make proof`."""
    return tuple(items if everything() else items[of_this_checkout().number % modulus :: modulus])


def kind_of(item: pytest.Item) -> str:
    """To which run a test belongs, each of which has a budget of its own; `whole` has none: it runs where all run."""
    if item.get_closest_marker("whole"):
        return "whole"
    for kind in ("bed", "lab"):
        if item.path.is_relative_to(ROOT / "tests" / kind):
            return kind
    return next((kind for kind in ("alone", "story") if item.get_closest_marker(kind)), "unit")


def rotates(item: pytest.Item) -> bool:
    """Whether a test may be left to another run: unit tests where they say so."""
    return kind_of(item) != "unit" or item.get_closest_marker("rotation") is not None


class Rotation:
    """The plug-in: leaves out what this run does not prove, and says how much that was."""

    def __init__(self, proof: Proof) -> None:
        self.proof, self.left, self.late = proof, 0, list[str]()

    @classmethod
    def of(cls, config: pytest.Config) -> Self:
        """What a worker is told; else what is found out here. Git is asked once, and all workers collect the same."""
        given: dict[str, Any] | None = getattr(config, "workerinput", {}).get("rotation")
        if given is not None:
            parts: dict[str, Any] = {**given, "mode": Mode(given["mode"])}
            return cls(Proof(**parts))
        words = (str(word).partition("::")[0] for word in config.invocation_params.args)
        paths = (config.invocation_params.dir / word for word in words if word.endswith(".py"))
        named = (path.resolve() for path in paths if path.is_file())
        files = tuple(str(path.relative_to(ROOT)) for path in named if path.is_relative_to(ROOT))
        try:
            return cls(replace(of_this_checkout(), named=files))
        except ValueError as problem:
            raise pytest.UsageError(f"PRIMUS_PROOF: {problem}") from problem

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker."""
        node.workerinput["rotation"] = {**asdict(self.proof), "mode": str(self.proof.mode)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """After all others: what is not asked for anyway is not counted."""
        rotating = {item.nodeid: kind_of(item) for item in items if rotates(item)}
        if not rotating:
            return
        chosen = self.proof.selected(rotating, Tables.read())
        left = frozenset(rotating) - chosen.runs
        if left:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
            items[:] = [item for item in items if item.nodeid not in left]
        self.left, self.late = len(left), list(chosen.late)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker says what it left out."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = [self.left, self.late]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """All workers left out the same."""
        self.left, self.late = getattr(node, "workeroutput", {}).get("left_out", [self.left, self.late])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Some lines, where anything was left out."""
        for line in self.proof.lines(self.left, self.late):
            terminalreporter.write_line(line)
