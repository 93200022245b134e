"""Where drivers live and where the ledger lies: PostgreSQL in place of a file, a pod for each run by a work pool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from deployments.processes.offers import offers_of
from profiles.loading.load import load_cluster
from profiles.vocabulary import FINISHED
from tasks.ledger.ledger import Ledger
from tasks.prefect.flow_runs import flow_runs
from tests.support.harness.runners import LIMIT_S, Asking, posted, runner, train_offer, worker_pod
from tests.support.harness.stages import PROFILE, Stage, outcomes, succeeded
from tests.support.running.waiting import until
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.story
pytest_plugins = ["tests.support.servers.ledger_fixtures"]
POOL = Path(__file__).parents[3] / "deployments" / "kubernetes" / "work-pool.json"


@pytest.fixture
def name() -> str:
    return f"story-{uuid4().hex[:8]}"


def test_runners_come_and_go_on_postgres(scene: Stage, postgres: PostgresServer, name: str) -> None:
    url = postgres.url(postgres.new_database())
    scene.ledger.close()
    scene.ledger = Ledger(url)
    with runner(scene.home, scene.api_url, PRIMUS_LEDGER_URL=url) as served:
        served.serving()
        with closing(Asking(scene.api_url, "train/local")) as asking:
            flow_run = asking.asked(name, profile=str(PROFILE), name=name, overrides=["steps=250"])
            until("the run is opened", lambda: scene.ledger.run(name), served.told)
            scene.run = name
            scene.at_step(5)
            assert served.terminate() == 0
            assert scene.ledger.lease(name) is None, "it was given back"
            served.serving()
            until("the new runner drives", lambda: scene.ledger.lease(name), served.told)
            served.kill()
            served.serving()
            story = scene.end()
            assert succeeded(story), scene.tell()
            assert (story.troubles, outcomes(story)) == ((), ["succeeded"]), scene.tell()
            assert asking.ended(flow_run)["type"] == "COMPLETED"
    assert not (scene.home / "ledger.sqlite").exists() or not Ledger(f"sqlite:///{scene.home}/ledger.sqlite").runs()


@pytest.fixture
def pool(prefect_server: str) -> Iterator[tuple[httpx.Client, str]]:
    """The shipped work pool on a real server; its name."""
    called = f"pool-{uuid4().hex[:8]}"
    with httpx.Client(base_url=prefect_server, timeout=LIMIT_S) as client:
        wanted = {"name": called, "type": "kubernetes", "base_job_template": json.loads(POOL.read_text())}
        posted(client, "/work_pools/", wanted).raise_for_status()
        yield client, called


def test_a_server_takes_the_work_pool_and_checks_what_is_set(pool: tuple[httpx.Client, str]) -> None:
    client, called = pool
    kept = client.get(f"/work_pools/{called}").raise_for_status().json()
    assert kept["base_job_template"] == json.loads(POOL.read_text())
    with flow_runs() as server:
        server.serve([train_offer("copied")])
    served = client.get("/deployments/name/train/copied").raise_for_status().json()
    fields = ("flow_id", "entrypoint", "path", "parameter_openapi_schema", "enforce_parameter_schema")
    wanted = {**{name: served[name] for name in fields}, "name": called, "work_pool_name": called}
    fine = {**wanted, "job_variables": {"image": "registry.example.org/control:1", "memory_limit": "4Gi"}}
    made = posted(client, "/deployments/", fine)
    assert made.status_code in (200, 201), made.text
    bad = {"parameters": {"request": {"mode": "bold"}}}
    asked = posted(client, f"/deployments/{made.json()['id']}/create_flow_run", bad)
    assert (asked.status_code, "request.mode" in asked.json()["detail"]) == (409, True), "the form came along"
    wrong = {**wanted, "name": f"{called}-2", "job_variables": {"finished_job_ttl": "soon"}}
    refused = posted(client, "/deployments/", wrong)
    assert refused.status_code == 422, refused.text
    assert "finished_job_ttl" in refused.text


def test_what_a_worker_starts_drives_the_run_of_its_flow_run(scene: Stage, name: str) -> None:
    with flow_runs() as server:
        server.serve([train_offer("pooled")])
    with closing(Asking(scene.api_url, "train/pooled")) as asking:
        flow_run = asking.asked(name, profile=str(PROFILE), name=name, overrides=["steps=5"])
        asking.claimed(flow_run)  # as a worker does it before it makes a Job
        with worker_pod(scene.home, scene.api_url, flow_run) as pod:
            assert pod.wait(LIMIT_S) == 0, (scene.home / "worker.log").read_text()
        assert asking.flow_run(flow_run)["state"]["type"] == "COMPLETED"
    scene.run = name
    assert succeeded(scene.story), scene.tell()


def test_what_a_worker_starts_for_another_flow_is_run_as_it_is(scene: Stage) -> None:
    """A pool has one command for all deployments; a flow run says which flow it is of."""
    failover = next(one for one in offers_of(load_cluster("local")) if one.flow == "failover")
    with flow_runs() as server:
        [deployment] = server.serve([replace(failover, name="pooled")])
        with httpx.Client(base_url=scene.api_url, timeout=LIMIT_S) as client:
            asked = posted(client, f"/deployments/{deployment}/create_flow_run", {"parameters": {"run": "nobody"}})
            flow_run = asked.raise_for_status().json()["id"]
            assert server.claim(flow_run)
        with worker_pod(scene.home, scene.api_url, flow_run) as pod:
            assert pod.wait(LIMIT_S) == 0, (scene.home / "worker.log").read_text()
        state = server.read(flow_run).state
    assert state is not None
    assert state.name == "Failed"
    assert "the ledger knows no run nobody" in str(state.message)


def test_nothing_is_driven_where_no_worker_says_what(scene: Stage) -> None:
    with worker_pod(scene.home, scene.api_url, "") as pod:
        assert pod.wait(LIMIT_S) == 2


def test_a_worker_s_pod_that_is_drained_lets_go_and_the_runner_goes_on(scene: Stage, name: str) -> None:
    with flow_runs() as server:
        server.serve([train_offer("pooled")])
    with closing(Asking(scene.api_url, "train/pooled")) as asking:
        flow_run = asking.asked(name, profile=str(PROFILE), name=name, overrides=["steps=300"])
        asking.claimed(flow_run)
        with worker_pod(scene.home, scene.api_url, flow_run) as pod:
            until("the run is opened", lambda: scene.ledger.run(name))
            scene.run = name
            scene.at_step(5)
            pod.terminate()
            pod.wait(LIMIT_S)
        assert scene.ledger.lease(name) is None, "it was given back"
    assert scene.story.run.state not in FINISHED, scene.tell()
    with runner(scene.home, scene.api_url) as served:
        served.serving()
        story = scene.end()
    assert succeeded(story), scene.tell()
    assert (story.troubles, outcomes(story)) == ((), ["succeeded"]), scene.tell()
