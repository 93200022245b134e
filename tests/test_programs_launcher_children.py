"""What a launcher waits for when its ranks have ended."""

from __future__ import annotations

import pytest

from workflows.programs.launcher.loop import Patience, patience


@pytest.mark.parametrize(
    ("reason", "saved", "expected"),
    [
        ("completed", False, Patience(30.0, 2.0)),
        ("told-to-stop", True, Patience(1.0, 2.0)),
        ("signalled", True, Patience(1.0, 2.0)),
        ("told-to-stop", False, Patience(0.0, 0.3)),
        ("signalled", False, Patience(0.0, 0.3)),
        ("rank-failed", False, Patience(0.0, 0.3)),
        ("launcher-error", False, Patience(0.0, 0.3)),
    ],
)
def test_a_pod_stays_only_where_there_may_be_a_save(reason: str, saved: bool, expected: Patience) -> None:
    assert patience(reason, saved) == expected
