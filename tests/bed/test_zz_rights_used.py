"""Each right that the product grants was used by the product, as the audit log of the bed shows.

It is named so that it runs last: most of what it reads was written by the stories. On a bed that has just been started
and run nothing else it fails. What people ask for (`primus why, queue, status, logs, doctor`, an import, kubectl) is
asked here, with the accounts' own kubeconfigs, while a gang waits for room and while it trains.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from profiles.vocabulary import RunState
from tasks.observe.objects import pool_selector
from tests.bed import up
from tests.bed.audit import Use, used
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.up import Bed
from tests.support.harness.stages import Stage, stage
from workflows import labels
from workflows.platform import workspace
from workflows.platform.pod_shapes import NAMESPACE

pytestmark = [pytest.mark.story, pytest.mark.whole]
GRANTED = {
    workspace.RUNNER: (*workspace.RUNNER_RIGHTS, *workspace.NODE_RIGHTS),
    workspace.PIPELINES: workspace.PIPELINE_RIGHTS,
    workspace.MONITOR: (*workspace.READER_RIGHTS, *workspace.NODE_READER_RIGHTS),
}
HOMES = {workspace.RUNNER: NAMESPACE, workspace.PIPELINES: "", workspace.MONITOR: NAMESPACE}
GIVEN_TO_ALL = ("authorization.k8s.io", "authentication.k8s.io")
"""Every account may ask what it may do."""
CLAIM = "bed-rights-claim"
KINDS = ("workflows", "jobsets", "workloads", "localqueues", "pods", "events", "nodes")
"""What whoever looks may get, list and watch."""


class Person:
    """Somebody with a kubeconfig of one of the accounts."""

    def __init__(self, scene: Stage, bed: Bed, account: str) -> None:
        self._kubectl = bed.cache.binaries / "kubectl"
        home = {"PRIMUS_HOME": str(scene.home), "KUBECONFIG": str(bed.folder.account(account))}
        self._environment = {**os.environ, **home}

    def primus(self, *words: str) -> str:
        """What it printed; whether the answer is good or bad is not the question."""
        return self._run(sys.executable, "-m", "deployments.cli.main", *words)

    def kubectl(self, *words: str) -> str:
        """What it printed."""
        return self._run(str(self._kubectl), *words)

    def look(self, kind: str) -> None:
        """One of them, all of them, and what happens to them for a second."""
        names = self.kubectl("get", kind, "-o", "name").split()
        assert names, f"there are no {kind}"
        assert self.kubectl("get", names[0], "-o", "name").split() == names[:1]
        self.kubectl("get", kind, "-o", "name", "--watch", "--request-timeout=1s")

    def _run(self, *words: str) -> str:
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        assert "Traceback" not in done.stderr, (words, done.stderr[-2000:])
        return done.stdout


@pytest.fixture(scope="module")
def looked_at(prefect_server: str, standing: None) -> Iterator[Bed]:
    """A run that everybody looks at: first it finds no room, then it trains until somebody stops it."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    with stage(prefect_server, BedGround()) as scene:
        scene.open(overrides=("steps=6000", "recovery.pending_timeout_seconds=300"))
        nodes = [item["metadata"]["name"] for item in scene.cluster.list("Node", pool_selector(scene.resolved))[1:]]
        cordon(scene, nodes, True)
        scene.drive()
        until("a pod without a node", lambda: waits(scene), scene.ground.deadline_seconds, 0.2)
        people = {account: Person(scene, bed, account) for account in ("runner", "monitor")}
        for person in people.values():
            assert "story" in person.primus("why", "story")
        cordon(scene, nodes, False)
        scene.at_step(3)
        everybody_asks(scene, people["runner"], people["monitor"])
        people["runner"].primus("stop", "story")
        assert scene.end().run.state is RunState.STOPPED, scene.tell()
        yield bed


def cordon(scene: Stage, nodes: list[str], closed: bool) -> None:
    """As a person does it."""
    for node in nodes:
        scene.cluster.patch("Node", node, {"spec": {"unschedulable": closed or None}})


def waits(scene: Stage) -> bool:
    """Whether a pod of the workspace waits for a node."""
    pods: list[dict[str, Any]] = scene.cluster.list("Pod", {})
    return any(pod["status"].get("phase") == "Pending" and "nodeName" not in pod["spec"] for pod in pods)


def everybody_asks(scene: Stage, runner: Person, monitor: Person) -> None:
    """Every question that the command line has, and kubectl's for whoever looks."""
    profile = scene.home / "claims.yaml"
    profile.write_text(with_a_claim())
    for person in (runner, monitor):
        assert "running" in person.primus("status", "story", "--json")
        assert person.primus("queue", "--cluster", "bed")
        assert person.primus("logs", "story")
    assert CLAIM in runner.primus("doctor", "--cluster", str(profile))
    runner.primus("clusters", "import", "--context", "bed", "--namespace", "training")
    for kind in KINDS:
        monitor.look(kind)
    monitor.kubectl("logs", "--selector", f"{labels.RUN}=story", "--tail=1", "--all-containers")


def with_a_claim() -> str:
    """The bed's profile with a volume that is not there: whoever checks it asks for it by name."""
    shared = {"kind": "claim", "source": CLAIM, "mount_path": "/claim"}
    return yaml.safe_dump({"extends": "bed", "name": "claims", "storage": [shared]})


@pytest.mark.parametrize("account", GRANTED)
def test_every_right_was_used(looked_at: Bed, account: str) -> None:
    seen = used(looked_at, HOMES)
    granted = {
        Use(account, group, resource, verb)
        for group, resources, verbs in GRANTED[account]
        for resource in resources
        for verb in verbs
    }
    unused = granted - seen
    assert not unused, "take them out of workflows/platform/workspace.py, or add the test that needs them"
    strange = {one for one in seen if one.account == account and one.group not in GIVEN_TO_ALL} - granted
    assert not strange, "the log shows uses that nobody granted: it is read wrongly"


def test_what_is_not_in_the_log_is_told(looked_at: Bed) -> None:
    """The test above can fail: a right that nobody uses is not among those used."""
    seen = used(looked_at, HOMES)
    assert Use(workspace.RUNNER, "", "pods", "get") in seen
    assert Use(workspace.RUNNER, "", "secrets", "list") not in seen, "refused, and asked by hand"
    assert Use(workspace.MONITOR, "", "nodes", "patch") not in seen, "refused"
