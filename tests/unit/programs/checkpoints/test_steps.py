"""The step of a file whose name says none, from the times of the steps that were seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.programs.checkpoints.candidate import UNKNOWN_STEP
from workflows.programs.checkpoints.inventory import ReportedSteps

EVERY_SECOND = [(step, 100.0 + step) for step in range(1, 9)]
SLOW_SAVE = [(1, 101.0), (2, 101.1), (3, 101.2), (4, 104.3), (5, 104.4)]
"""A step takes 0.1 s, and after the third a save takes 3 s."""


@pytest.mark.parametrize(
    ("rows", "written_at", "step"),
    [
        (EVERY_SECOND, 104.0, 4),
        (EVERY_SECOND, 104.7, 4),
        (EVERY_SECOND, 103.99, 4),  # the line of step 4 was read after the file was written
        (EVERY_SECOND, 103.76, 4),
        (EVERY_SECOND, 103.74, 3),
        (EVERY_SECOND, 200.0, 8),
        (EVERY_SECOND, 100.9, 1),
        (EVERY_SECOND, 100.0, UNKNOWN_STEP),
        (SLOW_SAVE, 104.21, 3),
        (SLOW_SAVE, 104.29, 4),
        ([(7, 100.0)], 99.99, UNKNOWN_STEP),
        ([(7, 100.0)], 100.0, 7),
        ([(6, 98.0), (7, 99.9), (7, 99.91)], 99.89, 6),  # a loss came apart from its step: no telling how long one is
        ([], 100.0, UNKNOWN_STEP),
    ],
)
def test_the_last_step_that_was_over(
    tmp_path: Path, rows: list[tuple[int, float]], written_at: float, step: int
) -> None:
    folder = tmp_path / "a1" / "trainer-0"
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text("".join(f'{{"step": {one}, "at": {at}}}\n' for one, at in rows))
    assert ReportedSteps(str(tmp_path)).before(round(written_at * 1e9)) == step


def test_the_latest_attempt_counts(tmp_path: Path) -> None:
    for attempt, rows in {1: [(8, 108.0), (9, 109.0)], 2: [(5, 120.0), (6, 121.0)]}.items():
        folder = tmp_path / f"a{attempt}" / "trainer-0"
        folder.mkdir(parents=True)
        (folder / "steps.jsonl").write_text("".join(f'{{"step": {one}, "at": {at}}}\n' for one, at in rows))
    assert [ReportedSteps(str(tmp_path)).before(at * 10**9) for at in (109, 119, 120, 130)] == [9, 9, 5, 6]
