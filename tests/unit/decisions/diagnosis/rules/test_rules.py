"""Every rule's own example, its near miss, and the safety of its pattern."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.literals import ops, parser, read_literals
from flows.decisions.diagnosis.matching import RULES, match_line, rule_by_name
from profiles.vocabulary import FaultClass
from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.model.attempt import Evidence, LogLine, Signal

F = FaultClass
BY_NAME = {rule.name: rule for rule in RULES}
WITNESSED = {F.STRAGGLER, F.STARTED_OVER, F.PROCESS_KILLED, F.CONTROL_PLANE, F.UNKNOWN, F.NONE}


def said(text: str) -> str:
    return clean(LogLine(text, "rank")).text


def evidence(*texts: str) -> Evidence:
    lines = tuple(LogLine(text, "file", None, "node-3", None, "x.log", number) for number, text in enumerate(texts, 1))
    return Evidence(Signal.POD_FAILED, "demo", 1, 100.0, lines=lines)


def test_a_rule_matches_its_example_and_no_other_rule_takes_it_away() -> None:
    found = {name: [match.rule.name for match in match_line(said(rule.example))] for name, rule in BY_NAME.items()}
    assert {name: names for name, names in found.items() if names != [name]} == {}


def test_a_rule_does_not_match_its_near_miss() -> None:
    assert [name for name, rule in BY_NAME.items() if rule.regex.search(said(rule.near_miss))] == []


def test_the_example_alone_gives_the_class_of_its_rule() -> None:
    wrong: dict[str, object] = {}
    for rule in RULES:
        if rule.weight < 0.3 or rule.fault_class is F.UNKNOWN:
            continue
        found = diagnose(evidence(rule.example))
        if rule.fault_class is F.NONE:
            seen, wanted = (found.fault_class, found.evidence), (F.UNKNOWN, ())
        else:
            seen = (found.fault_class, found.rule, found.node_suspect)
            wanted = (rule.fault_class, rule.name, rule.blames == "node")
        if seen != wanted:
            wrong[rule.name] = seen
    assert wrong == {}


def test_noise_changes_nothing_about_a_failure() -> None:
    failure = "IndexError: list index out of range"
    alone, wrong = diagnose(evidence(failure)), dict[str, object]()
    for rule in RULES:
        if rule.fault_class is not F.NONE:
            continue
        noisy = diagnose(evidence(rule.example, failure))
        if (noisy.fault_class, noisy.confidence) != (alone.fault_class, alone.confidence):
            wrong[rule.name] = (noisy.fault_class, noisy.confidence)
    assert wrong == {}


def test_names_are_unique_and_what_is_superseded_exists() -> None:
    assert [name for name, count in Counter(rule.name for rule in RULES).items() if count > 1] == []
    words = set(BY_NAME) | {kind.value for kind in F} | {f"signal-{number}" for number in range(1, 32)}
    assert {word for rule in RULES for word in rule.supersedes} - words == set()
    assert rule_by_name("disk-full") is BY_NAME["disk-full"]
    assert rule_by_name("no-such-rule") is None


def test_every_class_has_rules() -> None:
    counts = Counter(rule.fault_class for rule in RULES)
    assert {kind for kind in F if counts[kind] == 0} == set()
    assert {kind for kind in set(F) - WITNESSED if counts[kind] < 2} == set()


def test_weights_are_probabilities_and_literals_stand_in_the_example() -> None:
    for rule in RULES:
        assert 0 < rule.weight <= 1, rule.name
        assert rule.literals, rule.name
        assert all(word == word.lower() and len(word) > 2 for word in rule.literals), rule.name
        assert rule.source, rule.name


def _repeats(tree: Any, outer: int = 1) -> list[tuple[int, int]]:
    """(outer, inner) upper limits of repetitions that stand inside another one."""
    found: list[tuple[int, int]] = []
    for op, value in tree:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            _, most, inside = value
            if outer > 1 and most > 1:
                found.append((outer, int(most)))
            found += _repeats(inside, max(outer, int(most)))
        elif op is ops.SUBPATTERN:
            found += _repeats(value[3], outer)
        elif op is ops.BRANCH:
            found += [item for branch in value[1] for item in _repeats(branch, outer)]
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            found += _repeats(value[1], outer)
    return found


def test_no_pattern_repeats_a_repetition() -> None:
    """A repetition inside a repetition is what makes backtracking catastrophic."""
    found = {name: _repeats(parser.parse(rule.pattern)) for name, rule in BY_NAME.items()}
    assert {name: repeats for name, repeats in found.items() if repeats} == {}
    assert _repeats(parser.parse(r"x(?:a{1,9}b){1,5}")) == [(5, 9)]


def _strings(tree: Any) -> set[str] | None:
    """All texts that a pattern matches, in lower case; None where there are too many to be written down."""
    found = {""}
    for op, value in tree:
        if op is ops.LITERAL:
            more: set[str] | None = {chr(value).lower()}
        elif op is ops.SUBPATTERN:
            more = _strings(value[3])
        elif op is ops.BRANCH:
            more = _union([_strings(branch) for branch in value[1]])
        elif op is ops.IN:
            more = {chr(item).lower() for _, item in value} if all(kind is ops.LITERAL for kind, _ in value) else None
        elif op is ops.MAX_REPEAT and value[:2] == (0, 1):
            more = _union([{""}, _strings(value[2])])
        else:
            more = {""} if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT) else None
        if more is None or len(found) * len(more) > 64:
            return None
        found = {first + second for first in found for second in more}
    return found


def _union(parts: list[set[str] | None]) -> set[str] | None:
    return None if any(part is None for part in parts) else {text for part in parts for text in part or ()}


def _held(tree: Any, words: tuple[str, ...]) -> bool:
    """Does every match of the pattern hold one of the words?"""
    current, end = {""}, cast("Any", (None, None))
    for op, value in [*tree, end]:
        part = _strings([(op, value)]) if op is not None else None
        if part is not None and len(current) * len(part) <= 64:
            current = {first + second for first in current for second in part}
            continue
        if all(any(word in text for word in words) for text in current):
            return True
        current = part if part is not None else {""}
        if op is ops.SUBPATTERN and _held(value[3], words):
            return True
        if op is ops.BRANCH and all(_held(branch, words) for branch in value[1]):
            return True
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT) and value[0] >= 1 and _held(value[2], words):
            return True
    return False


def test_a_pattern_of_which_no_part_is_written_out_is_refused() -> None:
    for pattern in (r"\d{1,3} (?:\w+|x)?", r"(?:error|\S+) [a-z]{2}", r"x{0,3}"):
        with pytest.raises(ValueError, match="no word"):
            read_literals(pattern)


def test_every_match_holds_one_of_the_literals() -> None:
    """Skipping lines without a literal never loses one."""
    assert [name for name, rule in BY_NAME.items() if not _held(parser.parse(rule.pattern), rule.literals)] == []


def _hostile(rule: Rule) -> list[str]:
    piece = rule.example[:40]
    return [piece * 60, "a" * 5000, "a." * 2500, " " * 5000, "9" * 5000, "\x00\xff" * 2500, rule.literals[0] * 800]


def test_hostile_lines_of_every_kind_cost_little() -> None:
    """Not a benchmark: a catastrophic pattern needs hours here, all of them together need a second or two."""
    begin = time.process_time()
    for rule in RULES:
        for text in _hostile(rule):
            rule.regex.search(text[:2000])
    assert time.process_time() - begin < 60


EXAMPLES = damaged([rule.example for rule in RULES], ["Traceback", "[rank0]: ", "Xid", ": ", "step 5", "\n", "nan"])


def test_damaged_examples_match_and_do_not() -> None:
    whole, starts = {rule.example for rule in RULES}, tuple(rule.example[:9] for rule in RULES)
    assert reaches(EXAMPLES, lambda text: text not in whole and bool(match_line(said(text))))
    assert reaches(EXAMPLES, lambda text: text.startswith(starts) and not match_line(said(text)))


@settings(max_examples=200, deadline=None)
@given(EXAMPLES | st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    match_line(clean(LogLine(text, "rank")).text)
    assert 0.0 <= diagnose(evidence(text, text[::-1])).confidence <= 1.0


@rows("diagnosis/rules/rules")
def test_prefixes_of_launchers_are_taken_off(raw: str, text: str, rank: int | None) -> None:
    line = clean(LogLine(raw, "file"))
    assert (line.text, line.rank) == (text, rank)
