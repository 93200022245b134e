"""Levels of lines: what their programs called information is believed only where it is unmistakable."""

from __future__ import annotations

from flows.decisions.diagnosis.lines import Level, believed, level_of
from flows.decisions.diagnosis.matching import match_line, rule_by_name
from tests.support.cases.rows import rows


@rows("diagnosis/levels")
def test_the_level_is_read_from_the_prefix(text: str, level: Level) -> None:
    assert level_of(text) is level


@rows("diagnosis/levels")
def test_information_counts_where_it_is_unmistakable(text: str, names: list[str]) -> None:
    assert [match.rule.name for match in match_line(text)] == names


def test_only_calm_lines_are_doubted() -> None:
    weak, calm_word = rule_by_name("peer-reset"), rule_by_name("told-to-save-and-leave")
    assert weak is not None
    assert calm_word is not None
    assert not believed(weak, Level.CALM)
    assert all(believed(weak, level) for level in Level if level is not Level.CALM)
    assert believed(calm_word, Level.CALM)
