"""The node watch on real and played nodes, with the rights of the product's own accounts and no more.

A condition is put on a node as node-problem-detector does it: a strategic merge patch of its status. What the monitor
asked of the API server is read in the audit log.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.monitor import look
from flows.watching.nodes import NodeNotice
from profiles.cluster import Brake, ClusterProfile, Monitor, Pool
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import using
from tasks.context import at_hand
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.bed import samples
from tests.bed.api import Manifest
from tests.bed.commands import BedError, until
from tests.bed.options import REAL_LABEL
from tests.bed.up import Bed
from tests.support.builders.ledgers import a_person
from tests.support.faults.node_faults import entry, loop
from tests.support.running.waiting import patience
from workflows import labels
from workflows.platform import workspace

STRATEGIC = "application/strategic-merge-patch+json"
DEADLOCK = "KernelDeadlock"
REAL, PLAYED = ("node-0", "node-1", "node-2"), ("kwok-000", "kwok-001")
WIDE = Brake(max_quarantined_share=1.0, max_evictions=100)
LIMIT_S = patience(30.0)


def both_pools(brake: Brake = WIDE) -> ClusterProfile:
    """The bed with its played nodes as a second pool."""
    known = load_cluster("bed")
    played = Pool(name="played", hardware="cpu", nodes=len(PLAYED), labels={REAL_LABEL: "kwok"})
    return known.model_copy(update={"pools": (*known.pools, played), "brake": brake, "monitor": Monitor()})


@dataclass
class Scene:
    """The bed, and a home with a ledger for the monitor."""

    bed: Bed
    settings: Settings
    ledger: Ledger

    def cluster(self, account: str) -> KubernetesCluster:
        """The seam with the rights of `runner` or `monitor`."""
        environment = {"KUBECONFIG": str(self.bed.folder.account(account))}
        return KubernetesCluster(both_pools(), ApiServer(lambda: configuration_of("bed", environment)))

    def inject(self, node: str, status: str = "True") -> None:
        """As node-problem-detector tells a condition."""
        told = {"status": {"conditions": [entry(DEADLOCK, status)]}}
        self.bed.api.request("PATCH", f"/api/v1/nodes/{node}/status", told, STRATEGIC)

    def quarantined(self) -> dict[str, str]:
        """Nodes with our taint, and its value."""
        return {
            node["metadata"]["name"]: taint["value"]
            for node in self.bed.api.nodes()
            for taint in node["spec"].get("taints", [])
            if taint["key"] == labels.QUARANTINE_TAINT
        }

    def wait_for(self, wanted: set[str]) -> None:
        """Until exactly these nodes carry our taint."""
        try:
            until(f"{sorted(wanted)} in quarantine", lambda: set(self.quarantined()) == wanted, LIMIT_S, 0.05)
        except BedError as error:
            raise AssertionError(f"{error}: {self.quarantined()}; {self.ledger.actions('monitor/bed')}") from error

    def mend(self) -> None:
        """Nodes without conditions, taints and marks of these tests, and without a cordon that a story left."""
        for node in self.bed.api.nodes():
            name, taints = node["metadata"]["name"], node["spec"].get("taints", [])
            kept = [taint for taint in taints if taint["key"] != labels.QUARANTINE_TAINT]
            ours = dict.fromkeys((labels.VERDICT_EVIDENCE, labels.VERDICT_AT))
            about = {"labels": {labels.VERDICT: None}, "annotations": ours}
            self.bed.api.merge(
                f"/api/v1/nodes/{name}", {"metadata": about, "spec": {"taints": kept, "unschedulable": None}}
            )
            gone = {"status": {"conditions": [{"type": DEADLOCK, "$patch": "delete"}]}}
            self.bed.api.request("PATCH", f"/api/v1/nodes/{name}/status", gone, STRATEGIC)


@pytest.fixture
def scene(bed: Bed, tmp_path: Path) -> Iterator[Scene]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    settings.make_home()
    made = Scene(bed, settings, Ledger(settings.ledger_url))
    made.mend()
    yield made
    made.mend()
    made.ledger.close()


def watching(scene: Scene, account: str = "runner", brake: Brake = WIDE) -> AbstractContextManager[list[NodeNotice]]:
    """The loop over the bed, with the rights of an account."""
    return loop(scene.settings, scene.cluster(account), both_pools(brake))


class Audit:
    """What an account asked of the API server since this was made."""

    def __init__(self, bed: Bed, account: str) -> None:
        self._path = bed.folder.audit
        self._user = f"system:serviceaccount:primus-flows:{account}"
        self._begin = self._path.stat().st_size

    def asked(self) -> Counter[tuple[str, str, int]]:
        """How often which verb of which node (or collection) got which answer."""
        found: Counter[tuple[str, str, int]] = Counter()
        with self._path.open(encoding="utf-8") as file:
            file.seek(self._begin)
            for line in file:
                event: Manifest = json.loads(line)
                about: Manifest = event.get("objectRef") or {}
                mine = event["user"]["username"] == self._user and event["stage"] == "ResponseComplete"
                if mine and about.get("resource") == "nodes":
                    found[event["verb"], about.get("name", ""), event["responseStatus"]["code"]] += 1
        return found

    def patches(self) -> dict[str, int]:
        """Patches of each node, whatever was answered."""
        counts: Counter[str] = Counter()
        for (verb, name, _), count in self.asked().items():
            if verb == "patch":
                counts[name] += count
        return dict(counts)


def test_a_condition_takes_a_real_and_a_played_node_out_with_one_patch_each(scene: Scene) -> None:
    audit = Audit(scene.bed, workspace.RUNNER)
    with watching(scene) as lines:
        until("the watch", lambda: any(verb == "list" for verb, *_ in audit.asked()), LIMIT_S, 0.05)
        for node in ("node-2", "kwok-000"):
            scene.inject(node)
        scene.wait_for({"node-2", "kwok-000"})
        until("both told", lambda: sum(line.event == "quarantined" for line in lines) == 2, LIMIT_S, 0.02)
    assert scene.quarantined() == {"node-2": "node_lost", "kwok-000": "node_lost"}
    assert audit.patches() == {"node-2": 1, "kwok-000": 1}
    assert {verb for verb, *_ in audit.asked()} <= {"list", "watch", "patch"}, "nothing else is asked"
    marked = scene.bed.api.get("/api/v1/nodes/node-2")["metadata"]
    assert marked["labels"][labels.VERDICT] == "fail"
    assert json.loads(marked["annotations"][labels.VERDICT_EVIDENCE])["check"] == DEADLOCK
    assert {item.state for item in scene.ledger.actions("monitor/bed")} == {"done"}


def test_a_pod_stays_where_it_runs_and_a_new_one_keeps_away(scene: Scene) -> None:
    spec = samples.pod_spec(samples.BUSYBOX, ["sleep", "600"])
    stays, comes = (samples.pod(name, "default", spec, "node-1") for name in ("stays", "comes"))
    try:
        scene.bed.api.ensure(stays)
        samples.wait_phase(scene.bed, stays, "Running")
        scene.inject("node-1")
        with at_hand(scene.settings), using(scene.cluster("runner")):
            report = look(both_pools(), Mode.ACT)
        assert [line.node for line in report.lines if line.event == "quarantined"] == ["node-1"]
        scene.bed.api.ensure(comes)
        until("no room for it", lambda: untolerated(scene.bed.find(comes)), LIMIT_S, 0.2)
        assert (scene.bed.find(stays) or {})["status"]["phase"] == "Running"
    finally:
        for pod in (stays, comes):
            scene.bed.api.delete(pod)
        until("both gone", lambda: not (scene.bed.find(stays) or scene.bed.find(comes)), LIMIT_S, 0.2)


def untolerated(pod: Manifest | None) -> bool:
    """Whether the scheduler says that a taint keeps the pod away from the one node that it may go to."""
    conditions: list[Manifest] = (pod or {}).get("status", {}).get("conditions") or []
    return any("untolerated taint" in (item.get("message") or "") for item in conditions)


def test_the_brake_holds_and_a_person_lets_the_rest_go(scene: Scene) -> None:
    brake = Brake(max_quarantined_share=0.5, max_evictions=100)
    for node in REAL:
        scene.inject(node)
    with watching(scene, brake=brake) as lines:
        until("a question", lambda: any(line.event == "asked" for line in lines), LIMIT_S, 0.05)
        [question] = scene.ledger.approvals(waiting_only=True)
        assert "1 + 1 of 3 nodes in quarantine" in question.question
    assert len(scene.quarantined()) == 1
    scene.ledger.answer(question.id, True, a_person(), "the rack is dark", time.time())
    with at_hand(scene.settings), using(scene.cluster("runner")):
        look(both_pools(brake), Mode.ACT)
    assert set(scene.quarantined()) == set(REAL)


def test_whoever_may_only_look_sees_all_and_changes_nothing(scene: Scene) -> None:
    scene.inject("kwok-001")
    audit = Audit(scene.bed, workspace.MONITOR)
    with at_hand(scene.settings), using(scene.cluster("monitor")):
        observed = look(both_pools(), Mode.OBSERVE)
        assert [line.event for line in observed.lines] == ["recorded"]
        acted = look(both_pools(), Mode.ACT)
    assert observed.nodes == len(REAL) + len(PLAYED)
    assert [(line.event, line.node) for line in acted.lines] == [("failed", "kwok-001")]
    assert scene.quarantined() == {}
    assert {code for (verb, _, code) in audit.asked() if verb == "patch"} == {403}
