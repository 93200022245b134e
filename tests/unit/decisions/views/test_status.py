"""The document of `primus status`, as far as stories do not show it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from deployments.cli.drill import drill_text
from deployments.screen.live import Lines
from deployments.screen.views import status_text
from flows.decisions.accounting.advice import is_failure
from flows.decisions.accounting.report import goodput_of, report_of
from flows.decisions.node_tests.grading.standing import NodeStanding
from flows.decisions.views.fleet import FleetNode, Schedulability
from flows.decisions.views.run_page import moments, page_of
from flows.decisions.views.status import Surroundings, ended_words, incident_row, node_rows, outcome_words, status_of
from flows.pages.run import run_page
from profiles.cluster import Endpoints
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, RunState, VerdictWord
from tests.support.builders.attempt_plans import a_gpu_plan
from workflows.model.events import PageGround
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, StepRow, Story, VerdictRecord

RESOLVED = a_gpu_plan().resolved
FIRST = AttemptRecord("demo-1", 1, 1.0, "first", submitted_at=2.0)


def resolved(argo_url: str) -> Resolved:
    cluster = RESOLVED.cluster.model_copy(update={"endpoints": Endpoints(argo_url=argo_url)})
    return RESOLVED.model_copy(update={"cluster": cluster})


def story(*attempts: AttemptRecord) -> Story:
    run = RunRecord("demo-1", RunState.RUNNING, "attempt 1", "demo", {}, "d", "mi300x", Mode.ACT, 1.0)
    return Story(run, attempts=attempts)


@pytest.mark.parametrize("base", ["https://argo.example.org", "https://argo.example.org/"])
def test_an_attempt_leads_to_its_workflow_where_an_argo_server_is_named(base: str) -> None:
    planned = replace(FIRST, number=2, submitted_at=None)
    document = status_of(story(FIRST, planned), resolved(base), Surroundings(now=3.0))
    link = f"https://argo.example.org/workflows/{RESOLVED.cluster.namespace}/demo-1-a1"
    assert [row.get("link") for row in document["attempts"]] == [link, None], "what was not sent is nowhere"
    assert f"1: {link}" in status_text(document).splitlines()


def noted(number: int, signal: str = "slow-rank", **changes: Any) -> IncidentRecord:
    rank = number % 2
    first = IncidentRecord(
        f"demo-1-a1-n{number}", "demo-1", 1, 5.0 + number, 5.0 + number, signal, FaultClass.STRAGGLER, 0.9,
        culprits=((f"node-{rank}", rank),), action=Action.NONE, why="told", over_at=6.0 + number,
        evidence=(f"rank {rank} on node-{rank} takes 1.50 times as long as its peers since step {number}",),
    )  # fmt: skip
    return replace(first, **changes)


def test_what_was_only_told_takes_a_line_a_kind_however_often_it_was() -> None:
    trouble = noted(0, "node-not-ready", id="demo-1-a1-i1", fault_class=FaultClass.NODE_LOST, action=Action.NEW_ATTEMPT)
    jump = noted(51, "loss-jump", culprits=(), evidence=("the loss is 50 at step 7",))
    incidents = (trouble, *map(noted, range(1, 50)), noted(50, over_at=None), jump)
    document = status_of(replace(story(FIRST), incidents=incidents), RESOLVED, Surroundings(now=3.0))
    lines = status_text(document).splitlines()
    assert [line for line in lines if "demo-1-a1-n" in line or "incidents" in line] == [
        "only told, nothing is to be done (each: primus incidents --run demo-1):",
        "  slow-rank: 50 notes, about 2 ranks, 1 of them not over; the newest (demo-1-a1-n50): rank 0 on node-0 takes "
        "1.50 times as long as its peers since step 50",
        "  loss-jump: 1 note; the newest (demo-1-a1-n51): the loss is 50 at step 7",
    ]
    assert len(lines) < 20
    assert any(line.startswith("demo-1-a1-i1: node_lost") for line in lines)
    assert len(document["incidents"]) == 52, "programs get all of them"


def test_before_the_first_step_nobody_reads_none() -> None:
    told = status_text(status_of(story(FIRST), RESOLVED, Surroundings(now=3.0)))
    assert "None" not in told
    assert f"no step yet of {RESOLVED.run.steps}; durable checkpoint: none yet" in told


def test_an_attempt_ends_once_on_screen_and_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    ended, lines, said = (
        replace(FIRST, ended_at=9.0, outcome="node_lost", last_step=83),
        Lines(),
        set[tuple[str, str]](),
    )
    for attempt in (ended, replace(ended, last_step=100)):
        lines.tell(story(attempt))
        said |= {one for one in moments(story(attempt)) if "ended" in one[0]}
    assert capsys.readouterr().err.splitlines() == ["attempt 1 ended: node_lost, last step heard of 83"]
    assert len({key for key, _ in said}) == 1, "told once by whoever tells each key once"
    assert ended_words(replace(ended, last_step=None)) == "attempt 1 ended: node_lost, no step was heard of"


def test_a_drill_is_told_in_words() -> None:
    hit = noted(0, "node-not-ready", fault_class=FaultClass.NODE_LOST, action=Action.NEW_ATTEMPT, resumed_at=7.5)
    told = drill_text({"fault": "lose-node:node-0", "recovered": True, **incident_row(hit)})
    assert told.startswith(
        "lose-node:node-0: noticed after 0 s as node_lost, answered with new-attempt, training again"
    )
    assert not re.search(r"[{}\[\]]|None|True", told)
    asleep = drill_text({"fault": "corrupt-checkpoint:newest", "recovered": None, "why": "nothing is expected"})
    assert asleep == "corrupt-checkpoint:newest: nothing is expected"


@pytest.mark.parametrize(
    ("signal", "action", "word"),
    [
        ("node-not-ready", None, "failed: node_lost"),
        ("node-not-ready", Action.ASK, "failed: node_lost"),
        ("rank-failed", Action.RESTART_IN_PLACE, "lives"),
        ("observer-away", Action.NONE, "lives"),
        ("slow-rank", Action.NONE, "lives"),
    ],
)
def test_an_attempt_that_is_dead_does_not_live(signal: str, action: Action | None, word: str) -> None:
    seen = noted(0, signal, fault_class=FaultClass.NODE_LOST, action=action)
    whole = replace(story(FIRST), incidents=(seen,))
    [attempt] = [s for s in page_of(RESOLVED, PageGround(whole, {}, 90.0)).sheets if s.key == "run-demo-1-attempts"]
    assert isinstance(attempt.data, list)
    assert attempt.data[0]["outcome"] == word
    ended = replace(FIRST, ended_at=9.0, outcome="hang")
    assert outcome_words(status_of(story(ended), RESOLVED, Surroundings(now=9.0))["attempts"][0], []) == "hang"


def test_a_nodes_record_has_no_errors_of_the_program() -> None:
    own, lost = (noted(number, "pod-failed", fault_class=one, action=Action.GIVE_UP)
                 for number, one in enumerate((FaultClass.USER_CODE, FaultClass.NODE_LOST)))  # fmt: skip
    rows = {row["node"]: row["blamed"] for row in node_rows(replace(story(FIRST), incidents=(own, lost)))}
    assert rows == {"node-1": 1}
    assert [is_failure(item) for item in (own, lost)] == [False, True]


def test_a_pass_from_before_a_node_was_taken_out_is_no_pass_now() -> None:
    def word(state: Schedulability, since: float | None) -> VerdictWord:
        tested = VerdictRecord("c", "node-0", VerdictWord.PASS, "gate", 50.0)
        standing = NodeStanding("node-0", VerdictWord.PASS, "passed")
        return FleetNode("node-0", state=state, since=since, verdict=tested, proven=standing).word

    assert word(Schedulability.QUARANTINED, 60.0) is VerdictWord.UNKNOWN
    assert word(Schedulability.QUARANTINED, 40.0) is VerdictWord.PASS, "tested since"
    assert word(Schedulability.SCHEDULABLE, 60.0) is VerdictWord.PASS


@pytest.mark.parametrize("offset", [48 * 3600.0, -48 * 3600.0])
def test_steps_of_a_node_whose_clock_is_wrong_are_accounted_for_in_their_attempt(offset: float) -> None:
    attempt = replace(FIRST, applied_at=3.0, running_at=10.0, ended_at=112.0, outcome="succeeded")
    whole = replace(story(attempt), run=replace(story().run, ended_at=113.0))
    right, wrong = ({1: [StepRow(n, 11.0 + n + skew) for n in range(1, 101)]} for skew in (0.0, offset))
    told, expected = (goodput_of(whole, rows, 8, 113.0) for rows in (wrong, right))
    assert expected["productive_gpu_seconds"] == pytest.approx(800.0)
    assert told["wall_seconds"] == expected["wall_seconds"]
    assert told["productive_gpu_seconds"] == pytest.approx(800.0, abs=8.0), "all but a step"
    assert told["lost"]["init"] == pytest.approx(expected["lost"]["init"], abs=24.0)


def test_every_page_counts_the_same_incidents() -> None:
    trouble = noted(0, "node-not-ready", id="demo-1-a1-i1", fault_class=FaultClass.NODE_LOST, action=Action.NEW_ATTEMPT)
    whole = replace(story(FIRST), incidents=(trouble, *map(noted, range(1, 51))))
    page = run_page(report_of(whole, {}, RESOLVED, 90.0), ())
    assert len(whole.troubles) == 1
    assert re.search(r"incidents</dt>\s*<dd>1</dd>", page)
    assert "1 incidents, at" in page
    assert "only told, training went on: 50" in page
    sheets = {sheet.key: sheet for sheet in page_of(RESOLVED, PageGround(whole, {}, 90.0)).sheets}
    rows = sheets["run-demo-1-incidents"].data
    assert isinstance(rows, list)
    assert len(rows) == 1
    assert "slow-rank: 50 notes" in str(sheets["run-demo-1"].data)


def test_without_one_there_is_no_link() -> None:
    [row] = status_of(story(FIRST), resolved(""), Surroundings(now=3.0))["attempts"]
    assert "link" not in row
