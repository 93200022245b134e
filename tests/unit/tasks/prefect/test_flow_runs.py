"""The neighbour that is asked for runs: a real Prefect server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Paused

from profiles.errors import NotFound, Unavailable
from profiles.vocabulary import RunState
from tasks.prefect.deployments import Offer, Timetable
from tasks.prefect.flow_runs import BUSY_SECONDS, FlowRuns, flow_runs
from workflows.model.runs import Phase

SCHEMA = {"type": "object", "properties": {"request": {"type": "object"}}}


@pytest.fixture
def offer() -> Offer:
    name = f"d{uuid4().hex[:8]}"
    return Offer("served", name, SCHEMA, "some.module.flow", "a test", tags=("train", f"cluster:{name}"))


@pytest.fixture
def server(prefect_server: str, offer: Offer) -> Iterator[FlowRuns]:
    with flow_runs() as made:
        made.serve([offer])
        yield made


def waiting(server: FlowRuns) -> list[str]:
    return [due.id for due in server.waiting()]


def test_what_is_asked_is_claimed_once_and_concluded(server: FlowRuns) -> None:
    identity = server.create("demo", "asked for")
    assert server.create("demo", "again") == identity
    assert waiting(server) == [identity]
    assert server.claim(identity)
    assert not server.claim(identity), "somebody else has it"
    [found] = server.open()
    assert (found.id, found.phase, found.run) == (identity, Phase.CLAIMED, "demo")
    server.again(identity, "its driver died")
    assert waiting(server) == [identity]
    server.conclude(identity, RunState.FAILED, "the budget is spent")
    assert server.open() == []
    [ended] = server.of_run("demo")
    assert ended.phase is Phase.ENDED
    state = server.read(identity).state
    assert state is not None
    assert (state.name, state.message) == ("Failed", "the budget is spent")


def test_what_is_paused_is_still_seen_and_goes_on_under_a_name_that_says_why(server: FlowRuns) -> None:
    identity = server.create("demo", "asked for")
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(identity), Paused(), force=True)
    assert [one.phase for one in server.open()] == [Phase.PAUSED]
    server.goes_on(identity, "AutomationPaused", "training goes on")
    assert [one.phase for one in server.open()] == [Phase.RUNNING]
    state = server.read(identity).state
    assert state is not None
    assert (state.name, state.message) == ("AutomationPaused", "training goes on")
    assert not server.is_deleted(identity)
    with get_client(sync_client=True) as client:
        client.delete_flow_run(UUID(identity))
    assert server.is_deleted(identity)
    assert server.create("demo", "asked for") != identity, "its run gets another one"


class OneList:
    """A server with flow runs that ended well, the newest first, and none that were skipped."""

    def __init__(self, well: list[bool]) -> None:
        self.well = [SimpleNamespace(id=uuid4(), auto_scheduled=scheduled) for scheduled in well]
        self.deleted: list[UUID] = []

    def read_flow_runs(self, *, flow_run_filter: Any, offset: int, **_: Any) -> list[Any]:
        return self.well[offset:] if flow_run_filter.state.type is not None else []

    def delete_flow_run(self, flow_run: UUID) -> None:
        self.deleted.append(flow_run)


def test_of_what_a_timetable_starts_each_minute_the_newest_and_what_a_person_asked_for_stay() -> None:
    kept = OneList([True, True, True, False, True])
    client: Any = kept
    FlowRuns(client).tidy(str(uuid4()), 2)
    assert kept.deleted == [kept.well[2].id, kept.well[4].id]
    assert Offer("monitor", "c", {}, "m", "d", timetables=(Timetable("each-minute", "* * * * *"),)).often
    assert not Offer("report", "c", {}, "m", "d", timetables=(Timetable("weekly", "0 6 * * 1"),)).often


def test_a_flow_run_belongs_to_a_run_until_it_leaves_it(server: FlowRuns) -> None:
    identity = server.create("first", "asked for")
    asked = server.read(identity)
    server.leaves(asked)
    assert server.of_run("first") == []
    asked = server.read(identity)
    server.belongs(asked, "second")
    server.belongs(asked, "second")
    assert [one.id for one in server.of_run("second")] == [identity]
    server.drop(identity, "not wanted")
    assert [one.phase for one in server.of_run("second")] == [Phase.CANCELLED]


def test_serving_again_keeps_schedules_and_brings_the_new_schema(server: FlowRuns, offer: Offer) -> None:
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name(f"served/{offer.name}")
        client.create_deployment_schedules(found.id, [(IntervalSchedule(interval=86400), True)])
        server.serve([offer])
        wider = {**SCHEMA, "required": ["request"]}
        server.serve([replace(offer, schema=wider)])
        after = client.read_deployment_by_name(f"served/{offer.name}")
    assert after.id == found.id
    assert len(after.schedules) == 1
    assert after.parameter_openapi_schema == wider
    assert after.enforce_parameter_schema is True


def test_people_change_timetables_and_an_upgrade_brings_new_ones(prefect_server: str, offer: Offer) -> None:
    nightly, weekly = Timetable("nightly", "0 3 * * *"), Timetable("weekly", "0 6 * * 1")
    first = replace(offer, version="1", timetables=(nightly,))
    with flow_runs() as server, get_client(sync_client=True) as client:

        def slugs() -> dict[str | None, tuple[bool, str]]:
            found = client.read_deployment_by_name(f"served/{offer.name}")
            return {item.slug: (bool(item.active), str(getattr(item.schedule, "cron", ""))) for item in found.schedules}

        [deployment] = server.serve([first])
        assert slugs() == {"nightly": (True, "0 3 * * *")}
        [schedule] = client.read_deployment_schedules(UUID(deployment))
        client.update_deployment_schedule(UUID(deployment), schedule.id, active=False)
        server.serve([first])
        server.serve([replace(first, timetables=(Timetable("nightly", "0 4 * * *"),))])
        assert slugs() == {"nightly": (False, "0 4 * * *")}, "whoever paused it keeps it paused"
        client.delete_deployment_schedule(UUID(deployment), schedule.id)
        server.serve([first])
        assert slugs() == {}, "whoever deleted it keeps it deleted"
        server.serve([replace(first, version="2", timetables=(weekly,))])
        assert slugs() == {"weekly": (True, "0 6 * * 1")}


def test_what_trains_on_one_cluster_is_one_family(server: FlowRuns, offer: Offer) -> None:
    preset = replace(offer, name=f"{offer.name}-preset", parameters={"request": {"profile": "demo"}})
    plain = replace(offer, name=f"{offer.name}-plain", tags=("report", f"cluster:{offer.name}"))
    ids = list(server.serve([offer, preset, plain]))
    with get_client(sync_client=True) as client:
        made = [client.create_flow_run_from_deployment(UUID(one)).id for one in ids]
    assert {due.deployment for due in server.waiting()} == set(ids)
    assert {one.id for one in server.open()} == {str(one) for one in made[:2]}
    assert server.plain() == [], "nobody claimed it"
    for one in made[1:]:
        assert server.claim(str(one))
    [seen] = server.plain()
    assert (seen.id, seen.deployment, seen.phase, seen.begun) == (str(made[2]), ids[2], Phase.CLAIMED, 0)
    asked = server.read(str(made[1]))
    server.belongs(asked, "demo-1")
    with flow_runs() as driver:
        driver.stand_at(driver.read(str(made[0])))
        assert [one.id for one in driver.of_run("demo-1")] == [str(made[1])], "asked for by another deployment"
    server.crash(str(made[2]), "its process died")
    assert server.plain() == []


def test_a_flow_run_that_is_not_there(server: FlowRuns) -> None:
    with pytest.raises(NotFound):
        server.read(str(uuid4()))


def test_a_server_that_is_away_is_unavailable(offer: Offer) -> None:
    nobody = temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"})
    with nobody, flow_runs() as away, pytest.raises(Unavailable, match="does not answer"):
        away.serve([offer])


class Busy:
    """A client whose server is busy for so many questions; it counts them."""

    def __init__(self, times: int, code: int = 503) -> None:
        self.left, self.asked, self.code = times, 0, code

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*_: object, **__: object) -> Any:
            self.asked += 1
            self.left -= 1
            if self.left >= 0:
                request = httpx.Request("POST", "http://127.0.0.1/")
                raise PrefectHTTPStatusError("no", request=request, response=httpx.Response(self.code, request=request))
            return SimpleNamespace(id="made", status=SimpleNamespace(value="ACCEPT"))

        return answer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr("tasks.prefect.flow_runs.time.sleep", waits.append)
    return waits


def test_a_busy_server_is_asked_again(slept: list[float]) -> None:
    client: Any = Busy(2)
    assert FlowRuns(client, [UUID(int=0)]).create("demo", "asked for") == "made"
    assert (client.asked, slept) == (3, list(BUSY_SECONDS[:2]))


def test_one_that_stays_busy_is_away(slept: list[float]) -> None:
    client: Any = Busy(99)
    with pytest.raises(Unavailable, match="answers 503"):
        FlowRuns(client, [UUID(int=0)]).create("demo", "asked for")
    assert (client.asked, slept) == (1 + len(BUSY_SECONDS), list(BUSY_SECONDS))


@pytest.mark.parametrize(("code", "ask"), [(500, "create"), (503, "claim")])
def test_what_is_no_matter_of_patience_is_asked_once(slept: list[float], code: int, ask: str) -> None:
    client: Any = Busy(1, code)
    runs = FlowRuns(client, [UUID(int=0)])
    with pytest.raises(Unavailable, match=f"answers {code}"):
        runs.create("demo", "asked for") if ask == "create" else runs.claim(str(uuid4()))
    assert (client.asked, slept) == (1, []), "a claim that was answered badly may have been taken"
