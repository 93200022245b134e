"""The corpus of logs: what it must hold, and how good the diagnosis of it is, each part for itself.

The figures of both parts are printed at the end of the test run. Of the part set aside no single case is named.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import EXAMS, PARTS, CorpusCase, answers, cases, count, report

F = FaultClass
MAIL = re.compile(r"\b[A-Za-z][\w.+-]{0,60}@[A-Za-z][\w-]{0,60}\.(?:com|org|net|edu|gov|io|ai|de|fr|uk|cn|jp|kr|ch)\b")
TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{30,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{35}|"
    r"\bxox[abp]-[\w-]{20,}|\bsk-[A-Za-z0-9]{32,}|\beyJ[\w-]{20,}\.eyJ[\w-]{20,}|-----BEGIN [A-Z ]{0,20}PRIVATE KEY"
)
LIMITS = {
    "accuracy": (0.90, 1.0),
    "false alarms on healthy logs": (0.0, 0.0),
    "users' errors called hardware": (0.0, 0.0),
    "right culprits": (0.90, 1.0),
}
"""What each part must not fall behind: least and most."""
MOST_BRIER = 0.12
MOST_OFF = 0.15
"""How far stated confidence and accuracy may lie apart."""
ENOUGH = 15
"""A share of fewer cases than this is no measurement."""


@pytest.fixture(scope="module")
def every_case() -> tuple[CorpusCase, ...]:
    return tuple(case for part in PARTS for case in cases(part))


@pytest.fixture(scope="module")
def exam_cases() -> tuple[CorpusCase, ...]:
    return tuple(case for part in EXAMS for case in cases(part))


def texts(case: CorpusCase) -> str:
    return "\n".join(line for _, lines in case.files for line in lines)


def figures(part: str) -> dict[str, float]:
    """Aggregates alone: what an assertion shows must name no case."""
    made = count(answers(part))
    return {
        "accuracy": made.accuracy,
        "false alarms on healthy logs": made.false_alarms,
        "users' errors called hardware": float(len(made.blamed_hardware)),
        "right culprits": made.culprits,
    }


def test_there_are_enough_cases_of_every_kind(every_case: tuple[CorpusCase, ...]) -> None:
    classes = Counter(case.expected for case in every_case)
    few = {kind.value: classes[kind] for kind in F if classes[kind] < 5}
    several, healthy, found = (
        sum(case.several_ranks for case in every_case),
        classes[F.NONE],
        sum(case.kind == "found" for case in every_case),
    )
    assert few == {}
    assert len(every_case) >= 200
    assert healthy >= 25
    assert several >= 20
    assert found * 4 >= len(every_case) * 3


def test_the_part_set_aside_holds_what_machines_printed() -> None:
    kinds = Counter(case.kind for case in cases("held_out"))
    assert set(kinds) == {"found"}
    assert kinds.total() >= 50


def test_no_case_stands_in_both_parts() -> None:
    first, second = ({texts(case) for case in cases(part)} for part in PARTS)
    shared = len(first & second)
    assert shared == 0


def test_every_case_says_where_it_is_from_and_why_it_is_what_it_is(every_case: tuple[CorpusCase, ...]) -> None:
    sources = sum(len(case.source.strip()) < 12 for case in every_case)
    reasons = sum(len(case.reason.split()) < 5 for case in every_case)
    empty = sum(not texts(case).strip() for case in every_case)
    assert (sources, reasons, empty) == (0, 0, 0)


def test_nothing_private_stands_in_it(every_case: tuple[CorpusCase, ...]) -> None:
    mails = sum(MAIL.search(texts(case)) is not None for case in every_case)
    tokens = sum(TOKEN.search(texts(case)) is not None for case in every_case)
    assert (mails, tokens) == (0, 0)


def test_culprits_are_named_for_many(every_case: tuple[CorpusCase, ...]) -> None:
    named = sum(case.ranks is not None or case.nodes is not None for case in every_case)
    assert named * 3 >= len(every_case)


@pytest.mark.parametrize("goal", LIMITS)
@pytest.mark.parametrize("part", PARTS)
def test_the_diagnosis_is_good_enough(part: str, goal: str, corpus_reports: dict[str, str]) -> None:
    if part not in corpus_reports:
        corpus_reports[part] = report(part)
    (least, most), measured = LIMITS[goal], figures(part)[goal]
    assert least <= measured <= most, f"{part}: {goal} is {measured:.3f}, wanted from {least} to {most}"


@pytest.mark.parametrize("part", PARTS)
def test_stated_confidence_can_be_believed(part: str) -> None:
    """What is stated is measured with new threads; where the answers are better than there, too modest is no fault.

    Without any limit where rules were written for the cases, and as far as 16 cases may lie off by chance elsewhere.
    """
    made = count(answers(part))
    modest = 0.2 if part == "held_out" else 1.0
    off = [
        f"stated {stated:.2f}, right {measured:.2f} of {number}"
        for stated, measured, number in made.reliability
        if number >= ENOUGH and not -MOST_OFF <= measured - stated <= modest
    ]
    assert made.brier <= MOST_BRIER
    assert off == []


def test_what_an_expert_would_accept_is_the_exception(every_case: tuple[CorpusCase, ...]) -> None:
    assert sum(bool(case.also) for case in every_case) * 5 <= len(every_case)


REACHED = {"exam": (0.895, 0.9, 0.84, 0), "exam_seen": (0.905, 0.95, 0.84, 1)}
"""Of each exam: accuracy, right answers on retries, failing ranks named, and users' errors called a driver's; never one
called hardware.

0.93, 0.9, 0.8 and none are wanted. Whatever is better moves these.
"""


@pytest.mark.parametrize("part", EXAMS)
def test_of_an_exam_no_healthy_log_is_a_failure_and_no_error_of_a_user_is_hardware(
    part: str, corpus_reports: dict[str, str]
) -> None:
    corpus_reports[part] = report(part)
    made, (accuracy, retries, firsts, most_blamed) = count(answers(part)), REACHED[part]
    alarms = sum(
        one.case.expected is F.NONE and one.diagnosis.fault_class not in (F.NONE, F.UNKNOWN) for one in answers(part)
    )
    blamed = [one for one in answers(part) if one.case.name in made.blamed_hardware]
    assert alarms == 0
    assert len(blamed) <= most_blamed
    assert {one.diagnosis.fault_class for one in blamed} <= {F.GPU_DRIVER}
    assert made.accuracy >= accuracy
    assert made.retries >= retries
    assert made.firsts >= firsts


def test_an_exam_is_new_private_to_nobody_and_says_where_it_is_from(
    exam_cases: tuple[CorpusCase, ...], every_case: tuple[CorpusCase, ...]
) -> None:
    shared = {texts(case) for case in exam_cases} & {texts(case) for case in every_case}
    private = sum(bool(MAIL.search(texts(case)) or TOKEN.search(texts(case))) for case in exam_cases)
    unfounded = sum(len(case.source.strip()) < 12 or len(case.reason.split()) < 5 for case in exam_cases)
    assert (len(shared), private, unfounded) == (0, 0, 0)
    assert len(cases("exam")) >= 110
