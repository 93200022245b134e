"""Gangs that stand together: a real Kueue with the Topology that the product makes, on real nodes in two racks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.decisions.explain.queue import Entry, entries
from flows.decisions.explain.reasons import Hold
from profiles.loading.load import load_cluster
from profiles.workspace import Flavor, Quota, WorkspaceProfile
from tasks.observe.run import read_queues
from tests.bed import samples, up
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.ground import BedCluster, BedGround
from tests.bed.layout import ROOT
from tests.bed.options import REAL_LABEL
from tests.bed.up import Bed
from tests.support.harness.stages import Stage, outcomes, stage, succeeded
from workflows import labels
from workflows.platform.workspace import KUEUE

pytestmark = pytest.mark.story
SPACE, TOPOLOGY = "bed-racked", "bed-racks"
WHOLE_NODE = "1200m"
"""More than half of a real node."""


@pytest.fixture(scope="module")
def racked(standing: None) -> Iterator[Bed]:
    """A workspace on the real nodes, which know their racks: node-0 and node-1 share one."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    flavor = Flavor(
        name="bed-racked",
        node_labels={REAL_LABEL: "real"},
        topology=TOPOLOGY,
        quotas={"cpu": Quota(nominal="16"), "memory": Quota(nominal="64Gi")},
    )
    profile = WorkspaceProfile(name=SPACE, queue=samples.QUEUE, flavors=(flavor,), pod_security="privileged")
    try:
        with samples.workspaces(bed, profile):
            yield bed
    finally:
        for kind, name in (("ResourceFlavor", flavor.name), ("Topology", TOPOLOGY)):
            bed.api.delete({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}})


@pytest.fixture
def bed(racked: Bed) -> Iterator[Bed]:
    """With an empty queue."""
    yield racked
    for name in samples.workloads(racked, SPACE):
        racked.api.delete(samples.jobset_named(name, SPACE))
    until("an empty queue", lambda: not samples.workloads(racked, SPACE), 60, 0.2)


def submit(bed: Bed, name: str, pods: int, level: str) -> Manifest:
    """A gang of whole nodes that wants to stand together."""
    spec = samples.pod_spec(samples.BUSYBOX, ["sleep", "600"], cpu=WHOLE_NODE, memory="64Mi")
    made = samples.jobset(name, SPACE, pods, spec, queued="normal")
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = level
    bed.api.ensure(made)
    return made


def racks_of(bed: Bed, names: set[str]) -> set[str]:
    """The racks of nodes."""
    return {node["metadata"]["labels"][labels.RACK] for node in bed.api.nodes() if node["metadata"]["name"] in names}


def nodes_of(bed: Bed, name: str) -> set[str]:
    """Where the pods of a gang are."""
    found = samples.pods(bed, SPACE, f"jobset.sigs.k8s.io/jobset-name={name}")
    return {pod["spec"].get("nodeName", "") for pod in found}


def in_line(bed: Bed) -> dict[str, Entry]:
    """What `primus queue` shows."""
    profile = load_cluster("bed", (f"namespace={SPACE}", f"queue={samples.QUEUE}"))
    cluster = BedCluster(profile, bed.options, bed.folder)
    return {entry.name: entry for entry in entries(read_queues(cluster, profile), 0.0)}


def test_a_gang_stands_in_one_rack(bed: Bed) -> None:
    submit(bed, "pair", 2, labels.RACK)
    until("both placed", lambda: len(nodes_of(bed, "pair") - {""}) == 2, samples.LIMIT_S, 0.2)
    assert nodes_of(bed, "pair") == {"node-0", "node-1"}
    assert len(racks_of(bed, nodes_of(bed, "pair"))) == 1


def test_a_gang_larger_than_every_rack_waits_and_is_told_why(bed: Bed) -> None:
    submit(bed, "too-wide", 3, labels.RACK)
    until("a reason", lambda: [one.hold for one in in_line(bed)["too-wide"].reasons] == [Hold.TOPOLOGY], 60, 0.5)
    [reason] = in_line(bed)["too-wide"].reasons
    [said] = [
        one["message"]
        for one in samples.workloads(bed, SPACE)["too-wide"]["status"]["conditions"]
        if one["type"] == "QuotaReserved"
    ]
    assert TOPOLOGY in said
    assert TOPOLOGY in reason.sentence, "what is shown is what the object says"
    assert nodes_of(bed, "too-wide") == set()
    bed.api.delete(samples.jobset_named("too-wide", SPACE))
    submit(bed, "wide", 3, labels.BLOCK)
    until("a block has room", lambda: len(nodes_of(bed, "wide") - {""}) == 3, samples.LIMIT_S, 0.2)
    assert len(racks_of(bed, nodes_of(bed, "wide"))) == 2


@pytest.fixture
def scene(prefect_server: str, bed: Bed) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made
    bed.settle()


def with_racks(scene: Stage) -> Path:
    """The cluster's profile as this workspace's people would write it."""
    profile: dict[str, Any] = yaml.safe_load((ROOT / "profiles" / "clusters" / "bed.yaml").read_text(encoding="utf-8"))
    profile |= {"namespace": SPACE, "queue": samples.QUEUE}
    profile["pools"][0]["topology"] = {"nodes_per_rack": 2, "racks_per_block": 2}
    made = scene.home / "racked.yaml"
    made.write_text(yaml.safe_dump(profile), encoding="utf-8")
    return made


def test_a_run_asks_for_a_rack_and_trains_in_it(scene: Stage, bed: Bed) -> None:
    scene.start(
        cluster=str(with_racks(scene)),
        overrides=("topology.level=rack", "topology.required=true", f"roles.trainer.resources.cpu={WHOLE_NODE}"),
    ).at_step(5)
    assert len(racks_of(bed, set(scene.story.attempts[0].nodes))) == 1
    [workload] = samples.workloads(bed, SPACE).values()
    placed = [
        one["topologyAssignment"]
        for one in workload["status"]["admission"]["podSetAssignments"]
        if one["name"] == scene.resolved.run.deciding_role.name
    ]
    assert placed, "Kueue placed it, not luck"
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
