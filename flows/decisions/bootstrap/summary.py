"""A bootstrap of many hosts in few words: names folded as schedulers write them, and what is alike is said once.

Nothing is left out by it: whoever reads the folded names can name every host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flows.decisions.bootstrap.drift import Difference
from flows.decisions.text import first_names
from workflows.model.bootstrap import Stage, StepOutcome

_NUMBERED = re.compile(r"(?P<stem>[^.]*?)(?P<number>\d+)(?P<rest>[^\d.]*(?:\..*)?)", re.DOTALL)
"""A name with a number in its first label: the last one there."""
_NUMBER = re.compile(r"\d+")
OF_THE_CLUSTER = frozenset({Stage.COMPONENTS, Stage.PROOF, Stage.REMOVAL})
"""Stages that are no host's."""
URGENT = ("fail", "unknown", "not yet", "pass")


@dataclass(frozen=True)
class AlikeSubjects:
    """Hosts or components whose stages have the same words."""

    subjects: tuple[str, ...]
    words: Mapping[str, str]
    """Stage -> `pass`, `fail`, `unknown` or `not yet`; a stage that is not theirs is missing."""

    @property
    def names(self) -> str:
        """Of all of them, folded."""
        return folded_names(self.subjects)


@dataclass(frozen=True)
class OpenSteps:
    """Steps of one stage that do not hold, and of which the same was seen."""

    stage: str
    subjects: tuple[str, ...]
    word: str
    why: str

    @property
    def id(self) -> str:
        """`stage/subject`, of several subjects folded."""
        return f"{self.stage}/{folded_names(self.subjects)}"


Table = Mapping[str, Mapping[str, str]]
"""Subject -> stage -> word."""


def folded_names(names: Sequence[str]) -> str:
    """Such as `n1`, `gpu-[0001-1990,1993]` or `a, b`: all that belong together as one, in the order of their first."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for name in names:
        parts = _NUMBERED.fullmatch(name)
        key = (parts["stem"], parts["rest"]) if parts else (name, None)
        found.setdefault(key, []).append(parts["number"] if parts else "")
    return ", ".join(
        text
        for (stem, rest), numbers in found.items()
        for text in ([stem] if rest is None else _folded(stem, rest, numbers))
    )


def group_name(names: Sequence[str], most_characters: int = 60) -> str:
    """The folded names where they are short; else the first, and how many more there are."""
    whole = folded_names(names)
    return whole if len(whole) <= most_characters or len(names) == 1 else first_names(names, 1)


def _folded(stem: str, rest: str, numbers: Sequence[str]) -> list[str]:
    padded = any(number[0] == "0" and len(number) > 1 for number in numbers)
    texts: list[str] = []
    for size in sorted({len(number) for number in numbers}) if padded else [0]:
        mine = sorted({int(number) for number in numbers if size in (0, len(number))})
        runs = [f"{low:0{size}}" if low == high else f"{low:0{size}}-{high:0{size}}" for low, high in _runs(mine)]
        texts.append(f"{stem}{runs[0]}{rest}" if len(mine) == 1 else f"{stem}[{','.join(runs)}]{rest}")
    return texts


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def stages_of(table: Table) -> list[str]:
    """The stages of a table in the order in which they are gone through."""
    there = {stage for row in table.values() for stage in row}
    return [stage.value for stage in Stage if stage.value in there]


def parts_of(table: Table) -> tuple[dict[str, Mapping[str, str]], dict[str, Mapping[str, str]]]:
    """Hosts, and what is of the cluster as a whole (components, its proof): they share no stage but pre-checks."""
    hosts: dict[str, Mapping[str, str]] = {}
    others: dict[str, Mapping[str, str]] = {}
    for subject, row in table.items():
        (others if OF_THE_CLUSTER & row.keys() else hosts)[subject] = row
    return hosts, others


def alike(table: Table) -> tuple[AlikeSubjects, ...]:
    """Subjects with the same words as one; those with the worst word first, else in their order."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for subject, row in table.items():
        found.setdefault(tuple(row.items()), []).append(subject)
    groups = [AlikeSubjects(tuple(subjects), dict(words)) for words, subjects in found.items()]
    return tuple(sorted(groups, key=lambda group: min(URGENT.index(word) for word in group.words.values())))


def open_steps(steps: Iterable[StepOutcome], most: int = 40) -> tuple[OpenSteps, ...]:
    """Steps that do not hold; of several hosts once where the same was seen of them.

    Where that makes more than `most`, those are one too whose reasons differ in numbers alone: in an address, say.
    """
    exact: dict[tuple[str, str, str], list[str]] = {}
    for step in steps:
        if step.word != "pass":
            stage, _, subject = step.id.partition("/")
            exact.setdefault((stage, step.word.value, step.why), []).append(subject)
    groups = [OpenSteps(stage, tuple(subjects), word, why) for (stage, word, why), subjects in exact.items()]
    return tuple(groups) if len(groups) <= most else _of_one_shape(groups)


def _of_one_shape(groups: Iterable[OpenSteps]) -> tuple[OpenSteps, ...]:
    found: dict[tuple[str, str, str], list[OpenSteps]] = {}
    for one in groups:
        found.setdefault((one.stage, one.word, _NUMBER.sub("#", one.why)), []).append(one)
    return tuple(
        replace(
            same[0],
            subjects=tuple(name for one in same for name in one.subjects),
            why=same[0].why + (f" (and {len(same) - 1:,} more that differ in numbers)" if len(same) > 1 else ""),
        )
        for same in found.values()
    )


def said_once(differences: Iterable[Difference]) -> tuple[str, ...]:
    """The lines of differences, of several hosts once where they are the same."""
    found: dict[Difference, list[str]] = {}
    for one in differences:
        found.setdefault(replace(one, subject=""), []).append(one.subject)
    return tuple(replace(one, subject=folded_names(names)).text for one, names in found.items())
