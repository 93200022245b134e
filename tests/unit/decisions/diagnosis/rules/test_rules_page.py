"""What is generated from the rulebook is as the rulebook is: the table in the documents, the words of patterns."""

from __future__ import annotations

import os
from pathlib import Path

from flows.decisions.diagnosis.literals import KEPT
from flows.decisions.diagnosis.matching import RULES
from tests.support.generators.pattern_literals import literals
from tests.support.generators.rule_reference import BEGIN, END, code, plain, reference

PAGE = Path(__file__).parents[5] / "docs" / "rules.md"


def test_every_rule_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"
    if os.environ.get("PRIMUS_GOLDEN") == "1":
        PAGE.write_text(fresh, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == fresh, "run `make golden` and look at the difference"


def test_words_are_kept_of_every_pattern_that_is_not_given_any() -> None:
    """So that no diagnosis waits until hundreds of patterns are read."""
    if os.environ.get("PRIMUS_GOLDEN") == "1":
        KEPT.write_text(literals(), encoding="utf-8")
    assert KEPT.read_text(encoding="utf-8") == literals(), "run `make golden`"


def test_each_rule_has_one_row() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) == len(RULES)
    assert {row.split("`")[1] for row in rows} == {rule.name for rule in RULES}


def test_an_example_cannot_break_the_table() -> None:
    assert code("a | b") == "`a \\| b`"
    assert code("Trainer `fit` ended") == "`` Trainer `fit` ended ``"
    assert plain("\x1b[31m[0](x)") == "\\x1b[31m[0] (x)"
