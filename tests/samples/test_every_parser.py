"""What holds for every parser: it never raises, a broken-off text never tells anything new, no figure is made up."""

from __future__ import annotations

import math
import random
import re
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.checks import catalogue
from tests.support.cases.rows import rows
from tests.support.cases.tool_samples import FOLDER, SAMPLES, counted, printed, whole
from workflows.programs.parsers.registry import PARSERS
from workflows.programs.parsers.text import ParsedOutput, Reading

UNITS = ("", "count", "GB/s", "Gb/s", "TFLOP/s", "W", "degC", "MHz", "GiB", "GT/s", "%", "s", "ms", "us", "1/s")
ENDLESS = {"nvidia-smi", "amd-smi", "rvs", "rocblas-bench", "rdma-link", "ethtool", "lspci", "kernel-log", "sysfs"}
ENDLESS |= {"timedatectl", "fio"}
"""Tools that print nothing at their end: where lines are missing below, nobody can see it."""
each_sample = pytest.mark.parametrize(("tool", "name"), SAMPLES)
each_document = pytest.mark.parametrize(("tool", "name"), [one for one in SAMPLES if one[1].endswith(".json")])
each_ended = pytest.mark.parametrize(
    ("tool", "name"),
    [one for one in SAMPLES if one[0] not in ENDLESS and not one[1].endswith(".json") and not whole(*one).unknown],
)


def sound(parsed: ParsedOutput) -> None:
    assert unsound(parsed) == []


def unsound(parsed: ParsedOutput) -> list[object]:
    """What must not be in an answer."""
    assert isinstance(parsed, ParsedOutput)
    if not parsed.readings and not parsed.unknown:
        return ["it says nothing"]
    return [one for one in parsed.readings if not _is_sound(one)]


def _is_sound(one: Reading) -> bool:
    named = one.unit in UNITS and one.said in ("", "pass", "fail") and one.quantity == one.quantity.lower()
    told = one.word if one.value is None else math.isfinite(one.value)
    short = len(one.line) <= 400 and len(one.word) <= 400 and len(one.subject) <= 160
    return named and bool(told) and short


@each_sample
def test_every_sample_is_read_soundly(tool: str, name: str) -> None:
    sound(whole(tool, name))


def test_every_parser_has_samples_and_suites_name_only_parsers_that_are_there() -> None:
    assert {tool for tool, _ in SAMPLES} == set(PARSERS)
    assert set(get_args(catalogue.Parser)) <= set(PARSERS)


def test_every_sample_has_its_source() -> None:
    sources = (FOLDER / "SOURCES.md").read_text(encoding="utf-8")
    assert [f"{tool}/{name}" for tool, name in SAMPLES if f"`{tool}/{name}`" not in sources] == []


@each_sample
def test_a_sample_broken_off_at_any_line_tells_nothing_new(tool: str, name: str) -> None:
    lines = printed(tool, name).splitlines(keepends=True)
    everything = counted(whole(tool, name))
    for at in range(len(lines)):
        broken = PARSERS[tool]("".join(lines[:at]))
        sound(broken)
        assert not counted(broken) - everything, f"after {at} lines"


@each_sample
def test_a_sample_broken_off_inside_a_line_tells_nothing_new_and_says_that_it_broke_off(tool: str, name: str) -> None:
    text = printed(tool, name)
    everything = counted(whole(tool, name))
    step = max(1, len(text) // 200)
    for at in {*range(1, len(text), step), *range(max(1, len(text) - 120), len(text))}:
        broken = PARSERS[tool](text[:at])
        sound(broken)
        assert not counted(broken) - everything, f"after {at} characters"
        if text[:at].rpartition("\n")[2].strip() and text[at:].strip():
            assert broken.unknown, f"after {at} characters"


@each_ended
def test_where_a_tool_prints_an_end_its_absence_is_told(tool: str, name: str) -> None:
    lines = printed(tool, name).splitlines(keepends=True)
    known = [at for at in range(len(lines)) if not PARSERS[tool]("".join(lines[:at])).unknown]
    # A table that was ended counts as whole, also where another one follows.
    assert all(counted(PARSERS[tool]("".join(lines[:at]))) for at in known)
    assert len(known) <= 6, known


@each_document
def test_json_tells_everything_or_nothing(tool: str, name: str) -> None:
    text = printed(tool, name).rstrip()
    for at in range(1, len(text), max(1, len(text) // 150)):
        broken = PARSERS[tool](text[:at])
        assert broken.readings == ()
        assert broken.unknown


@each_sample
def test_lines_in_any_order_are_read_without_harm(tool: str, name: str) -> None:
    lines = printed(tool, name).splitlines(keepends=True)
    for seed in range(8):
        random.Random(seed).shuffle(lines)
        sound(PARSERS[tool]("".join(lines)))


HUGE = ("9" * 18, "9" * 19, "9" * 400, "9" * 5000, "1e308", "1e999", "-1e999", "0" * 30)
NOTHING = ("nan", "-nan", "N/A", "-", "[Not Supported]", "inf", "", "Infinity", "NaN", "1_0")


@each_sample
def test_huge_numbers_are_no_figures(tool: str, name: str) -> None:
    wrong: list[tuple[str, str, list[object]]] = []
    for digits in HUGE:
        for figure in (r"[0-9]+\.[0-9]+", r"[0-9]+"):
            if found := unsound(PARSERS[tool](re.sub(figure, digits, printed(tool, name)))):
                wrong.append((digits[:20], figure, found))
    assert wrong == []


@each_sample
def test_what_is_no_figure_never_becomes_one(tool: str, name: str) -> None:
    known = {*(one.value for one in whole(tool, name).readings), 0.0, 1.0, None}
    wrong: list[tuple[str, list[object]]] = []
    for nothing in NOTHING:
        parsed = PARSERS[tool](re.sub(r"(?<![\w.-])[0-9]+\.[0-9]+(?![\w.-])", nothing, printed(tool, name)))
        if found := [*unsound(parsed), *(one for one in parsed.readings if one.value not in known)]:
            wrong.append((nothing, found))
    assert wrong == []


@each_sample
def test_another_tools_output_is_not_taken_for_ones_own(tool: str, name: str) -> None:
    text = printed(tool, name)
    sisters = ({"ib-write-bw", "ib-write-lat"}, {"rvs", "babelstream"}, {"chrony", "timedatectl"})
    for other, parse in PARSERS.items():
        if other != tool and {tool, other} not in sisters:
            parsed = parse(text)
            sound(parsed)
            assert parsed.readings == (), other
            assert parsed.unknown


@pytest.mark.parametrize("tool", PARSERS)
def test_silence_is_unknown(tool: str) -> None:
    for text in ("", "\n", "   \n\t\n"):
        assert PARSERS[tool](text) == ParsedOutput(unknown="nothing was printed")


@pytest.mark.parametrize("tool", PARSERS)
@rows("samples/every_parser")
def test_a_refusal_is_unknown_in_its_own_words(tool: str, text: str, why: str) -> None:
    parsed = PARSERS[tool](text)
    assert parsed.readings == ()
    assert why in parsed.unknown


PIECES = (
    "GPU",
    "[",
    "{",
    '{"',
    "}",
    "0",
    "12.5",
    " : ",
    "\n",
    "\t",
    "  ",
    "|",
    "+---",
    ";",
    "x16",
    "N/A",
    "\r",
    "nan",
    "=",
)
TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.one_of(st.sampled_from(PIECES), st.integers().map(str), st.floats().map(str)), max_size=80).map(
        "".join
    ),
)


@pytest.mark.parametrize("tool", PARSERS)
@settings(max_examples=40)
@given(text=TEXTS)
def test_any_text_has_an_answer(tool: str, text: str) -> None:
    sound(PARSERS[tool](text))


@given(data=st.data())
def test_a_damaged_sample_has_an_answer(data: st.DataObject) -> None:
    tool, name = data.draw(st.sampled_from(SAMPLES))
    text = printed(tool, name)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    sound(PARSERS[tool](text[:start] + data.draw(st.text(max_size=20)) + text[end:]))


@pytest.mark.parametrize("tool", PARSERS)
@pytest.mark.parametrize(
    "piece", ["[", "{", '{"a":', " ", "1", "9 ", "GPU[0]: ", "-", "a:", "<a>", "|", "\t", "\r", "/"]
)
def test_one_line_without_end_takes_time_in_proportion(tool: str, piece: str) -> None:
    """400 KB in one line, and 20 long lines: whoever needed the square of it would not come back."""
    for text in (piece * (400_000 // len(piece)), (piece * (12_000 // len(piece)) + "\n") * 20):
        sound(PARSERS[tool](text))
