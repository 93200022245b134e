"""The document of `primus status`, as far as stories do not show it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from deployments.screen.views import status_text
from flows.decisions.accounting.report import report_of
from flows.decisions.views.run_page import page_of
from flows.decisions.views.status import Surroundings, status_of
from flows.pages.run import run_page
from profiles.cluster import Endpoints
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, RunState
from tests.support.builders.attempt_plans import a_gpu_plan
from workflows.model.events import PageGround
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, Story

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
