"""What a launcher waits for when its ranks have ended."""

from __future__ import annotations

import pytest

from workflows.programs.launcher.loop import ExitWaits, exit_waits


@pytest.mark.parametrize(
    ("reason", "saved", "expected"),
    [
        ("completed", False, ExitWaits(30.0, 2.0)),
        ("told-to-stop", True, ExitWaits(1.0, 2.0)),
        ("signalled", True, ExitWaits(1.0, 2.0)),
        ("told-to-stop", False, ExitWaits(0.0, 0.3)),
        ("signalled", False, ExitWaits(0.0, 0.3)),
        ("rank-failed", False, ExitWaits(0.0, 0.3)),
        ("launcher-error", False, ExitWaits(0.0, 0.3)),
    ],
)
def test_a_pod_stays_only_where_there_may_be_a_save(reason: str, saved: bool, expected: ExitWaits) -> None:
    assert exit_waits(reason, saved) == expected
