"""Answers given as a flow run: typed, written once, and refused with the field's name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.utilities.callables import parameter_schema

from flows.approve import approve
from tasks.ledger.ledger import Ledger
from tasks.prefect.automations import UNKNOWN_PERSON
from tasks.settings import Settings
from tests.support.builders.ledgers import a_run
from workflows.model.records import ApprovalRecord


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    opened = Ledger(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}).ledger_url)
    opened.open_run(a_run())
    now = time.time()
    opened.ask(
        None, ApprovalRecord("demo-a1-i1-approval", "demo", "demo-a1-i1", "take 3 out?", "waiting", now, now + 60)
    )
    yield opened
    opened.close()


def answered(answer: str, why: str, approval: str = "demo-a1-i1-approval") -> Any:
    given: Any = approve
    return asyncio.run(given(approval, answer, why, return_state=True))


def test_an_answer_stands_in_the_ledger(prefect_server: str, own: Ledger) -> None:
    state = answered("approve", " they are spares ")
    assert state.is_completed()
    assert state.message == f"take 3 out? approved by {UNKNOWN_PERSON} (unverified): they are spares"
    given = own.approval("demo-a1-i1-approval")
    assert given is not None
    assert (given.state, given.answered_by, given.why) == ("approved", UNKNOWN_PERSON, "they are spares")
    with get_client(sync_client=True) as client:
        [newest] = client.read_flow_runs(limit=1, sort="EXPECTED_START_TIME_DESC")  # pyright: ignore[reportArgumentType]
    assert newest.name == "approve demo-a1-i1-approval"
    assert newest.state is not None
    assert newest.state.message == state.message


@pytest.mark.parametrize(
    ("approval", "why", "said"),
    [
        ("demo-a1-i1-approval", "  ", "why: say why"),
        ("nobody-asked", "x", "approval: the ledger knows no approval nobody-asked"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    prefect_server: str, own: Ledger, approval: str, why: str, said: str
) -> None:
    state = answered("deny", why, approval)
    assert state.is_failed()
    assert state.message.startswith(said)
    asked = own.approval("demo-a1-i1-approval")
    assert asked is not None
    assert asked.state == "waiting"


def test_a_second_answer_is_refused_the_same_one_is_not(prefect_server: str, own: Ledger) -> None:
    assert answered("deny", "not now").is_completed()
    assert answered("deny", "not now").is_completed(), "a flow run that was started again"
    for answer, why in (("approve", "please"), ("deny", "never")):
        state = answered(answer, why)
        assert state.is_failed()
        assert state.message.startswith(
            "approval: approval demo-a1-i1-approval is denied by prefect (unverified) already"
        )


def test_one_whose_time_is_up_is_refused(prefect_server: str, own: Ledger) -> None:
    own.ask(None, ApprovalRecord("late", "demo", "i", "?", "waiting", 1.0, 2.0))
    state = answered("approve", "x", "late")
    assert state.is_failed()
    assert "expired" in state.message


def test_the_form_has_a_choice_and_explains_each_field() -> None:
    schema = parameter_schema(approve.fn).model_dump(mode="json")
    fields = schema["properties"]
    assert set(schema["required"]) == {"approval", "answer", "why"}
    assert fields["answer"]["enum"] == ["approve", "deny"]
    assert all(field["description"] for field in fields.values())
