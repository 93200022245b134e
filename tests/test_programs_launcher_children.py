"""What a launcher waits for when its ranks have ended."""

from __future__ import annotations

from typing import Any

import pytest

from workflows.programs.launcher_children import COMPLETED_SECONDS, SAVED_SECONDS, Children


class Reading:
    """A prover that reads for ever."""

    pid = 1

    def __init__(self) -> None:
        self.finished = False

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize(
    ("reason", "saved", "seconds"),
    [
        ("completed", False, COMPLETED_SECONDS),
        ("told-to-stop", True, SAVED_SECONDS),
        ("signalled", True, SAVED_SECONDS),
        ("told-to-stop", False, 0.0),
        ("rank-failed", False, 0.0),
        ("launcher-error", False, 0.0),
    ],
)
def test_a_proof_is_waited_for_only_where_there_may_be_a_save(
    monkeypatch: pytest.MonkeyPatch, reason: str, saved: bool, seconds: float
) -> None:
    now = [100.0]
    monkeypatch.setattr("workflows.programs.launcher_children.time.monotonic", lambda: now[0])
    waited: list[float] = []

    def turn(patience: float) -> None:
        waited.append(patience)
        now[0] += patience

    children: Any = Children.__new__(Children)
    children.prover = prover = Reading()
    children.end_prover(reason, saved, turn)
    assert prover.finished
    assert sum(waited) == seconds
