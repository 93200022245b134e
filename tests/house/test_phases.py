"""Which phases of CI took too long."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests import phases
from tests.rotation import BUDGET


def test_a_phase_that_ran_twice_counts_once_with_both() -> None:
    assert phases.seconds_by_phase("static\t1\nunit\t100\nstatic\t2\n") == {"static": 3.0, "unit": 100.0}


@pytest.mark.parametrize(
    ("took", "factor", "named"),
    [
        ({"unit": 330.0, "all": 1000.0}, 1.0, []),
        ({"unit": 331.0, "all": 1000.0}, 1.0, ["unit"]),
        ({"unit": 331.0, "all": 1501.0}, 1.0, ["unit", "all"]),
        ({"unit": 600.0, "all": 2000.0}, 2.0, []),
        ({"something new": 5000.0}, 1.0, []),
    ],
)
def test_what_took_longer_than_its_limit_is_named(took: dict[str, float], factor: float, named: list[str]) -> None:
    found = phases.too_long(took, {"unit": 330.0, "all": 1500.0}, factor)
    assert [line.partition(" took ")[0] for line in found] == named


def test_the_table_is_printed_and_a_limit_that_was_passed_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "phases.tsv"
    rows.write_text("unit\t10\n")
    assert phases.main(str(rows), "100") == 0
    assert "unit  of " in capsys.readouterr().out
    limit = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["phases_seconds"]["unit"]
    rows.write_text(f"unit\t{limit * 1.2}\n")
    monkeypatch.setattr(phases, "processors", lambda: 1.0)
    assert phases.main(str(rows), "100") == 0
    assert "!!! longer than it is to take: unit" in capsys.readouterr().out
    rows.write_text("unit\t1000000\n")
    assert phases.main(str(rows), "100") == 1
    assert "!!! TOO LONG: unit took 1000000 s" in capsys.readouterr().out
