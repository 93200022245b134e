"""The corpus of logs: what machines printed, with what was wrong and who was to blame.

`development` may be read while rules are written; `held_out` was set aside before and is looked at by the count alone.
`exam` was gathered later, labelled twice by others than those who write rules, and set aside too; `exam_seen` is the
third of it that may be read, with what real programs printed on one GPU.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.yaml_files import read_yaml

CORPUS = Path(__file__).parents[2] / "corpus"
PARTS = ("development", "held_out")
EXAMS = ("exam", "exam_seen")
KINDS = {"found", "format", "caused"}
FIELDS = {"class", "also", "kind", "source", "reason", "culprit_ranks", "culprit_nodes", "hardware_blame", "files"}
FIELDS |= {"retry_helps"}
HARDWARE = frozenset(
    {FaultClass.GPU_HARDWARE, FaultClass.GPU_DRIVER, FaultClass.FABRIC, FaultClass.THERMAL_POWER, FaultClass.NODE_LOST}
)
USERS = frozenset({FaultClass.USER_CODE, FaultClass.CONFIG, FaultClass.CHECKPOINT_MISMATCH})


@dataclass(frozen=True)
class CorpusCase:
    """One labelled case."""

    name: str
    expected: FaultClass
    also: frozenset[FaultClass]
    kind: str
    source: str
    reason: str
    ranks: frozenset[int] | None
    """None: not known; empty: no rank is to blame."""
    nodes: frozenset[str] | None
    files: tuple[tuple[str, tuple[str, ...]], ...]
    retry_helps: bool | None = None
    """Whether the same start again would go on; None: nobody can know."""

    @property
    def several_ranks(self) -> bool:
        """Several files, or ranks named as culprits."""
        return len(self.files) > 1 or bool(self.ranks)


@dataclass(frozen=True)
class Answer:
    """What the diagnosis said of a case."""

    case: CorpusCase
    diagnosis: Diagnosis

    @property
    def right(self) -> bool:
        """The class is the label, or one that an expert would accept as well."""
        return self.diagnosis.fault_class in {self.case.expected, *self.case.also}

    @property
    def culprit_known(self) -> bool:
        """Its ranks are known, or its nodes, and the log names them: nobody can name a node that stands nowhere."""
        if self.case.nodes:
            told = "\n".join(text for name, lines in self.case.files for text in (name, *lines)).lower()
            return all(node.lower() in told for node in self.case.nodes)
        return self.case.ranks is not None or self.case.nodes is not None

    @property
    def culprit_right(self) -> bool:
        """Exactly those ranks where ranks are known; a rank may stand for its node and a node for its ranks."""
        ranks = frozenset(rank for _, rank in self.diagnosis.culprits if rank is not None)
        nodes = frozenset(node.lower() for node, _ in self.diagnosis.culprits if node)
        wanted = frozenset(node.lower() for node in self.case.nodes or ())
        if wanted and wanted == nodes:
            return True
        if self.case.ranks is None:
            return wanted == nodes
        return ranks == self.case.ranks and (bool(ranks) or not nodes or nodes == wanted)

    @property
    def first_right(self) -> bool:
        """One of the ranks that are known to have failed is named, as the first to fail or as a culprit."""
        named = {self.diagnosis.first_failing_rank, *(rank for _, rank in self.diagnosis.culprits)}
        return not named.isdisjoint(self.case.ranks or ())


@cache
def cases(part: str) -> tuple[CorpusCase, ...]:
    """Every case of a part, by name."""
    return tuple(_read(path) for path in sorted((CORPUS / part).glob("*.yaml")))


def _read(path: Path) -> CorpusCase:
    data: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"))
    assert set(data) <= FIELDS, f"{path.name}: {set(data) - FIELDS}"
    assert data["kind"] in KINDS, path.name
    ranks, nodes = data.get("culprit_ranks"), data.get("culprit_nodes")
    return CorpusCase(
        name=path.stem,
        expected=FaultClass(data["class"]),
        also=frozenset(FaultClass(word) for word in data.get("also") or ()),
        kind=data["kind"],
        source=data["source"],
        reason=data["reason"],
        ranks=None if ranks is None else frozenset(ranks),
        nodes=None if nodes is None else frozenset(nodes),
        files=tuple((name, tuple(text.split("\n")[:-1])) for name, text in data["files"].items()),
        retry_helps=data.get("retry_helps"),
    )


def answer(case: CorpusCase) -> Answer:
    """Diagnose one case."""
    return Answer(case, diagnose(evidence_of(case.files)))


@cache
def answers(part: str) -> tuple[Answer, ...]:
    """Diagnose every case of a part."""
    return tuple(answer(case) for case in cases(part))


@dataclass(frozen=True)
class Count:
    """How good the answers are."""

    cases: int
    accuracy: float
    macro_f1: float
    false_alarms: float
    """Share of healthy cases called a failure."""
    blamed_hardware: tuple[str, ...]
    """Users' errors called hardware."""
    culprits: float
    """Share of right culprits where they are known and the class is right."""
    culprits_known: int
    firsts: float
    """Share of those whose failing ranks are known where one of them is named; `firsts_known`: how many."""
    firsts_known: int
    retries: float
    """Share of right answers to whether the same start again helps, where that is known."""
    retries_known: int
    brier: float
    reliability: tuple[tuple[float, float, int], ...]
    """(mean stated confidence, measured accuracy, cases) of each fifth."""
    confusion: tuple[tuple[str, str, int], ...]


def count(found: Sequence[Answer]) -> Count:
    """Count the answers of a part."""
    healthy = [item for item in found if item.case.expected is FaultClass.NONE]
    known = [item for item in found if item.culprit_known and item.right]
    ranked = [item for item in found if item.case.ranks]
    again = [item for item in found if item.case.retry_helps is not None]
    return Count(
        cases=len(found),
        accuracy=_share(item.right for item in found),
        macro_f1=_macro_f1(found),
        false_alarms=_share(not item.right for item in healthy),
        blamed_hardware=tuple(
            item.case.name
            for item in found
            if item.case.expected in USERS and not item.right and item.diagnosis.fault_class in HARDWARE
        ),
        culprits=_share(item.culprit_right for item in known),
        culprits_known=len(known),
        firsts=_share(item.first_right for item in ranked),
        firsts_known=len(ranked),
        retries=_share(item.diagnosis.retry_helps is item.case.retry_helps for item in again),
        retries_known=len(again),
        brier=sum((item.diagnosis.confidence - item.right) ** 2 for item in found) / max(1, len(found)),
        reliability=_reliability(found),
        confusion=tuple(
            (first, second, number)
            for (first, second), number in Counter(
                (item.case.expected.value, item.diagnosis.fault_class.value) for item in found if not item.right
            ).most_common()
        ),
    )


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 1.0


def _macro_f1(found: Sequence[Answer]) -> float:
    scores: list[float] = []
    for kind in {item.case.expected for item in found}:
        said = {item.case.name for item in found if _counted(item) is kind}
        true = {item.case.name for item in found if item.case.expected is kind}
        scores.append(2 * len(said & true) / (len(said) + len(true)) if said or true else 1.0)
    return sum(scores) / len(scores)


def _counted(item: Answer) -> FaultClass:
    """An accepted second class counts as the label."""
    return item.case.expected if item.right else item.diagnosis.fault_class


def _reliability(found: Sequence[Answer]) -> tuple[tuple[float, float, int], ...]:
    edges = (0.0, 0.5, 0.7, 0.8, 0.9, 1.01)
    rows: list[tuple[float, float, int]] = []
    for low, high in itertools.pairwise(edges):
        inside = [item for item in found if low <= item.diagnosis.confidence < high]
        if inside:
            mean = sum(item.diagnosis.confidence for item in inside) / len(inside)
            rows.append((mean, _share(item.right for item in inside), len(inside)))
    return tuple(rows)


def report(part: str) -> str:
    """The count of a part as text."""
    made = count(answers(part))
    lines = [
        f"{part}: {made.cases} cases, accuracy {made.accuracy:.3f}, macro-F1 {made.macro_f1:.3f}, "
        f"false alarms on healthy {made.false_alarms:.3f}, culprit right {made.culprits:.3f} of {made.culprits_known}, "
        f"a failing rank named {made.firsts:.3f} of {made.firsts_known}, "
        f"retry right {made.retries:.3f} of {made.retries_known}, "
        f"users' errors called hardware {len(made.blamed_hardware)}, Brier {made.brier:.3f}",
        "  stated confidence -> accuracy: "
        + ", ".join(f"{stated:.2f} -> {measured:.2f} (n={number})" for stated, measured, number in made.reliability),
        "  confusion: " + (", ".join(f"{a} as {b} x{n}" for a, b, n in made.confusion) or "none"),
    ]
    return "\n".join(lines)
