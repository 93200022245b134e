"""Which tests of a run run: the core always; the others where their area changed, at their turn, or all of them.

Tests with real processes (marker `story`, all of `tests/bed` and `tests/lab`) and those with the marker `rotation`
rotate, except what `tests/core.toml` lists. `PRIMUS_PROOF` says which of them run: `core` (`make test`), `turn`
(`.ci/run`: the core, what changes concern, an eighth of the rest, within a budget of time), `all` (`make proof`).
Whoever names a file on the command line gets all of it. docs/testing.md says when to ask for what.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

TURNS = 8
ROOT = Path(__file__).resolve().parent.parent
AREAS, CORE, QUARANTINE, SECONDS, BUDGET = (
    ROOT / "tests" / name for name in ("areas.toml", "core.toml", "quarantine.toml", "seconds.tsv", "budget.toml")
)
UNKNOWN_SECONDS = 15.0
"""What a test counts that was never measured."""


class Mode(StrEnum):
    """Which rotating tests run beside the core."""

    CORE = "core"
    TURN = "turn"
    ALL = "all"


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


def function_of(node_id: str) -> str:
    """The test without its parameters."""
    return node_id.partition("[")[0]


def files_of_changes(changed: Collection[str], areas: Iterable[Area]) -> frozenset[str]:
    """Files of tests that were changed themselves, or to whose area a changed path belongs."""
    hit = (area for area in areas if any(fnmatchcase(path, glob) for path in changed for glob in area.paths))
    return frozenset(changed).union(*(area.tests for area in hit))


@dataclass(frozen=True)
class Chosen:
    """What a run takes of the rotating tests, and what it leaves."""

    runs: frozenset[str]
    late: tuple[str, ...] = ()
    """Concerned by a change or in turn, but beyond the budget."""


def selection(
    node_ids: Collection[str],
    turn: int,
    changed: Collection[str],
    areas: Iterable[Area],
    seconds: Callable[[str], float],
    budget_seconds: float,
) -> Chosen:
    """Which of these rotating tests a run takes at its turn: what changes concern first, then what is in turn.

    Both begin with the tests of this turn, so that over eight runs each comes first once: whoever has no time for all
    of an area proves another part of it in the next run.

    Args:
        node_ids: as pytest calls them.
        turn: 0 to 7.
        changed: paths below the root of the repository.
        areas: of `tests/areas.toml`.
        seconds: what a test takes.
        budget_seconds: what all of them may take together.
    """
    whole = files_of_changes(changed, areas)
    order = sorted(node_ids, key=lambda one: (file_of(one) not in whole, (turn_of(one) - turn) % TURNS, one))
    wanted = [one for one in order if file_of(one) in whole or turn_of(one) == turn]
    runs: list[str] = []
    left = budget_seconds
    for one in wanted:
        if seconds(one) <= left:
            runs.append(one)
            left -= seconds(one)
    taken = frozenset(runs)
    return Chosen(taken, tuple(one for one in wanted if one not in taken))


def areas_of(document: Mapping[str, Any]) -> tuple[Area, ...]:
    """The areas of a parsed `areas.toml`."""
    return tuple(Area(tuple(one["paths"]), tuple(one["tests"])) for one in document.values())


def core_of(document: Mapping[str, Mapping[str, Sequence[str]]]) -> frozenset[str]:
    """Node ids of a parsed `core.toml`: of functions, of single cases, or of whole files (`*`)."""
    return frozenset(
        file if name == "*" else f"{file}::{name}"
        for files in document.values()
        for file, names in files.items()
        for name in names
    )


def is_core(node_id: str, core: Collection[str]) -> bool:
    """Whether a test is one of them."""
    return not {node_id, function_of(node_id), file_of(node_id)}.isdisjoint(core)


def seconds_of(table: str) -> dict[str, float]:
    """Seconds of `seconds.tsv`, by function (the longest of its cases) or by file."""
    rows = (line.split("\t") for line in table.splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for name, seconds, *_ in rows}


@dataclass(frozen=True)
class Tables:
    """What stands in the files beside this one."""

    areas: tuple[Area, ...] = ()
    core: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    budgets: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by kind of run: `story`, `alone`, `bed`, `lab`, `unit`."""

    @classmethod
    def read(cls) -> Self:
        """The tables of this checkout."""
        areas, core, quarantined, budget = (
            tomllib.loads(path.read_text(encoding="utf-8")) for path in (AREAS, CORE, QUARANTINE, BUDGET)
        )
        return cls(
            areas_of(areas),
            core_of(core) - frozenset(quarantined),
            seconds_of(SECONDS.read_text(encoding="utf-8")),
            budget["rotation_seconds"],
        )

    def takes(self, node_id: str) -> float:
        """Seconds of a test."""
        known = self.seconds
        return known.get(function_of(node_id), known.get(file_of(node_id), UNKNOWN_SECONDS))


@dataclass(frozen=True)
class Proof:
    """What one run of pytest has to select by; the same for all its workers."""

    mode: Mode = Mode.TURN
    number: int = 0
    """Of the commit, from which all turns follow."""
    changed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    """Files named on the command line, all of whose tests run."""
    doubt: str = ""
    """What could not be found out, for people."""

    @property
    def turn(self) -> int:
        """0 to 7."""
        return self.number % TURNS

    def selected(self, kinds: Mapping[str, str], tables: Tables) -> Chosen:
        """Which of these rotating tests run; `kinds` has the kind of each, by node id."""
        if self.mode is Mode.ALL:
            return Chosen(frozenset(kinds))
        always = frozenset(one for one in kinds if file_of(one) in self.named or is_core(one, tables.core))
        if self.mode is Mode.CORE:
            return Chosen(always)
        runs, late = always, list[str]()
        for kind, budget in tables.budgets.items():
            asked = [one for one in kinds if kinds[one] == kind and one not in always]
            chosen = selection(asked, self.turn, self.changed, tables.areas, tables.takes, budget)
            runs |= chosen.runs
            late += chosen.late
        return Chosen(runs, tuple(late))

    def lines(self, left: int, late: Sequence[str] = ()) -> list[str]:
        """What is told at the end of a run that left out so many tests, and some of them for want of time."""
        told = [f"rotation: {self.doubt}"] if self.doubt and left else []
        if late:
            what = f"{len(late)} tests that are in turn or concerned by changes"
            told.append(f"NOT PROVEN in this run, beyond tests/budget.toml: {what}")
            told += [f"  {count:3d} of {file}" for file, count in sorted(_by_file(late).items())]
        if left and self.mode is Mode.CORE:
            return [*told, f"the core; left out: {left} tests (PRIMUS_PROOF=turn: a part of them; make proof: all)"]
        if left > len(late):
            where = f"turn {self.turn + 1} of {TURNS}"
            told.append(f"left to other turns: {left - len(late)} tests ({where}; all of them: make proof)")
        return told


def _by_file(node_ids: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in node_ids:
        found[file_of(one)] = found.get(file_of(one), 0) + 1
    return found
