"""`/status`: what the coordinator writes is what its readers read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.status import CoordinatorStatus, FirstStep, Jump, MemberStatus, SaveAdvice, plain, read_status
from workflows.wire import CheckpointSeen, RankEnd

WHOLE = st.integers(0, 9)
NUMBER = st.floats(0, 100)
ADVICE = st.builds(SaveAdvice, WHOLE, NUMBER, NUMBER, st.booleans(), st.booleans(), st.text())
st.register_type_strategy(float, NUMBER)
st.register_type_strategy(SaveAdvice, ADVICE)
FIGURE = NUMBER | st.sampled_from(["nan", "inf", "-inf"])
STATUS = st.builds(
    CoordinatorStatus,
    loss=FIGURE | st.none(),
    numeric=st.lists(st.builds(Jump, WHOLE, st.text(), FIGURE, NUMBER | st.none(), WHOLE)),
    orders=st.just([{"number": 1, "order": "stop", "why": "enough", "save": True}]),
    recent_steps=st.lists(st.just([1, 2.0, 3.0])),
)


@given(STATUS)
def test_what_is_written_is_read(status: CoordinatorStatus) -> None:
    assert read_status(json.dumps(plain(status), allow_nan=False).encode()) == status


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({"step": "7", "loss": True, "phase": 3, "right": []}, {}),
        ({"first_step": {"step": 1}}, {}),
        ({"first_step": {"step": 1, "at": 2}}, {"first_step": FirstStep(1, 2.0)}),
        ({"members": [{"pod": "p", "ranks": [0, "1"]}, 5]}, {"members": [MemberStatus(pod="p", ranks=[0])]}),
        ({"checkpoints": [{"step": 5, "path": "/c"}, {"step": 6, "path": "/d", "at": 1.0, "what": "later"}]},
         {"checkpoints": [CheckpointSeen(6, "/d", 1.0)]}),
        ({"ended": [{"rank": 1}, {"rank": 0, "local_rank": 0, "at": 1}]}, {"ended": [RankEnd(0, 0, 1.0)]}),
        ({"numeric": [{"step": 1, "what": "loss", "value": float("nan"), "before": 1.0}], "now": float("inf")}, {}),
        ({"hang": {"verdict": "confirmed"}, "steps_per_second": 10**400}, {}),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_not_known(told: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_status(json.dumps(told).encode()) == CoordinatorStatus(**read)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_object_is_none(body: bytes) -> None:
    assert read_status(body) is None
