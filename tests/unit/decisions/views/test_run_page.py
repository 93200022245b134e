"""What the pages of a run say."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.text import PlotLine, picture, svg
from flows.decisions.views.approvals import approval_key, approval_sheet
from flows.decisions.views.run_page import moments, page_of, table
from profiles.loading.load import load_cluster, load_run, resolve
from profiles.vocabulary import Action, FaultClass, KnownBy, NodeAction, RunState, VerdictWord
from tests.support.builders.ledgers import HERE, a_person, a_run, an_attempt, an_incident
from workflows.model.events import PageGround, Sheet
from workflows.model.records import (
    Act,
    ActionRecord,
    Actor,
    ApprovalRecord,
    CheckpointRecord,
    Lease,
    StepRow,
    Story,
)

RESOLVED = resolve(load_run("demo"), load_cluster("local"))
FIRST = replace(
    an_attempt(),
    nodes=("node-0", "node-1"),
    submitted_at=1001.0,
    ended_at=1030.0,
    outcome="node_lost",
    first_step=1,
    last_step=60,
)
SECOND = replace(
    an_attempt(2),
    nodes=("node-0", "node-2"),
    submitted_at=1031.0,
    first_step=41,
    first_step_at=1033.0,
    last_step=80,
    resumed_from_step=40,
    incident="demo-a1-i1",
)
INCIDENT = an_incident(
    fault_class=FaultClass.NODE_LOST,
    confidence=0.97,
    culprits=(("node-1", 1),),
    evidence=("node-1 is | not ready", "<b>silent</b>"),
    action=Action.NEW_ATTEMPT,
    why="a node is lost",
    would_change="a healthy spare",
    resumed_at=1033.0,
)
DONE = ActionRecord("q", "demo", INCIDENT.id, NodeAction.QUARANTINE, "node-1", "done", "lost", 1030.0, 1031.0)
ASKED = ApprovalRecord(f"{INCIDENT.id}-approval", "demo", INCIDENT.id, "take node-1 out?", "waiting", 1030.0, 4630.0)
STEPS = {
    1: [StepRow(step, 1001.0 + step / 2, loss=5.0 / step) for step in range(1, 61)],
    2: [StepRow(step, 1013.0 + step / 2, loss=5.0 / step) for step in range(41, 81)],
}
RUN = a_run(state=RunState.RUNNING, why="attempt 2 makes progress", resolved=RESOLVED.model_dump(mode="json"))
STORY = Story(
    run=RUN,
    attempts=(FIRST, SECOND),
    incidents=(INCIDENT,),
    actions=(DONE,),
    approvals=(ASKED,),
    checkpoints=(CheckpointRecord("demo", 40, "/x/step-40", 1, 1020.0, VerdictWord.PASS, "digests agree"),),
    lease=Lease("demo", 1, HERE, 1100.0),
)
GROUND = PageGround(STORY, STEPS, 1053.5, links=(("flow run", "http://127.0.0.1/runs/1"),))


def sheets(ground: PageGround = GROUND) -> dict[str, Sheet]:
    return {sheet.key: sheet for sheet in page_of(RESOLVED, ground).sheets}


def page(ground: PageGround = GROUND) -> str:
    return str(sheets(ground)["run-demo"].data)


def pictures(text: str) -> list[str]:
    found = re.findall(r"!\[[^]]+\]\(data:image/svg\+xml;base64,([^)]+)\)", text)
    return [b64decode(data).decode() for data in found]


def test_every_key_is_one_that_the_server_takes() -> None:
    kinds = {sheet.key: sheet.kind for sheet in sheets().values()}
    assert kinds == {
        "run-demo-progress": "progress",
        "run-demo": "markdown",
        "run-demo-attempts": "table",
        "run-demo-incidents": "table",
        "run-demo-nodes": "table",
        "approval-demo-a1-i1-approval": "markdown",
    }
    assert all(re.fullmatch("[a-z0-9-]+", key) for key in kinds)


def test_progress_says_where_it_is_and_how_long_it_takes() -> None:
    progress = sheets()["run-demo-progress"]
    total = RESOLVED.run.steps
    assert progress.data == round(100 * 80 / total, 1)
    assert re.fullmatch(rf"running: step 80 of {total}, .+ to go", progress.description)


def test_a_run_that_has_done_nothing_yet_says_so() -> None:
    empty = PageGround(Story(run=a_run(resolved=RUN.resolved)), {}, 1001.0)
    assert sheets(empty)["run-demo-progress"].data == 0.0
    text = page(empty)
    assert "no step was completed yet" in text
    assert pictures(text) == []
    assert "steps per second over steps: nothing yet." in text
    assert "## Incidents" not in text


def test_the_page_tells_the_whole_story() -> None:
    text = page()
    for part in (
        "# demo: running",
        "attempt 2 makes progress",
        "primus approve demo-a1-i1-approval",
        "node_lost (0.97)",
        "node-1 (rank 1)",
        "new-attempt",
        "a node is lost",
        "digests agree",
        "productive",
        "primus status demo",
        "[flow run](http://127.0.0.1/runs/1)",
    ):
        assert part in text, part


def test_the_loss_curve_shows_what_was_rolled_back() -> None:
    loss, speed = pictures(page())
    for picture_ in (loss, speed):
        ElementTree.fromstring(picture_)
    assert "1, rolled back" in loss
    assert "stroke-dasharray" in loss
    assert loss.count("<polyline") == 3


def test_thinned_steps_are_not_summed_up() -> None:
    text = page(replace(GROUND, all_steps=False))
    assert "`primus report demo` says where every second went." in text


def test_a_question_leads_to_the_form_with_everything_but_why_filled_in() -> None:
    form = "http://127.0.0.1/v2/deployments/deployment/1/run"
    sheets = {sheet.key: str(sheet.data) for sheet in page_of(RESOLVED, replace(GROUND, form=form)).sheets}
    for text in (sheets[approval_key(ASKED.id)], sheets["run-demo"]):
        links = re.findall(r"\]\((\S+)\?parameters=(\S+)\)", text)
        assert [(address, json.loads(unquote(filled))) for address, filled in links] == [
            (form, {"approval": ASKED.id, "answer": answer, "why": ""}) for answer in ("approve", "deny")
        ]
        assert "Quick run" not in text


def test_nodes_with_trouble_stand_first() -> None:
    rows: Any = sheets()["run-demo-nodes"].data
    assert [row["node"] for row in rows] == ["node-1", "node-0", "node-2"]
    assert rows[0] == {"node": "node-1", "trains now": "no", "attempts": "1", "blamed": 1, "actions": "quarantine done"}


def test_a_question_says_what_each_answer_does() -> None:
    text = str(approval_sheet(ASKED, STORY).data)
    for part in (
        "take node-1 out?",
        "Waits for an answer",
        "a node is lost",
        "silent",
        "a healthy spare",
        "ends as stopped",
        "primus approve demo-a1-i1-approval",
        "primus deny",
        "Deployments",
    ):
        assert part in text, part
    answered = replace(ASKED, state="denied", answered_by="ann", answered_at=1040.0, why="not now")
    text = str(approval_sheet(answered, STORY).data)
    assert "**Denied** by ann (unverified)" in text, "as an older version wrote it"
    text = str(approval_sheet(replace(answered, by=Actor("ann@desk", KnownBy.OS_USER)), STORY).data)
    assert "**Denied** by ann@desk (os-user)" in text
    assert "primus approve" not in text
    about_nodes = replace(ASKED, id="monitor/local-1", run="monitor/local")
    assert approval_key(about_nodes.id) == "approval-monitor-local-1"
    assert "the nodes stay as they are" in str(approval_sheet(about_nodes).data)


def test_the_page_ends_with_what_people_did_and_how_they_are_known() -> None:
    somebody = Actor("prefect", KnownBy.SERVER_PASSWORD, "root (os-user) | <b>")
    acts = (Act(1000.0, "pause", "demo", "look", a_person()), Act(1001.0, "stop", "demo-stop-1", "enough", somebody))
    ground = PageGround(replace(STORY, acts=acts), {}, 1050.0)
    text = str(page_of(RESOLVED, ground).sheets[1].data).partition("## What people did\n\n")[2].splitlines()
    assert text[0] == "* 1970-01-01T00:16:40.000Z pause by ada@desk (os-user): look"
    assert 'stop by prefect (server-password, says: "root \\[os-user\\] \\| &lt;b>"): enough' in text[1]


def test_cells_stay_cells() -> None:
    text = table([{"a": "x | y\n<script>", "b": None}])
    assert text.splitlines()[2] == "| x \\| y &lt;script> |  |"
    assert table([]) == ""


def test_the_log_tells_each_moment_once_and_in_order() -> None:
    told = [text for _, text in moments(STORY)]
    keys = [key for key, _ in moments(STORY)]
    assert len(set(keys)) == len(keys)
    begins = [
        next(i for i, text in enumerate(told) if text.startswith(start))
        for start in (
            "attempt 1 begins on node-0, node-1",
            "incident demo-a1-i1",
            "demo-a1-i1 is node_lost",
            "demo-a1-i1: new-attempt",
            "demo-a1-i1 is over",
            "attempt 2 begins on node-0, node-2",
            "waits for an answer",
        )
    ]
    assert begins == sorted(begins)
    ended = replace(STORY, run=replace(RUN, state=RunState.SUCCEEDED, why="300 steps"))
    assert [text for key, text in moments(ended) if key not in keys] == ["demo succeeded: 300 steps"]


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=400), st.text(max_size=20))
def test_any_points_make_a_picture_or_a_sentence(points: list[tuple[float, float]], name: str) -> None:
    text = picture("loss", [PlotLine(name, tuple(points))], "a loss")
    assert text == "loss: nothing yet." or len(pictures(text)) == 1
    for made in pictures(text):
        assert "nan" not in made.split("</text>", 1)[1].lower() or name


@pytest.mark.parametrize(
    "points", [[(1.0, 2.0)], [(1.0, 2.0), (2.0, 2.0)], [(float(x), x * 1e-9) for x in range(5000)]]
)
def test_pictures_stay_inside_and_small(points: list[tuple[float, float]]) -> None:
    drawn = svg("t", [PlotLine("one", tuple(points))])
    ElementTree.fromstring(drawn)
    assert len(drawn) < 12_000
    numbers = [float(pair) for pairs in re.findall(r'points="([^"]+)"', drawn) for pair in re.split("[ ,]", pairs)]
    assert all(0 <= number <= 720 for number in numbers)
