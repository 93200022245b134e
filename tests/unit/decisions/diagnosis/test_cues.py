"""What wakes patterns and observers: a cue may wake in vain, and never stays silent where something is meant."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis import matching, prefilter, steps
from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.matching import ALL, Alike, Index, Seldom, blind, match_line, zeroed
from flows.decisions.diagnosis.prefilter import CUES, HELD, Cue, CuesOfTexts
from flows.decisions.diagnosis.selection import evidence_of
from tests.support.cases.corpus_cases import cases
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

PATTERNS = [(cue, pattern) for cue in CUES for pattern in cue.patterns]
PRINTED = st.characters(codec="ascii", exclude_categories=["Cc"])
SOME = cases("development")[::12]


class Everything(CuesOfTexts):
    """Every text holds every cue."""

    def __getitem__(self, text: str) -> int:
        return -1


@pytest.mark.parametrize("number", range(len(PATTERNS)))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_cue_stands_in_everything_that_its_patterns_match(number: int, data: st.DataObject) -> None:
    cue, pattern = PATTERNS[number]
    text = data.draw(st.from_regex(pattern, alphabet=PRINTED))
    assert cue.holds(text)


def test_nothing_that_is_skipped_would_change_a_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_rule(self: Index, text: str) -> Alike:
        return Alike(list(self.likely(text)))

    def search(self: Alike, rule: Rule, text: str) -> str | None:
        hit = rule.regex.search(text)
        return None if hit is None else next(filter(None, hit.groupdict().values()), "")

    def from_its_beginning(lower: str, word: str, names: str) -> int:
        return 0

    def tried(self: Seldom, text: str) -> re.Match[str] | None:
        return self.regex.search(text)

    quick = [diagnose(evidence_of(case.files)) for case in SOME]
    monkeypatch.setattr("flows.decisions.diagnosis.prefilter.HELD", Everything())
    monkeypatch.setattr("flows.decisions.diagnosis.lines._ANY_PREFIX", re.compile(""))
    monkeypatch.setattr(Index, "alike", every_rule)
    monkeypatch.setattr(Alike, "search", search)
    monkeypatch.setattr(Seldom, "search", tried)
    monkeypatch.setattr("flows.decisions.diagnosis.steps._beginning", from_its_beginning)
    monkeypatch.setattr("flows.decisions.diagnosis.steps._numbers", vars(steps)["_numbers"].__wrapped__)
    monkeypatch.setattr("flows.decisions.diagnosis.observers.losses._FIRST_CHARACTERS", 1_000_000)
    slow = [diagnose(evidence_of(case.files)) for case in SOME]
    assert len(SOME) > 30
    assert [case.name for case, one, other in zip(SOME, quick, slow, strict=True) if one != other] == []


def test_a_cue_tells_lines_apart() -> None:
    cue = Cue("Link is down", "rank 3: ")
    said = [LogLine(text, "rank") for text in ("the LINK IS DOWN", "links are down", "rank 17:\tlate", "")]
    assert [cue.holds(line.text) for line in said] == [True, False, True, False]
    assert cue.among(said) == [said[0], said[2]]
    assert cue.anywhere(said)
    assert not cue.anywhere(said[1:2])


def test_a_word_of_digits_wakes_nobody() -> None:
    with pytest.raises(ValueError, match="digit"):
        Cue("12 34")


def test_texts_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "MAX_BYTES", 100_000)
    cue = Cue("a word that was never said")
    for number in range(2000):
        assert cue.holds(f"{number}: a word that was never said {string.ascii_letters * (number % 7)}")
        assert not cue.holds(f"{number}: nothing")
    assert len(HELD) < 1000


@given(st.sampled_from([line for case in SOME for _, texts in case.files for line in texts]), st.randoms())
@settings(max_examples=10, deadline=None)
def test_lines_that_differ_in_digits_alone_are_judged_by_their_own_digits(text: str, rng: Random) -> None:
    def other() -> str:
        return "".join(rng.choice("0123456789") if letter in "0123456789" else letter for letter in text[:2000])

    for said in [other() for _ in range(12)]:
        assert zeroed(said) == zeroed(text[:2000])
        assert names(match_line(said)) == names(match_line(said, index=Index(ALL.rules)))


def names(found: Iterable[matching.RuleMatch]) -> list[tuple[str, str]]:
    return [(match.rule.name, match.peer) for match in found]


@rows("diagnosis/cues")
def test_a_pattern_is_blind_where_no_digit_matters(pattern: str, said: bool) -> None:
    assert blind(pattern) == said
    if not said:
        with pytest.raises(ValueError, match="digit"):
            Seldom(pattern)
