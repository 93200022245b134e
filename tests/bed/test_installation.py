"""The whole product in the cluster, from one `kubectl apply -k`: runs are asked for through Prefect's API and train.

Runners are replaced and killed meanwhile, and in the end the product is deleted under a run that trains.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from profiles.vocabulary import FaultClass, KnownBy
from tests.bed import installed, up
from tests.bed.commands import BedError, until
from tests.bed.ground import BedGround
from tests.bed.installed import DATABASE, MONITORS, NODE, RUNNERS, SERVER, Installed
from tests.bed.untouched import gang, steps_of
from tests.support.fakes.network_policies import traffic
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows import labels
from workflows.model.records import Actor
from workflows.platform.pod_shapes import NAMESPACE
from workflows.platform.workspace import WORKSPACE

pytestmark = pytest.mark.story
PROFILE = "/etc/primus/story.yaml"
STEPS = 1600
"""A minute and a half: a rollout and a restart fit in."""


@pytest.fixture(scope="module")
def product(standing: None) -> Iterator[Installed]:
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    home = Path(tempfile.mkdtemp(prefix="primus-"))
    try:
        with installed.installed(bed, home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def asked(product: Installed, name: str, *overrides: str) -> Generator[tuple[Stage, str]]:
    """A run that was asked for through the server's API, when its first steps are done; and its flow run."""
    scene = Stage(product.home, product.api_url, BedGround())
    scene.ledger.close()
    scene.ledger = product.ledger()
    with closing(product.asking()) as asking:
        flow_run = asking.asked(name, profile=PROFILE, name=name, overrides=overrides)
        until("the run is opened", lambda: scene.ledger.run(name) is not None, 60.0, 0.1)
    scene.run = name
    resolved = scene.resolved  # the ledger may be gone in the end
    try:
        yield scene.at_step(10), flow_run
    finally:
        scene.ground.strike(resolved, product.home)
        scene.ledger.close()


def driven_by(scene: Stage, host: str, after: int = 0) -> int:
    """Wait until a process of this pod drives, later than fencing number `after`; its own number."""
    found: list[int] = []

    def theirs() -> bool:
        lease = scene.ledger.lease(scene.run)
        found[:] = [lease.fencing] if lease is not None and lease.driver.host == host else []
        return bool(found) and found[0] > after

    until(f"a driver in {host}", theirs, 60.0, 0.1)
    return found[0]


def upgraded(product: Installed, scene: Stage) -> int:
    """Replace the runner; the number of the driver in the new pod."""
    before, old = scene.ledger.lease(scene.run), product.pod(RUNNERS)["metadata"]["name"]
    assert before is not None
    assert before.driver.host == old
    product.restart_runner()
    new = product.pod(RUNNERS)["metadata"]["name"]
    assert new != old
    return driven_by(scene, new, before.fencing)


def test_all_of_it_is_ready_as_it_is_shipped(product: Installed) -> None:
    for part in (SERVER, RUNNERS, MONITORS, DATABASE):
        pod = product.pod(part)
        assert pod["spec"]["nodeName"] == NODE
        assert {one["ready"] for one in pod["status"]["containerStatuses"]} == {True}
        for one in pod["spec"]["containers"]:
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert httpx.get(f"{product.api_url}/flows/count").status_code in (401, 405), "nobody gets in without the password"
    figures = httpx.get(f"{product.page_url}/metrics").text
    assert re.search(r"^primus_runner_waiting 0$", figures, re.M), figures
    assert httpx.get(f"{product.api_url}/metrics", auth=("admin", product.password)).status_code == 200


def test_a_run_through_the_api_does_not_notice_an_upgrade_and_a_kill(product: Installed) -> None:
    with asked(product, "upgraded", f"steps={STEPS}") as (scene, flow_run):
        before = gang(scene)
        assert len(before) >= 2
        only_what_must_be_is_let_in(product)
        number = upgraded(product, scene)
        product.kill_runner()
        driven_by(scene, product.pod(RUNNERS)["metadata"]["name"], number)
        assert steps_of(scene)[-1] < STEPS, "it was over before all of that was"
        assert gang(scene) == before
        story = scene.end()
        assert succeeded(story), scene.tell()
        assert (story.troubles, outcomes(story)) == ((), ["succeeded"]), scene.tell()
        assert [(act.what, act.by) for act in story.acts] == [("train", Actor("prefect", KnownBy.SERVER_PASSWORD))]
        assert steps_of(scene) == list(range(1, STEPS + 1)), "each step once, in order"
        with closing(product.asking()) as asking:
            assert asking.ended(flow_run)["type"] == "COMPLETED"
        scene.no_orphans()


def test_the_next_runner_recovers_and_without_any_training_goes_on(product: Installed) -> None:
    with asked(product, "recovered", f"steps={STEPS // 2}", "recovery.in_place_restarts=0") as (scene, _):
        upgraded(product, scene)
        scene.fault("kill-rank:1")
        story = scene.until(
            lambda story: len(story.attempts) == 2 and story.attempts[1].first_step is not None, "attempt 2"
        )
        assert incident(story).fault_class is FaultClass.PROCESS_KILLED, scene.tell()
        cluster, folder = scene.cluster, scene.folder  # from here on the ledger is away with everything else
        with scene.held_at(STEPS // 2 - 20):  # however long all else takes to go, the training has not ended
            before = second_gang(cluster)
            product.delete()
            with pytest.raises(BedError, match="not found"):
                product.kubectl("get", "namespace", NAMESPACE)
            assert second_gang(cluster) == before, "nobody touched what trains"
        until("the gang's own end", lambda: completed(cluster), scene.ground.deadline_seconds, 0.5)
        [log] = folder.glob("a2/*/rank-0.log")
        assert "weights sha256 " in log.read_text(errors="replace"), "it trained to its end"


def only_what_must_be_is_let_in(product: Installed) -> None:
    """By the policies that the API server holds, and the labels that all pods have now; nobody enforces them here."""
    api = product.bed.api
    policies = [
        one | {"kind": "NetworkPolicy"} for one in api.get("/apis/networking.k8s.io/v1/networkpolicies")["items"]
    ]
    spaces = [one | {"kind": "Namespace"} for one in api.get("/api/v1/namespaces")["items"]]
    here = traffic([*policies, *spaces])
    pods = api.get("/api/v1/pods")["items"]
    teams = {name for name, marks in here.namespaces.items() if WORKSPACE in marks}
    theirs = [pod for pod in pods if pod["metadata"]["namespace"] in teams]
    ranks = [pod for pod in theirs if pod["metadata"]["labels"].get(labels.ROLE) == "trainer"]
    [boss] = [pod for pod in theirs if pod["metadata"]["labels"].get(labels.ROLE) == labels.COORDINATOR_ROLE]
    assert len(ranks) >= 2
    parts = {name: product.pod(name) for name in (SERVER, RUNNERS, MONITORS, DATABASE)}
    ports = {installed.SERVER_PORT, installed.PAGE_PORT, 5432}
    assert [
        (source["metadata"]["name"], name, port)
        for source in theirs
        for name, target in parts.items()
        for port in ports
        if here.admits(source, target, port)
    ] == []
    assert all(here.admits(rank, boss, labels.COORDINATOR_PORT) for rank in ranks)
    assert here.admits(parts[RUNNERS], parts[SERVER], installed.SERVER_PORT)
    assert here.admits(parts[MONITORS], parts[SERVER], installed.SERVER_PORT)


def second_gang(cluster: Any) -> dict[str, tuple[str, int]]:
    """Uid and restarts of each pod of attempt 2."""
    pods = cluster.list("Pod", {labels.RUN: "recovered", labels.ATTEMPT: "2"})
    found = {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], installed.restarts(pod))
        for pod in pods
        if labels.ROLE in pod["metadata"]["labels"]
    }
    assert len(found) >= 2, pods
    return found


def completed(cluster: Any) -> bool:
    """Whether the controller says that the gang of attempt 2 reached its goal."""
    conditions = cluster.get("JobSet", "recovered-a2")["status"].get("conditions", [])
    return any(one["type"] == "Completed" and one["status"] == "True" for one in conditions)
