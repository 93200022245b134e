"""The flow of a bootstrap on a real Prefect server: a task run a stage and group of hosts, artifacts, and its log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from prefect import State
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)

from flows import bootstrap
from flows.building.ground import Ground
from flows.decisions.bootstrap.judge import Wanted
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import Fenced
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.site import Hear, Tell
from tests.support.running.waiting import until
from workflows.bootstrap.building import NOT_ASKED, BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import HostNews, Stage, Step, StepProof, StepProofs
from workflows.model.host_sight import HostsSight

PLANES, WORKERS = ("n1", "n2"), ("w1", "w2", "w3")
WHY = "kubeadm: <b>connection</b> refused"


@dataclass
class MadeHosts:
    """Hosts on which steps hold once they were carried out, and one of which nothing comes."""

    hear: Hear
    broken: str = ""
    holding: set[str] = field(default_factory=set[str])
    last: BuildingSight | None = None
    request_cluster: str = "made"

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        return BuildingSight(1.0, HostsSight(1.0, {}, False), ControlSight({}), NOT_ASKED, None)

    def carry_out(self, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        for step in steps:
            self.hear(HostNews(step.subject, "", "at work", "images", f"{step.subject}: images: changed"))
        self.holding |= {step.id for step in steps if step.subject != self.broken}
        return {step.id: WHY for step in steps if step.subject == self.broken}

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        return {}

    @property
    def unfinished(self) -> tuple[str, ...]:
        return ()

    def judged(self, wanted: Wanted, plan: Sequence[Step], seen: BuildingSight) -> StepProofs:
        holds, lacks = StepProof(VerdictWord.PASS, "it holds"), StepProof(VerdictWord.FAIL, "it is not there")
        return {step.id: holds if step.stage is Stage.PRECHECKS or step.id in self.holding else lacks for step in plan}


def plan() -> tuple[Step, ...]:
    names = (*PLANES, *WORKERS)
    checks = [Step(Stage.PRECHECKS, name, "w", f"checks {name}") for name in names]
    hosts = [Step(Stage.HOSTS, name, "w", f"programs on {name}", (f"prechecks/{name}",)) for name in names]
    planes = [
        Step(Stage.CONTROL_PLANE, name, "w", f"control plane on {name}", tuple(f"hosts/{one}" for one in PLANES), True)
        for name in PLANES
    ]
    workers = [
        Step(Stage.WORKERS, name, "w", f"{name} joins", (f"hosts/{name}", "control-plane/n2")) for name in WORKERS
    ]
    return (*checks, *hosts, *planes, *workers)


@dataclass
class Shown:
    """What the server shows of a flow run."""

    client: SyncPrefectClient
    flow_run: UUID

    def tasks(self) -> list[tuple[str, str]]:
        """Name and state of each task run, in their order."""
        only = FlowRunFilter(id=FlowRunFilterId(any_=[self.flow_run]))
        runs = self.client.read_task_runs(flow_run_filter=only)
        ordered = sorted(runs, key=lambda run: str(run.start_time))
        return [(run.name, str(run.state_name)) for run in ordered]

    def task_names(self) -> list[str]:
        return [name for name, _ in self.tasks()]

    def artifacts(self) -> dict[str, Any]:
        """By key."""
        only = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[self.flow_run]))
        found = self.client.read_artifacts(artifact_filter=only)
        assert len({one.key for one in found}) == len(found)
        return {str(one.key): one.data for one in found}

    def log(self) -> list[str]:
        only = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[self.flow_run]))
        return [one.message for one in self.client.read_logs(log_filter=only)]


@pytest.fixture
def built(settings: object, prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Carries a bootstrap of made hosts through as a flow, and tells what the server shows of it."""

    def build(broken: str = "", **fields: Any) -> tuple[State[Any], Shown]:
        def ground(profile: ClusterProfile, request: BootstrapRequest, hear: Hear) -> Ground:
            hosts = MadeHosts(hear, broken)
            monkeypatch.setattr(bootstrap, "judged", hosts.judged)
            return Ground(request, Wanted(profile, None, {}), plan(), (*PLANES, *WORKERS), cast("Any", hosts))

        monkeypatch.setattr(bootstrap, "ground_of", ground)
        monkeypatch.setattr(bootstrap, "notes_of", lambda ground, seen: ())
        request = BootstrapRequest(cluster="bootstrap-example", **fields)
        state = cast("State[Any]", asyncio.run(bootstrap.bootstrap(request, return_state=True)))
        flow_run = state.state_details.flow_run_id
        assert flow_run is not None
        return state, Shown(get_client(sync_client=True), flow_run)

    return build


def test_the_page_of_the_flow_run_tells_the_story(built: Any, tmp_path: Path) -> None:
    state, shown = built()
    assert (state.type.value, state.message) == ("COMPLETED", "all 15 steps hold")
    names = shown.task_names()
    work = [name for name in names if " of " in name]
    assert work == [
        "hosts of n[1-2], w[1-3]",
        "control-plane of n1",
        "control-plane of n2",
        "workers of w[1-3]",
    ]
    assert names[0] == "looks at 5 hosts"
    shows = names.index("put the artifact bootstrap-bootstrap-example-plan")
    assert shows < names.index(work[0]), "what would be carried out is shown before any of it is"
    artifacts = shown.artifacts()
    assert set(artifacts) == {"bootstrap-bootstrap-example-plan", "bootstrap-bootstrap-example-hosts"}
    wanted = artifacts["bootstrap-bootstrap-example-plan"]
    assert "5 of 15 steps hold already." in wanted
    assert "| workers/w1 | w1 joins |" in wanted
    after = json.loads(artifacts["bootstrap-bootstrap-example-hosts"])
    assert {row["host or component"]: row["hosts"] for row in after} == dict.fromkeys((*PLANES, *WORKERS), "✔ pass")
    assert after[2] == {
        "host or component": "w1",
        **{"prechecks": "✔ pass", "hosts": "✔ pass", "control-plane": "", "workers": "✔ pass"},
    }
    log = until("the log has come", lambda: lines if "workers/w3: pass: it holds" in (lines := shown.log()) else None)
    assert "n1: programs on n1" in log
    assert not any("images" in line for line in log), "the log of each host has them"
    assert (tmp_path / "reports" / "bootstrap-bootstrap-example.html").is_file()


def test_a_failure_stands_in_the_state_and_in_the_table(built: Any) -> None:
    state, shown = built(broken="w2")
    assert state.type.value == "FAILED"
    assert str(state.message).startswith("failed: hosts/w2 (")
    rows = json.loads(shown.artifacts()["bootstrap-bootstrap-example-hosts"])
    assert [row["hosts"] for row in rows] == ["✔ pass", "✔ pass", "✔ pass", "✖ fail", "✔ pass"]
    tried = [(name, word) for name, word in shown.tasks() if name.startswith(("hosts of", "workers of"))]
    assert tried == [
        ("hosts of n[1-2], w[1-3]", "Failed"),
        ("hosts of w2", "Failed"),
        ("workers of w[1,3]", "Completed"),
    ], "the second try is a task run of its own"


def test_what_is_raised_amid_a_task_ends_the_flow(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: MadeHosts, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        raise Fenced("another process builds this cluster")

    monkeypatch.setattr(MadeHosts, "carry_out", gone)
    state, shown = built()
    assert (state.type.value, shown.tasks()[-1][1]) == ("FAILED", "Failed")
    assert "another process builds this cluster" in str(state.message)


def test_a_check_shows_the_plan_and_carries_nothing_out(built: Any) -> None:
    state, shown = built(verb="check")
    assert state.type.value == "COMPLETED"
    assert not any(" of " in name for name in shown.task_names())
    assert shown.artifacts()["bootstrap-bootstrap-example-plan"].startswith("# bootstrap-example: check")
    rows = json.loads(shown.artifacts()["bootstrap-bootstrap-example-hosts"])
    assert rows[0]["hosts"] == "· not yet"
