"""After an attempt: who failed first, with its last words, within the size of a parameter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.checkpoint_samples import put
from workflows.programs import collect
from workflows.programs.checkpoints import proofs
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.state import ReportsReceived
from workflows.programs.launcher.reporting import step_data
from workflows.wire import FileRecord, PhaseSeen, Proof, RankEnd, StepSeen, Termination, from_json, to_json


def end(rank: int, at: float, code: int | None = 0, requested: bool = False, lines: tuple[str, ...] = ()) -> RankEnd:
    signal = 9 if code is None else None
    return RankEnd(rank, 0, at, code, signal, requested, last_step=7, last_lines=list(lines))


def pod(index: int, *ends: RankEnd) -> Termination:
    return Termination("r", 2, "trainer", f"node-{index}", f"r-a2-trainer-0-{index}", "rank-failed", list(ends))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Rank 1 was killed first; rank 0 was told to end and rank 2 fell over because of it; pod 3 left nothing."""
    pods = [
        pod(0, end(0, 100.0, None, requested=True)),
        pod(1, end(1, 99.0, None)),
        pod(2, end(2, 99.5, 1, lines=("connection closed",))),
    ]
    for index, one in enumerate(pods):
        put(tmp_path, {f"a2/trainer-{index}/termination.json": to_json(one).encode()})
        put(tmp_path, {f"a2/trainer-{index}/rank-{index}.log": f"words of rank {index}\n".encode() * (200 + index)})
    put(tmp_path, {"a2/trainer-3/launcher.log": b"started\n", "a1/trainer-0/termination.json": b"{}"})
    put(tmp_path, {"a2/coordinator/journal.jsonl": b""})
    return tmp_path


def test_the_first_failing_rank_by_time_and_its_last_lines(run: Path) -> None:
    found = collect.gather(collect.Options(str(run), 2))
    assert found.first_failing is not None
    assert (found.first_failing.rank, found.first_failing_node) == (1, "node-1")
    assert found.first_failing.last_lines == ["words of rank 1"] * 100
    assert [one.node for one in found.pods] == ["node-1", "node-2", "node-0"]
    assert found.without_record == ["trainer-3"]
    assert found.logs[0].path == "a2/trainer-2/rank-2.log"
    assert all(one.last_lines == [] for record in found.pods for one in record.ranks)
    assert found.left_out == 0


def test_every_proof_in_the_folder_is_told_the_newest_first(run: Path) -> None:
    for step in (20, 40):
        records = [FileRecord("x", 7, 1, 1, "")]
        proofs.write_proof(str(run), Proof(step, f"/c/step-{step}", "dcp", "pass", "whole", records, float(step)))
    found = collect.gather(collect.Options(str(run), 2))
    assert found.checkpoints == [
        [40, "/c/step-40", 40.0, "pass", "whole", 7, "dcp"],
        [20, "/c/step-20", 20.0, "pass", "whole", 7, "dcp"],
    ]


def test_of_a_folder_of_another_ledger_nothing_is_collected(run: Path) -> None:
    put(run, {"ledger": b"2" * 32 + b"\n"})
    assert collect.gather(collect.Options(str(run), 2, ledger="1" * 32)) == collect.Collected(2, [])
    assert collect.gather(collect.Options(str(run), 2, ledger="2" * 32)).pods
    (run / "ledger").unlink()
    assert collect.gather(collect.Options(str(run), 2, ledger="1" * 32)).pods, "an older version left it"
    assert not (run / "ledger").exists(), "whoever collects claims nothing"


def test_its_own_record_of_last_lines_is_taken_first(run: Path) -> None:
    put(run, {"a2/trainer-1/termination.json": to_json(pod(1, end(1, 99.0, 1, lines=("Traceback", "Boom")))).encode()})
    found = collect.gather(collect.Options(str(run), 2))
    assert found.first_failing is not None
    assert found.first_failing.last_lines == ["Traceback", "Boom"]


def test_an_attempt_that_left_nothing(tmp_path: Path) -> None:
    found = collect.gather(collect.Options(str(tmp_path), 5))
    assert (found.pods, found.first_failing, found.without_record, found.logs) == ([], None, [], [])


def test_an_attempt_that_ended_well_has_no_failing_rank(tmp_path: Path) -> None:
    put(tmp_path, {"a1/trainer-0/termination.json": to_json(pod(0, end(0, 1.0))).encode()})
    assert collect.gather(collect.Options(str(tmp_path), 1)).first_failing is None


def test_a_record_that_cannot_be_read_is_none(run: Path) -> None:
    put(run, {"a2/trainer-1/termination.json": b'{"run": 7}'})
    found = collect.gather(collect.Options(str(run), 2))
    assert found.without_record == ["trainer-1", "trainer-3"]
    assert found.first_failing_node == "node-2"


def test_what_was_saved_at_the_end_is_in_the_coordinators_memory(run: Path) -> None:
    steps = [StepSeen(step, float(step), rank=1) for step in range(1, 9)]
    phases = [PhaseSeen("checkpoint", 8.5, rank=0, detail="saving"), PhaseSeen("step", 9.0, rank=0)]
    other = ReportsReceived(9.0, ("reader", 0), 1, (PhaseSeen("restore", 1.0), PhaseSeen("init", 5.0)))
    events = [ReportsReceived(9.0, ("trainer", 0), n, (one,)) for n, one in enumerate([*steps, *phases], 1)]
    text = "".join(journal.to_line(event) + "\n" for event in (other, *events))
    put(run, {"a2/coordinator/journal.jsonl": text.encode() + b'{"event": "Reported", "cut'})
    found = collect.gather(collect.Options(str(run), 2))
    assert found.moments == [["checkpoint-begin", 8.5, "saving"], ["checkpoint-end", 9.0, ""]]
    assert from_json(collect.Collected, to_json(found)) == found
    many = replace(found, moments=[["checkpoint-begin", float(n), "x" * 200] for n in range(60)])
    small = collect.fit(many, 4096)
    assert len(to_json(small).encode()) <= 4096
    assert small.moments[-1][1] == 59.0


def test_where_several_ranks_say_their_steps_each_step_counts_once(run: Path) -> None:
    said = {rank: [StepSeen(step, step + rank / 10, rank=rank) for step in (1, 2)] for rank in (0, 1)}
    for rank, steps in said.items():
        text = "".join(json.dumps(step_data(step)) + "\n" for step in steps)
        put(run, {f"a2/trainer-{rank}/steps.jsonl": text.encode()})
    assert collect.gather(collect.Options(str(run), 2)).steps == [[1, 1.0, None, None], [2, 2.0, None, None]]


ENDS = st.builds(end, st.integers(0, 9999), st.floats(0, 1e9), st.sampled_from([0, 1, None]), st.booleans())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(ENDS, max_size=9), max_size=60), st.lists(st.text(max_size=2000), max_size=100))
def test_the_answer_always_fits_and_keeps_the_culprit(ranks: list[list[RankEnd]], lines: list[str]) -> None:
    pods = [pod(index, *ends) for index, ends in enumerate(ranks)]
    culprit = end(1, 1.0, 1, lines=tuple(lines))
    whole = collect.Collected(2, pods, culprit, "p", "n", [f"trainer-{x}" for x in range(500)], [])
    small = collect.fit(whole, 8192)
    assert len(to_json(small).encode()) <= 8192
    assert small.first_failing is not None
    assert small.first_failing.rank == 1
    assert from_json(collect.Collected, to_json(small)) == small


def test_a_thousand_pods_fit(tmp_path: Path) -> None:
    pods = [pod(index, *(end(index * 8 + r, 5.0, 1 if index == 700 else 0) for r in range(8))) for index in range(1000)]
    logs = [collect.LogSize(f"a2/trainer-{index}/rank-{index}.log", index) for index in range(8000)]
    small = collect.fit(collect.Collected(2, pods, None, "", "", [], logs), 204800)
    assert len(to_json(small).encode()) <= 204800
    assert small.left_out > 0


def test_the_output_of_the_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = collect.Options(str(run), 2, str(tmp_path / "out"))
    assert collect.main(options.argv()) == 0
    text = (tmp_path / "out" / "collected").read_text()
    assert json.loads(text) == json.loads(capsys.readouterr().out)
    assert from_json(collect.Collected, text).first_failing_node == "node-1"
    assert collect.main(["--run-dir=/x"]) == 2
    assert "--attempt: must be given" in capsys.readouterr().err


@settings(deadline=None)
@given(
    st.builds(collect.Options, st.text(max_size=9), st.integers(0, 99), st.text(max_size=9), st.integers(4096, 10**7))
)
def test_options_survive_the_command_line(wanted: collect.Options) -> None:
    assert collect.parse(wanted.argv()) == wanted
