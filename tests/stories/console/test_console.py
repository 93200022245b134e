"""Stories of `primus up`: everything is served, schedules fire, whatever dies is started again, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tests.support.harness.consoles import Console, console
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import patience, until

pytestmark = pytest.mark.story
STORY = str(PROFILE)
SERVICES = ("server", "runner", "monitor")


@pytest.fixture(scope="module")
def served() -> Iterator[Console]:
    """One home for all stories, begun empty as people begin it: here the server makes its database itself."""
    with (
        tempfile.TemporaryDirectory(prefix="primus-", ignore_cleanup_errors=True) as folder,
        console(Path(folder)) as made,
    ):
        made.up()
        yield made


@pytest.fixture(scope="module")
def ledger(served: Console) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{served.home}/ledger.sqlite")
    yield opened
    opened.close()


def train(name: str, *overrides: str) -> dict[str, object]:
    return {"request": {"profile": STORY, "name": name, "overrides": list(overrides)}}


def test_up_may_be_said_twice(served: Console) -> None:
    before = {service: served.pid(service) for service in SERVICES}
    assert None not in before.values(), served.told()
    said = served.up()
    assert {service: served.pid(service) for service in SERVICES} == before
    assert said["processes"] == before
    assert served.primus("up").stdout.strip() == f"Prefect: {said['ui']}"


def test_what_is_asked_for_by_the_api_trains_once(served: Console, ledger: Ledger) -> None:
    first = served.ask("train/local", train("asked", "steps=5"), key="asked")
    assert served.ask("train/local", train("asked", "steps=5"), key="asked") == first
    assert served.ended(first)["type"] == "COMPLETED", served.told()
    story = ledger.story("asked")
    assert story.run.state is RunState.SUCCEEDED
    [flow_run] = [one for one in served.flow_runs("train/local") if "run:asked" in one["tags"]]
    assert flow_run["name"] == "train asked"


def test_a_preset_needs_no_form(served: Console, ledger: Ledger) -> None:
    preset = served.deployment("train/local-demo")
    assert preset["parameters"] == {"request": {"profile": "demo"}}
    short = {"request": {"profile": "demo", "name": "preset", "overrides": ["steps=5"]}}
    assert served.ended(served.ask("train/local-demo", short))["type"] == "COMPLETED", served.told()
    assert ledger.story("preset").run.profile == "demo"


def test_the_command_line_goes_by_the_deployment_where_one_is_served(served: Console, ledger: Ledger) -> None:
    done = served.primus("train", STORY, "--name", "typed", "--set", "steps=5")
    assert done.stderr.splitlines()[0] == "typed is written down; it is given to a driver", (
        "before anything is waited for"
    )
    assert ledger.story("typed").run.state is RunState.SUCCEEDED, done.stderr
    flow_runs = [one for one in served.flow_runs("train/local") if "run:typed" in one["tags"]]
    assert len(flow_runs) == 1, f"{done.stderr}\n{served.told()}"
    [flow_run] = flow_runs
    # The command goes by the ledger, which has the run's end first; its flow run tells the server afterwards.
    assert (flow_run["name"], served.ended(flow_run["id"])["type"]) == ("train typed", "COMPLETED")


def test_a_schedule_fires_by_itself_and_a_paused_one_does_not(served: Console) -> None:
    deployment = served.deployment("monitor/local")
    [own] = [item for item in deployment["schedules"] if item["slug"] == "each-minute"]
    for left in (item for item in deployment["schedules"] if item["slug"] == "story"):  # by a try that failed
        assert served.api.delete(f"/deployments/{deployment['id']}/schedules/{left['id']}").is_success
    each = {"schedule": {"interval": 3.0}, "active": True, "slug": "story"}
    [made] = served.post(f"/deployments/{deployment['id']}/schedules", [each])
    fired = until(
        "a flow run that nobody asked for",
        lambda: [one for one in served.flow_runs("monitor/local") if one["state_type"] == "COMPLETED"],
        served.told,
    )
    assert all(one["auto_scheduled"] for one in fired)
    for schedule in (made, own):
        path = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
        # A server on SQLite that is busy says so (503), and has done nothing.
        until("it is paused", lambda path=path: served.api.patch(path, json={"active": False}).is_success, served.told)
    until(
        "nothing is planned any more",
        lambda: not [one for one in served.flow_runs("monitor/local") if one["state_type"] in ("SCHEDULED", "PENDING")],
        served.told,
    )


def test_what_is_due_while_the_runner_is_dead_happens_once(served: Console, ledger: Ledger) -> None:
    served.kill("runner")
    identity = served.ask("train/local", train("late", "steps=5"))
    assert served.ended(identity)["type"] == "COMPLETED", served.told()
    assert [one["id"] for one in served.flow_runs("train/local") if "run:late" in one["tags"]] == [identity]
    assert len(ledger.story("late").attempts) == 1


@pytest.mark.parametrize("service", ["server", "runner"])
def test_the_loop_starts_again_what_died(served: Console, ledger: Ledger, service: str) -> None:
    """In the middle of a run: training goes on, nothing is recovered because the console was away."""
    name = f"through-{service}"
    served.ask("train/local", train(name, "steps=300"))
    until("the run trains", lambda: ledger.run(name) and ledger.steps(name), served.told)
    url, was = served.up()["api"], served.kill(service)
    served.living_again(service, was)
    assert served.up()["api"] == url, "the address stays"
    story = until("the end", lambda: s if (s := ledger.story(name)).run.ended_at else None, served.told)
    assert story.run.state is RunState.SUCCEEDED, served.told()
    assert (story.troubles, len(story.attempts)) == ((), 1), served.told()
    [flow_run] = [one for one in served.flow_runs("train/local") if f"run:{name}" in one["tags"]]
    assert served.ended(flow_run["id"])["type"] == "COMPLETED", served.told()


def test_a_run_goes_on_and_ends_while_the_server_does_not_answer(served: Console, ledger: Ledger) -> None:
    """It lives and is silent, so nobody starts another one: from the middle of a run until after its end."""
    identity = served.ask("train/local", train("unheard", "steps=60"))
    until("the run trains", lambda: ledger.run("unheard") and ledger.steps("unheard"), served.told)
    server = served.pid("server")
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        story = until("the end", lambda: s if (s := ledger.story("unheard")).run.ended_at else None, served.told)
    finally:
        os.kill(server, signal.SIGCONT)
    assert story.run.state is RunState.SUCCEEDED, served.told()
    assert (story.troubles, len(story.attempts)) == ((), 1), "nothing is recovered because the console was away"
    assert served.ended(identity)["type"] == "COMPLETED", served.told()


def test_the_minutes_flow_starts_a_dead_loop_again(served: Console) -> None:
    was = served.kill("monitor")
    identity = served.ask("monitor/local", {})
    served.living_again("monitor", was)
    assert served.ended(identity)["type"] == "COMPLETED", served.told()


def test_with_all_dead_the_next_command_starts_them(served: Console, ledger: Ledger) -> None:
    pids = {service: served.kill(service) for service in ("monitor", "runner", "server")}
    served.primus("train", STORY, "--name", "after", "--set", "steps=5")
    assert ledger.story("after").run.state is RunState.SUCCEEDED
    assert all(served.pid(service) not in (None, was) for service, was in pids.items())


def test_a_password_is_asked_for_everywhere(served: Console) -> None:
    open_ones = {service: served.pid(service) for service in SERVICES}
    said = served.up("--password")
    assert all(served.pid(service) not in (None, was) for service, was in open_ones.items()), "all of them know it now"
    mode = (served.home / "prefect-auth").stat().st_mode & 0o777
    assert mode == 0o600
    anonymous = {
        "/health": 200,
        "/deployments/filter": 401,
        "/flow_runs/filter": 401,
        "/admin/version": 401,
        "/events": 401,
    }
    for path, code in anonymous.items():
        answer = served.api.request(
            "GET" if path in ("/health", "/admin/version") else "POST", path, json={}, auth=None, headers={}
        )
        assert answer.status_code == code, path
    wrong = served.api.post("/deployments/filter", json={}, auth=("admin", "guessed"))
    assert wrong.status_code == 401
    assert served.deployment("train/local")["id"]
    done = served.primus("train", STORY, "--name", "locked", "--set", "steps=5")
    assert "locked: succeeded" in done.stderr
    assert "a driver of its own" not in done.stderr, "the runner has the password and drives it"
    assert said["api"].startswith("http://127.0.0.1:")
    secret = (served.home / "prefect-auth").read_text().strip()
    for path in served.home.rglob("*.log"):
        assert secret.partition(":")[2] not in path.read_text(errors="replace"), path


def test_down_leaves_no_process(served: Console) -> None:
    stopped = json.loads(served.primus("down", "--json").stdout)["stopped"]
    assert sorted(stopped) == sorted(SERVICES)
    until("every process of the home has ended", lambda: not served.processes(), lambda: str(served.processes()))
    assert json.loads(served.primus("down", "--json").stdout)["stopped"] == []


def test_a_full_disk_is_told_by_name_and_no_server_is_started_again_and_again(tmp_path: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount"]  # the disk is seen by these processes only
    command = [*alone, sys.executable, "-m", "tests.support.harness.full_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120.0), check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["servers while full"] == 0
    code, said = seen["up"]
    assert code == 3
    assert "disk full: 0.0 MB are free, 17 MB are needed" in said
    assert seen["lives again"], "once there is room, by itself"
    assert seen["down"] == 0
    assert seen["left"] == [], "also the server whose pid file was gone"
