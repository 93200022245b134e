from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import Permanent
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from tasks.ledger.attempts import pack, unpack
from tasks.ledger.rows import from_row, storable, to_changes, to_row
from tasks.ledger.tables import METADATA
from tests.support.cases.rows import rows
from workflows.model import records
from workflows.model.records import (
    ActionRecord,
    CheckpointRecord,
    Constraints,
    IncidentRecord,
    NodeFault,
    RunRecord,
    StepRow,
)

TABLES = {
    "runs": records.RunRecord,
    "attempts": records.AttemptRecord,
    "incidents": records.IncidentRecord,
    "actions": records.ActionRecord,
    "approvals": records.ApprovalRecord,
    "verdicts": records.VerdictRecord,
    "node_states": records.NodeRecord,
    "checkpoints": CheckpointRecord,
    "marks": records.MarkRecord,
    "requests": records.RequestRecord,
}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
times = st.floats(0, 4e9)
incidents = st.builds(
    IncidentRecord,
    id=texts,
    run=texts,
    attempt=st.integers(0, 2**40),
    at=times,
    detected_at=times,
    signal=texts,
    fault_class=st.none() | st.sampled_from(FaultClass),
    confidence=st.floats(0, 1),
    culprits=st.lists(st.tuples(texts, st.none() | st.integers(0, 99))).map(tuple),
    evidence=st.lists(texts).map(tuple),
    alternatives=st.lists(st.tuples(st.sampled_from(FaultClass), st.floats(0, 1))).map(tuple),
    action=st.none() | st.sampled_from(Action),
)


@pytest.mark.parametrize("table", TABLES)
def test_every_field_of_a_record_has_its_column_and_no_column_is_left_over(table: str) -> None:
    fields = {field.name for field in dataclasses.fields(TABLES[table])}
    assert {column.name for column in METADATA.tables[table].columns} - {"seq"} == fields


@given(incidents)
def test_a_record_comes_back_as_it_was(record: IncidentRecord) -> None:
    row = to_row(record)
    assert all(value is None or type(value) in (str, int, float, bool) for value in row.values())
    assert from_row(IncidentRecord, row) == record


@pytest.mark.parametrize("kind", [*Action, *NodeAction])
def test_actions_on_runs_and_on_nodes_are_told_apart(kind: Action | NodeAction) -> None:
    record = ActionRecord("i", "r", "i", kind, "", "planned", "why", 1.0)
    found = from_row(ActionRecord, to_row(record))
    assert found == record
    assert found.kind is kind


@rows("tasks/ledger/rows")
def test_what_actions_carry_is_read_and_written_byte_for_byte(
    text: str, detail: Constraints | NodeFault | None
) -> None:
    record = ActionRecord("i", "r", "i", Action.NEW_ATTEMPT, "", "planned", "why", 1.0, detail=detail)
    assert to_row(record)["detail"] == text
    assert from_row(ActionRecord, to_row(record)) == record


def test_what_an_action_does_not_say_is_nothing_and_what_it_says_besides_is_left_out() -> None:
    row = to_row(ActionRecord("i", "r", "i", Action.WAIT, "", "planned", "why", 1.0))
    later = from_row(ActionRecord, row | {"detail": '{"wait_until": 2.0, "of_a_later_version": 1}'})
    assert (later.constraints, later.node_fault) == (Constraints(wait_until=2.0), NodeFault())
    assert from_row(ActionRecord, row | {"detail": '{"pool": "gpu"}'}).node_fault == NodeFault("gpu")
    with pytest.raises(Permanent):
        from_row(ActionRecord, row | {"detail": '{"pool": "gpu", "class": "a class of later"}'})


@given(st.text())
def test_any_text_can_be_stored_and_ascii_stays_as_it_is(text: str) -> None:
    stored = storable(text)
    assert "\0" not in stored
    assert stored.encode("utf-8").decode("utf-8") == stored
    if text.isascii() and "\0" not in text:
        assert stored == text


def test_undecodable_bytes_of_a_log_are_stored_as_replacement_characters() -> None:
    assert storable(b"caf\xe9 \xff".decode("utf-8", "surrogateescape")) == "caf\ufffd \ufffd"


def test_a_word_of_a_newer_program_is_named_and_not_a_stack_trace() -> None:
    row = to_row(IncidentRecord("i", "r", 1, 1.0, 1.0, "s")) | {"fault_class": "cosmic_ray"}
    with pytest.raises(Permanent, match="cosmic_ray"):
        from_row(IncidentRecord, row)


def test_a_change_of_an_unknown_field_is_refused() -> None:
    with pytest.raises(Permanent, match="nonsense"):
        to_changes(RunRecord, {"nonsense": 1})
    assert to_changes(RunRecord, {"state": RunState.FAILED}) == {"state": "failed"}


step_rows = st.builds(
    StepRow,
    step=st.integers(-1, 2**62),
    at=times,
    seconds=st.none() | st.floats(0, 1e6),
    loss=st.none() | st.floats(allow_nan=False),
)


@given(st.lists(step_rows, max_size=40))
def test_packed_steps_come_back_exactly(rows: list[StepRow]) -> None:
    assert unpack(pack(rows)) == rows


def test_a_loss_that_is_no_number_is_not_an_absent_loss() -> None:
    (row,) = unpack(pack([StepRow(1, 2.0, None, math.nan)]))
    assert row.loss is not None
    assert math.isnan(row.loss)
