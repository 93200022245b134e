"""What must hold for any log: the same story told differently is the same diagnosis, and no rule is superfluous."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.matching import ALL, RULES, Index, match_line
from profiles.vocabulary import FaultClass
from tests.proof import in_turn
from tests.support.cases.corpus_cases import Answer, CorpusCase, answer, answers, cases
from tests.support.cases.corpus_variants import (
    KERNEL_NOISE,
    NOISE,
    PREFIXES,
    coloured,
    interleaved,
    moved,
    noisy,
    prefixed,
    ranks_of,
    restyled,
    shuffled,
    without,
)
from workflows.model.attempt import Evidence, LogLine, Signal

F = FaultClass
PART = "development"
SILENT_CLASSES = frozenset({F.NONE, F.UNKNOWN})
"""They rest on no line."""
ORDER_TELLS = {
    "started-over-b-imaginaire-epoch-0": "the command comes before its log, and neither has a time",
}
"""Files whose order is the only thing that says what came first."""


def said(found: Diagnosis) -> tuple[FaultClass, tuple[tuple[str, int | None], ...]]:
    return found.fault_class, tuple(sorted(found.culprits, key=str))


def changed(
    vary: Callable[[CorpusCase], CorpusCase], chosen: Callable[[CorpusCase], bool] = lambda _: True
) -> list[str]:
    """Cases whose class is another one when their logs are told differently."""
    found: list[str] = []
    for known in answers(PART):
        if not chosen(known.case):
            continue
        other = vary(known.case)
        if other.files == known.case.files:
            continue
        now = answer(other).diagnosis
        if now.fault_class is not known.diagnosis.fault_class:
            found.append(f"{known.case.name}: {known.diagnosis.fault_class} became {now.fault_class} [{now.rule}]")
    return found


def several_ranks(case: CorpusCase) -> bool:
    return len(ranks_of(case)) > 1


@pytest.mark.parametrize("seed", in_turn([1, 2, 3], 3))
def test_the_order_of_files_does_not_matter(seed: int) -> None:
    assert changed(lambda case: shuffled(case, seed), lambda case: case.name not in ORDER_TELLS) == []


def test_the_exceptions_are_cases() -> None:
    assert set(ORDER_TELLS) <= {case.name for case in cases(PART)}


@pytest.mark.parametrize("seed", in_turn([1, 2], 2))
def test_noise_between_the_lines_does_not_matter(seed: int) -> None:
    assert len(NOISE) > 100
    assert len(KERNEL_NOISE) > 10
    assert changed(lambda case: noisy(case, seed)) == []


def test_colours_do_not_matter() -> None:
    assert changed(coloured) == []


@pytest.mark.parametrize("style", PREFIXES)
def test_a_rank_may_stand_in_the_line_instead_of_in_the_name(style: str) -> None:
    """Whoever is to blame is the same one, too."""
    tried = [known for known in answers(PART) if ranks_of(known.case)]
    now = [answer(prefixed(known.case, style)) for known in tried]
    assert len(tried) > 12
    assert [(x.case.name, said(x.diagnosis)) for x in now] == [(x.case.name, said(x.diagnosis)) for x in tried]


@pytest.mark.parametrize("style", PREFIXES)
def test_the_logs_of_all_ranks_may_be_one(style: str) -> None:
    tried = [known for known in answers(PART) if several_ranks(known.case)]
    now = [answer(interleaved(known.case, style, 1)) for known in tried]
    assert len(tried) > 8
    assert [(x.case.name, said(x.diagnosis)) for x in now] == [(x.case.name, said(x.diagnosis)) for x in tried]


@pytest.mark.parametrize("hours", [5, -8])
def test_time_zones_do_not_matter(hours: int) -> None:
    assert changed(lambda case: moved(case, hours)) == []


@pytest.mark.parametrize("style", ["american", "slashes", "iso"])
def test_the_notation_of_times_does_not_matter(style: str) -> None:
    assert changed(lambda case: restyled(case, style)) == []


def _after_its_evidence(known: Answer) -> Iterator[Diagnosis]:
    """The diagnosis after the lines that speak for the class were taken away, and again, until none is left."""
    case, found = known.case, known.diagnosis
    while True:
        dropped = frozenset((clue.file, clue.line) for clue in found.evidence if clue.fault_class is found.fault_class)
        smaller = without(case, dropped)
        if smaller.files == case.files:
            return
        case, found = smaller, answer(smaller).diagnosis
        yield found
        if found.fault_class is not known.diagnosis.fault_class:
            return


def test_without_its_evidence_a_class_is_left_or_less_sure() -> None:
    stayed = [
        known.case.name
        for known in answers(PART)
        if known.diagnosis.fault_class not in SILENT_CLASSES
        and not any(
            now.fault_class is not known.diagnosis.fault_class or now.confidence < known.diagnosis.confidence
            for now in _after_its_evidence(known)
        )
    ]
    assert stayed == []


def test_every_rule_is_needed() -> None:
    """Without a rule its example is not diagnosed by that rule any more, and says less or something else."""
    same: list[str] = []
    for rule in RULES:
        text = clean(LogLine(rule.example, "rank")).text
        rest = Index(other for other in ALL.likely(text) if other.name != rule.name)
        before, after = match_line(text), match_line(text, index=rest)
        if [match.rule.name for match in before] != [rule.name] or before == after:
            same.append(rule.name)
    assert same == []
    assert len(ALL.rules) == len(RULES)


def test_the_diagnosis_of_an_example_names_its_rule() -> None:
    wrong: dict[str, str] = {}
    for rule in RULES:
        if rule.weight < 0.3 or rule.fault_class in SILENT_CLASSES:
            continue
        line = LogLine(rule.example, "file", None, "node-3", None, "x.log", 1)
        found = diagnose(Evidence(Signal.LOGS, "", 0, 0.0, lines=(line,))).rule
        if found != rule.name:
            wrong[rule.name] = found
    assert wrong == {}
