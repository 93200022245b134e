"""Stories of the flow runner: what is asked through the server's API trains, and no run is lost with its runner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from profiles.vocabulary import FaultClass, RunState
from tests.support.harness.runners import Asking, Runner, runner
from tests.support.harness.stages import PROFILE, Stage, incident, numbers_are_unique, outcomes, stage, succeeded
from tests.support.running.waiting import until

pytestmark = pytest.mark.story
STORY = str(PROFILE)
LONG = "steps=300"
"""A quarter of a minute: a runner needs four seconds to start."""
LONGEST = "steps=900"
"""For what must still train when the next runner drives, on a machine that is busy with other things."""


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made


@pytest.fixture
def served(scene: Stage) -> Iterator[Runner]:
    with runner(scene.home, scene.api_url) as made:
        yield made.serving()


@pytest.fixture
def asking(scene: Stage, served: Runner) -> Iterator[Asking]:
    with closing(Asking(scene.api_url, "train/local")) as made:
        yield made


@pytest.fixture
def name() -> str:
    """One server for all stories: a key that was used once stays used."""
    return f"story-{uuid4().hex[:8]}"


def begun(scene: Stage, asking: Asking, name: str, *overrides: str) -> str:
    """Ask for the story; the flow run's id, when the run stands in the ledger."""
    identity = asking.asked(name, profile=STORY, name=name, overrides=overrides)
    until("the run is opened", lambda: scene.ledger.run(name), lambda: str(asking.flow_run(identity)))
    scene.run = name
    return identity


def untouched(scene: Stage) -> None:
    """The run went on as if nothing had been."""
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    assert story.troubles == (), scene.tell()


def test_a_replaced_runner_and_a_killed_one_lose_nothing(
    scene: Stage, served: Runner, asking: Asking, name: str
) -> None:
    identity = begun(scene, asking, name, LONG)
    scene.at_step(5)
    assert len(served.drivers()) == 1
    assert served.terminate() == 0
    assert served.drivers() == []
    assert scene.ledger.lease(name) is None, "it was given back, nobody need wait for its end"
    served.serving()
    until("the new runner drives", lambda: scene.ledger.lease(name), served.told)
    scene.at_step(15)
    served.kill()
    assert scene.ledger.lease(name) is not None, "a killed driver gives nothing back"
    served.serving()
    untouched(scene)
    assert asking.ended(identity)["type"] == "COMPLETED"
    assert [one["id"] for one in asking.of_deployment()].count(identity) == 1
    assert [one["name"] for one in asking.of_deployment() if f"run:{name}" in one["tags"]] == [f"train {name}"]


def test_a_runner_that_took_over_recovers_what_is_lost(scene: Stage, served: Runner, asking: Asking, name: str) -> None:
    begun(scene, asking, name, LONGEST, "recovery.in_place_restarts=0")
    scene.at_step(5)
    served.kill()
    served.serving()
    until("the new runner drives", lambda: len(served.drivers()) == 1, served.told)
    scene.fault("kill-rank:1")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert incident(story).fault_class is FaultClass.PROCESS_KILLED
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    assert numbers_are_unique(story.attempts)


def test_a_run_without_a_flow_run_gets_one(scene: Stage, served: Runner, asking: Asking, name: str) -> None:
    scene.open(name)
    [found] = until(
        "a flow run of its own",
        lambda: [one for one in asking.of_deployment() if f"run:{name}" in one["tags"]],
        served.told,
    )
    assert found["idempotency_key"] == f"{name}@{asking.deployment['id']}"
    untouched(scene)
    assert asking.ended(found["id"])["type"] == "COMPLETED"


def test_what_is_cancelled_may_save_and_is_stopped(scene: Stage, served: Runner, asking: Asking, name: str) -> None:
    identity = begun(scene, asking, name)
    scene.at_step(7)
    asking.cancel(identity)
    story = scene.end()
    assert story.run.state is RunState.STOPPED, scene.tell()
    assert story.attempts[0].last_step is not None
    state = asking.ended(identity)
    assert (state["type"], state["message"]) == ("CANCELLED", "its flow run was cancelled")
    assert served.told().count("driven by process") == 1, "nobody drives it again"


def test_who_pauses_or_deletes_a_flow_run_is_told_that_training_goes_on(
    scene: Stage, served: Runner, asking: Asking, name: str
) -> None:
    first = begun(scene, asking, name, LONGEST)
    scene.at_step(5)
    asking.pause(first)
    until("the pause is ours", lambda: scene.story.paused, served.told)
    until("its page says so", lambda: asking.flow_run(first)["state"]["name"] == "AutomationPaused", served.told)
    asking.delete(first)

    def next_one() -> list[str]:
        mine = [one for one in asking.of_deployment() if f"run:{name}" in one["tags"]]
        return [one["id"] for one in mine if one["id"] != first and one["state"]["type"] == "RUNNING"]

    [second] = until("another flow run shows it", next_one, served.told)
    scene.ledger.unpause(name)
    untouched(scene)
    assert asking.ended(second)["type"] == "COMPLETED"


def test_requests_that_cannot_be_done_name_the_field(scene: Stage, served: Runner, asking: Asking) -> None:
    refused = asking.ask(mode="bold")
    assert refused.status_code == 409
    assert "request.mode" in refused.json()["detail"]
    wrong = {
        "name 'demoo'": {"profile": "demoo"},
        "steps": {"profile": STORY, "overrides": ["steps=many"]},
        "cluster: this runner serves local, not bed": {"profile": STORY, "cluster": "bed"},
    }
    asked = {text: asking.asked(**request) for text, request in wrong.items()}
    for text, identity in asked.items():
        state = asking.ended(identity)
        assert (state["type"], state["name"]) == ("FAILED", "Refused"), served.told()
        assert text.split("'")[-2 if "'" in text else 0] in state["message"]
    assert scene.ledger.runs() == []


def test_one_name_is_one_run(scene: Stage, served: Runner, asking: Asking, name: str) -> None:
    first = begun(scene, asking, name)
    assert asking.asked(name, profile=STORY, name=name) == first, "the same key"
    second, other = asking.asked(profile=STORY, name=name), asking.asked(profile="demo", name=name)
    state = asking.ended(second)
    assert (state["type"], state["message"]) == ("CANCELLED", f"{name} is followed in flow run {first}")
    assert "with another profile" in asking.ended(other)["message"]
    nameless = asking.asked(profile=STORY, overrides=["steps=2"])
    assert asking.ended(nameless)["type"] == "COMPLETED", served.told()
    assert {run.name for run in scene.ledger.runs()} == {name, f"story-{nameless[:8]}"}
    untouched(scene)


def test_what_was_claimed_by_the_dead_is_opened_by_the_next(
    scene: Stage, asking: Asking, served: Runner, name: str
) -> None:
    """A request of which only the server knows: the runner died between claiming and opening it."""
    served.kill()
    identity = asking.asked(name, profile=STORY, name=name)
    asking.claimed(identity)
    served.serving()
    scene.run = name
    until("the run is opened", lambda: scene.ledger.run(name), served.told)
    untouched(scene)


def test_the_ledger_may_be_away_for_a_while(scene: Stage, served: Runner, asking: Asking, name: str) -> None:
    begun(scene, asking, name)
    scene.at_step(5)
    ledger, away = scene.home / "ledger.sqlite", scene.home / "away"
    shutil.move(ledger, away)
    until("the runner waits", lambda: "waiting for it, training goes on" in served.told(), served.told)
    assert served.process.poll() is None
    shutil.move(away, ledger)
    untouched(scene)
