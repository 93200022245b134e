"""The pages of a run on a real Prefect server: written, written over, and never in the driver's way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.decisions.diagnosis.step_times import StepTimes
from flows.decisions.views.run_page import moments, page_of
from flows.publishing import publish_page
from profiles.loading.load import load_cluster, load_run, resolve
from profiles.vocabulary import RunState
from tasks.context import session
from tasks.ledger.ledger import Ledger
from tasks.prefect.run_page import PAUSED_NAME, WAITING_NAME, RunPages, Steps, Writer
from tasks.settings import Settings
from tests.support.builders.ledgers import an_attempt, an_incident, driven
from tests.support.harness.stages import Stage, stage, succeeded
from workflows.model.events import PageGround, RunPage, Sheet
from workflows.model.records import StepRow

RESOLVED = resolve(load_run("demo"), load_cluster("local"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})


@pytest.fixture
def own(settings: Settings) -> Iterator[Ledger]:
    opened = Ledger(settings.ledger_url)
    yield opened
    opened.close()


def artifacts(identity: str) -> dict[str, Any]:
    """The artifacts of a flow run by key; there is never a second one of the same key."""
    ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[identity]))  # pyright: ignore[reportArgumentType]
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ours)
    made = {str(item.key): item for item in found}
    assert len(made) == len(found)
    return made


def test_a_flow_run_shows_the_run_and_writes_the_same_artifacts_over(
    prefect_server: str, settings: Settings, own: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    run = f"r-{uuid4().hex[:8]}"
    fencing = driven(own, run)
    seen: list[str] = []

    @flow
    async def shows(number: int) -> None:
        with session(settings), publish_page(run, RESOLVED):
            seen.append(str(flow_run.id))
            own.plan_attempt(fencing, an_attempt(number, run=run))
            own.add_steps(run, number, [StepRow(step, time.time() + step, loss=1.0 / step) for step in range(1, 30)])

    for number in (1, 2):
        asyncio.run(shows(number))  # pyright: ignore[reportUnknownArgumentType]
    first, second = map(artifacts, seen)
    assert (
        set(first)
        == set(second)
        == {f"run-{run}{end}" for end in ("", "-progress", "-attempts", "-incidents", "-nodes")}
    )
    assert "data:image/svg+xml" in str(second[f"run-{run}"].data)
    told = [text for text in caplog.messages if text.startswith("attempt")]
    assert told == [f"attempt {number} begins on nodes that the scheduler chooses: first" for number in (1, 2)]


def test_a_run_that_waits_for_a_person_is_not_shown_as_any_other_that_runs(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    fencing = driven(own, run)
    writer = Writer(lambda ground: page_of(RESOLVED, ground), moments, StepTimes)
    names: list[str | None] = []

    @flow
    async def waits() -> None:
        pages = RunPages(own, run, str(flow_run.id), writer)
        with get_client(sync_client=True) as client:

            def look() -> None:
                pages.update(lambda text: None)
                state = client.read_flow_run(UUID(str(flow_run.id))).state
                names.append(None if state is None else state.name)

            own.set_run_state(run, fencing, RunState.RUNNING, "attempt 1 makes progress")
            look()
            own.set_run_state(run, fencing, RunState.WAITING_FOR_APPROVAL, "take node-1 out?")
            look()
            own.set_run_state(run, fencing, RunState.RUNNING, "attempt 1 makes progress")
            look()
            own.pause(run, "fabric work")
            look()
        pages.close()

    asyncio.run(waits())  # pyright: ignore[reportUnknownArgumentType]
    assert names == ["Running", WAITING_NAME, "Running", PAUSED_NAME]


def test_a_flow_run_carries_the_words_by_which_people_find_the_run(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    driven(own, run)
    writer = Writer(lambda ground: page_of(RESOLVED, ground), moments, StepTimes)
    seen: list[list[str]] = []

    @flow
    async def tagged() -> None:
        pages = RunPages(own, run, str(flow_run.id), writer)
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(flow_run.id)), tags=[f"run:{run}"])
            for owner, tags in (("ada", {"team": "vision"}), ("", {"team": "nlp", "long": ""}), ("", {})):
                own.set_tags(run, owner, tags)
                pages.update(lambda text: None)
                seen.append(sorted(client.read_flow_run(UUID(str(flow_run.id))).tags))
        pages.close()

    asyncio.run(tagged())  # pyright: ignore[reportUnknownArgumentType]
    after = ["long=", "owner=ada", f"run:{run}", "team=nlp"]
    assert seen == [["owner=ada", f"run:{run}", "team=vision"], after, after]


def test_a_driver_that_comes_back_goes_on_with_the_artifacts_that_are_there(prefect_server: str, own: Ledger) -> None:
    run, identity = f"r-{uuid4().hex[:8]}", ""
    driven(own, run)

    @flow
    async def nothing() -> str:
        return str(flow_run.id)

    identity = str(asyncio.run(nothing()))  # pyright: ignore[reportUnknownArgumentType]
    writer = Writer(lambda ground: page_of(RESOLVED, ground), moments, StepTimes)
    for _ in range(2):
        pages = RunPages(own, run, identity, writer)
        pages.update(lambda text: None)
        assert not pages.changed()
        pages.close()
    assert len(artifacts(identity)) == 5


def test_a_server_that_is_away_costs_the_flow_nothing(prefect_server: str, settings: Settings, own: Ledger) -> None:
    driven(own, "demo")
    begun = time.monotonic()

    @flow
    async def goes_on() -> str:
        with (
            session(settings),
            temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
            publish_page("demo", RESOLVED),
        ):
            return "done"

    assert asyncio.run(goes_on()) == "done"  # pyright: ignore[reportUnknownArgumentType]
    assert time.monotonic() - begun < 30


def test_a_page_that_fails_fails_alone(prefect_server: str, settings: Settings, own: Ledger, monkeypatch: Any) -> None:
    driven(own, "demo")

    def broken(resolved: Any, ground: PageGround) -> RunPage:
        raise ValueError("no page today")

    monkeypatch.setattr("flows.publishing.page_of", broken)

    @flow
    async def goes_on() -> str:
        with session(settings), publish_page("demo", RESOLVED):
            return "done"

    assert asyncio.run(goes_on()) == "done"  # pyright: ignore[reportUnknownArgumentType]


def test_outside_of_a_flow_run_nothing_is_shown(own: Ledger) -> None:
    with publish_page("demo", RESOLVED):
        assert not [thread for thread in threading.enumerate() if thread.name == "pages of demo"]


def silent(ground: PageGround) -> RunPage:
    return RunPage(())


def test_a_fall_of_throughput_is_written_once(own: Ledger) -> None:
    fencing = driven(own)
    own.plan_attempt(fencing, replace(an_attempt(), nodes=("node-0",)))
    at, rows = 1000.0, list[StepRow]()
    for step in range(1, 200):
        at += 10.0 if step < 100 else 20.0
        rows.append(StepRow(step, at))
    writer = Writer(silent, moments, StepTimes)
    for part in (rows[:120], rows[120:]):
        own.add_steps("demo", 1, part)
        RunPages(own, "demo", "", writer).update(lambda text: None)
    [row] = [row for row in own.history_after(0, 100) if row.kind == "throughput"]
    assert '"nodes": ["node-0"]' in row.data


def test_steps_are_read_once_whatever_their_times(own: Ledger) -> None:
    driven(own)
    steps = Steps()
    rows = [StepRow(step, 1000.0 + step // 3) for step in range(1, 20)]
    for count in (4, 5, 11, 19):
        own.add_steps("demo", 1, rows[:count])
        steps.read(own, "demo", 1)
    assert steps.by_attempt[1] == rows
    assert steps.read(own, "demo", 1) == []


def test_very_many_steps_are_thinned_out(own: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.prefect.run_page.MOST_STEPS", 100)
    driven(own)
    steps = Steps()
    own.add_steps("demo", 1, [StepRow(step, 1000.0 + step) for step in range(1, 1001)])
    steps.read(own, "demo", 1)
    assert len(steps.by_attempt[1]) <= 100
    assert steps.by_attempt[1][-1].step == 1000
    assert not steps.all


def test_only_what_differs_is_written(own: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    fencing = driven(own)
    put: list[str] = []

    class Counting:
        def put(self, flow_run: str, sheet: Sheet, known: str) -> str:
            put.append(f"{sheet.key}:{known}")
            return f"id of {sheet.key}"

        def form(self, deployment: str) -> str:
            return ""

        def close(self) -> None:
            pass

    monkeypatch.setattr("tasks.prefect.run_page.open_console", Counting)
    pages = RunPages(own, "demo", "", Writer(lambda ground: page_of(RESOLVED, ground), moments, StepTimes))
    pages.update(lambda text: None)
    assert len(put) == 5
    put.clear()
    own.open_incident(fencing, an_incident())
    own.set_run_state("demo", fencing, RunState.RECOVERING, "pod-failed")
    pages.update(lambda text: None)
    assert sorted(item.split(":")[0] for item in put) == ["run-demo", "run-demo-incidents", "run-demo-progress"]
    assert all(item.split(":")[1] for item in put)


@pytest.mark.story
def test_a_run_that_loses_a_rank_is_told_on_its_page(prefect_server: str) -> None:
    with stage(prefect_server) as scene:
        told(scene)


def told(scene: Stage) -> None:
    scene.start("paged", overrides=("steps=40",))
    scene.fault("kill-rank:1,step=10")
    story = scene.end()
    assert succeeded(story), scene.tell()
    with get_client(sync_client=True) as client:
        [newest] = client.read_flow_runs(limit=1, sort="EXPECTED_START_TIME_DESC")  # pyright: ignore[reportArgumentType]
    assert newest.name == "train paged"
    made = artifacts(str(newest.id))
    page = str(made["run-paged"].data)
    assert "process_killed" in page
    assert "# paged: succeeded" in page
    assert float(made["run-paged-progress"].data) == 100.0
