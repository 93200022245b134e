"""What a line of a long log tells, and what is needed to know it quickly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.exceptions import tracebacks
from flows.decisions.diagnosis.exits import exits
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.matching import ALL, RULES, numbers_matter
from flows.decisions.diagnosis.prefilter import Words, finder, template
from flows.decisions.diagnosis.significance import (
    DULL,
    LineSignificance,
    SignificanceIndex,
    readable,
    rules_again,
    significance_of,
)
from flows.decisions.diagnosis.steps import FirstAndLast, Sample, done, in_turn, outer, step_of
from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import cases
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

XID = "[  123.456] NVRM: Xid (PCI:0000:44:00): {}, pid=4711, name=python, Ch 00000010"
LINES = [text for case in cases("development") for _, lines in case.files for text in lines]


def announced(*texts: str) -> list[bool]:
    templates = [template(text.encode()) for text in texts]
    found = SignificanceIndex().announced(templates)
    return [item in found for item in templates]


@rows("diagnosis/telling")
def test_a_line_tells(text: str, kinds: list[str], step: bool) -> None:
    found = significance_of(text)
    assert [*found.rules, *found.marks] == kinds or set(kinds) <= {*found.rules, *found.marks}
    assert found.step is step
    assert (found is DULL) == (not kinds and not step)


def test_every_line_that_is_evidence_tells_and_is_announced() -> None:
    """Launchers' reports, exceptions, steps and ends of all logs that may be looked at."""
    said = [text for text in LINES if exits((clean(LogLine(text, "")),))]
    said += [text for text in LINES if step_of(clean(LogLine(text, ""))) or done(clean(LogLine(text, "")))]
    assert len(said) > 100
    assert [text for text in said if significance_of(text).silent] == []
    assert [text for text, found in zip(said, announced(*said), strict=True) if not found] == []


def test_every_rule_s_example_is_announced() -> None:
    failing = [rule for rule in RULES if rule.fault_class is not FaultClass.NONE]
    found = announced(*(rule.example for rule in failing))
    lost = {rule.name for rule, said in zip(failing, found, strict=True) if not said}
    short = {rule.name for rule in failing if all(len(template(word.encode())) < 3 for word in rule.literals)}
    assert lost <= short


def test_numbers_make_a_difference_where_a_rule_names_them() -> None:
    ignored, lost = significance_of(XID.format(43)), significance_of(XID.format(79))
    assert ignored.numbered is not None
    assert "xid-off-the-bus" in lost.rules
    assert "xid-off-the-bus" in rules_again(XID.format(79), ignored.numbered)
    assert significance_of("RuntimeError: NCCL communicator was aborted on rank 5").numbered is None


@rows("diagnosis/telling")
def test_whether_numbers_matter(pattern: str, text: str, matter: bool) -> None:
    assert numbers_matter(pattern, text) is matter


def test_no_number_makes_a_pattern_match_where_numbers_do_not_matter() -> None:
    """Examples with other numbers, against every rule that is said not to depend on them."""
    for rule in RULES[::4]:
        text = clean(LogLine(rule.example, "")).text
        for other in [other for other in RULES if not numbers_matter(other.pattern, text)]:
            changed = text.translate(str.maketrans("0123456789", "7890123456"))
            assert (other.regex.search(text) is None) == (other.regex.search(changed) is None), (rule.name, other.name)


NAMES = ("anna", "bert", "carl", "dora", "emil", "fritz", "gustav", "hans", "ida", "karl", "lutz", "rolf", "willi")
CHAT = (
    "the server said that memory, state, image, model, module, thread, device, world and error are words of {} and {}"
)


def test_words_that_say_nothing_too_often_are_chatter() -> None:
    teller = SignificanceIndex(chatter=20)
    lines = [CHAT.format(a, b).encode() for a in NAMES for b in NAMES]
    templates = {template(line) for line in lines}
    assert significance_of(lines[0].decode()).silent
    assert teller.announced(templates) == templates
    for line in lines:
        teller.of(line)
    assert [bool(teller.announced(templates)) for _ in range(4)][-1] is False
    told = template(b"RuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert teller.announced([told]) == {told}


def test_a_word_that_tells_now_and_then_stays() -> None:
    teller = SignificanceIndex(chatter=5)
    lines = [CHAT.format(a, b).encode() for a in NAMES for b in NAMES]
    for number, line in enumerate(lines):
        teller.of(line)
        if number % 20 == 0:
            words = "memory, state, image, model, module, thread, device, world, server"
            teller.of(f"{NAMES[number // 20]}: CUDA error: out of memory ({words})".encode())
    assert all(teller.announced([template(lines[0])]) for _ in range(5))


def test_lines_that_differ_in_numbers_and_hashes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def significance_of(text: str, _: object) -> LineSignificance:
        read.append(text)
        return DULL

    monkeypatch.setattr("flows.decisions.diagnosis.significance.significance_of", significance_of)
    teller = SignificanceIndex()
    for number in range(50):
        teller.of(
            f"shard-{number} of s3://bucket/{hash(number) & 0xFFFFFFFFFF:012x}.tar failed {number} times".encode()
        )
    assert len(read) <= 2


def test_random_bytes_are_no_text() -> None:
    assert readable(bytes(range(128, 256)) * 3) == ""
    assert readable("ошибка: нет места на диске".encode()) != ""
    assert readable(b"caf\xe9 closed: error") == "caf\ufffd closed: error"


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8), max_size=40),
       st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))  # fmt: skip
def test_many_words_at_once_are_each_word_by_itself(words: list[str], text: str) -> None:
    encoded, raw = [word.encode() for word in words], text.encode()
    held = {word for word in encoded if word in raw}
    assert finder(encoded)(text) == bool(held)
    assert set(Words(encoded).within(raw)) == held


def test_rules_that_may_hold_are_never_passed_over() -> None:
    for text in LINES[::5]:
        line = clean(LogLine(text, "")).text[:2000]
        key = template(line.encode())
        assert ALL.likely(line) == ALL.announced(word for word in ALL.words if word in key)
        holding = {rule.name for rule in RULES if rule.regex.search(line)}
        assert holding <= {rule.name for rule in ALL.likely(line)}


def test_first_and_last() -> None:
    store: FirstAndLast[int] = FirstAndLast(2, 3)
    gone = [store.offer(number) for number in range(7)]
    assert gone == [None, None, None, None, None, 2, 3]
    assert list(store.outer_first()) == [6, 0, 5, 1, 4]


@given(st.integers(1, 40), st.integers(0, 500))
def test_a_sample_is_even_and_bounded(most: int, offered: int) -> None:
    sample: Sample[int] = Sample(most)
    for number in range(offered):
        sample.offer(number)
    gaps = {second - first for first, second in zip(sample.items, sample.items[1:], strict=False)}
    assert len(sample.items) <= most
    assert len(gaps) <= 1
    assert offered == 0 or sample.items[0] == 0


def test_in_turn_and_outer() -> None:
    assert list(in_turn([iter([1, 2, 3]), iter([]), iter([4])])) == [1, 4, 2, 3]
    assert list(outer(range(10), 2)) == [0, 1, 8, 9]
    assert list(outer(range(4), 2)) == [0, 1, 2, 3]


def test_what_tracebacks_need_is_marked() -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: x"]
    assert tracebacks([LogLine(text, "") for text in lines])
    assert [bool(significance_of(text).marks or significance_of(text).rules) for text in lines] == [True, True, True]
    assert re.fullmatch(r"\w+", significance_of(lines[0]).marks[0])
