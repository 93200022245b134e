"""Preflight on real nodes: pods measure, verdicts are written with the runner's own rights, holds come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from flows.testing.proofs import suite_of
from flows.testing.prove import prove
from profiles.admission import Admission
from profiles.cluster import Brake, ClusterProfile, Monitor
from profiles.loading.load import load_cluster, load_suite
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest, using
from tasks.context import at_hand
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tasks.ledger.ledger import Ledger
from tasks.nodes.by_hand import give_back
from tasks.nodes.holds import hold_of
from tasks.settings import Settings, localised, make_own_storage
from tests.bed.commands import until
from tests.bed.samples import LIMIT_S
from tests.bed.up import Bed
from workflows import labels

pytestmark = pytest.mark.story
NODES = {"node-0": "", "node-1": "", "node-2": ""}
BY_HAND = "bed-by-hand"
WIDE = Brake(max_quarantined_share=1.0, max_evictions=100)


def suite(folder: Path, least: float) -> str:
    """A copy in memory, as a deep test, and the any-machine suite's test between nodes."""
    check = {
        "name": "copy",
        "depth": "device",
        "probe": {"name": "memory-bandwidth", "arguments": {"bytes": "16777216"}},
        "quantity": "memory_bandwidth",
        "unit": "GB/s",
        "direction": "higher_is_better",
        "limits": {"absolute": [{"at_least": least, "source": "the story"}]},
        "deadline_seconds": 20,
        "needs": ["node"],
        "fault_class": "gpu_hardware",
        "what_to_do": "Look at the memory.",
    }
    path = folder / f"bed-{least:g}.yaml"
    path.write_text(yaml.safe_dump({"name": "bed-suite", "checks": [check]}))
    return str(path)


def volume_suite(folder: Path) -> str:
    """What the shipped suite asks of volumes, and nothing else."""
    shipped = load_suite("storage").model_dump(mode="json", exclude_unset=True)
    checks = [check for check in shipped["checks"] if check["name"].startswith("volume-")]
    assert len(checks) == 3
    path = folder / "bed-volumes.yaml"
    path.write_text(yaml.safe_dump({"name": "bed-volumes", "checks": checks}))
    return str(path)


def volumes(folder: Path, count: int) -> list[Manifest]:
    """A storage class without a provisioner, and volumes of it that somebody made by hand: folders of this machine."""
    made: list[Manifest] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": BY_HAND},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ]
    for number in range(count):
        where = folder / f"volume-{number}"
        where.mkdir()
        where.chmod(0o777)
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": BY_HAND,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(where), "type": "Directory"},
        }
        about = {"name": f"{BY_HAND}-{number}"}
        made.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec})
    return made


class Scene:
    """The bed with the rights of the runner, and a home with a ledger."""

    def __init__(self, bed: Bed, home: Path) -> None:
        self.bed, self.home = bed, home
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.ledger = Ledger(self.settings.ledger_url)

    def profile(self, path: str, storage_class: str = "") -> ClusterProfile:
        """The bed's, with a suite."""
        known = localised(load_cluster("bed"), self.home)
        make_own_storage(known, self.home)
        admission = Admission(suite=path, storage_class=storage_class)
        changes = {"admission": admission, "brake": WIDE, "monitor": Monitor()}
        return known.model_copy(update=changes)

    def proven(self, path: str, *depths: str, storage_class: str = "") -> dict[str, VerdictWord]:
        """What is said of the three nodes."""
        profile = self.profile(path, storage_class)
        pools = dict.fromkeys(NODES, profile.pools[0].name)
        with at_hand(self.settings), using(self.cluster(profile)):
            tests = prove(profile, suite_of(profile), depths, pools, print)  # type: ignore[arg-type]
        return {node: word for test in tests for node, word in test.words.items()}

    def cluster(self, profile: ClusterProfile) -> KubernetesCluster:
        """The seam with the runner's account."""
        environment = {"KUBECONFIG": str(self.bed.folder.account("runner"))}
        return KubernetesCluster(profile, ApiServer(lambda: configuration_of("bed", environment)))

    def why(self) -> list[str]:
        """What the newest verdict about each node gives as its reasons."""
        found = {node: self.ledger.verdicts("bed", node) for node in NODES}
        return [f"{node}: {one.reasons}" for node, told in found.items() for one in told[-1:]]

    def told(self, node: str) -> tuple[str, str, set[str], list[str]]:
        """Label, status of our condition, types of all others, keys of our taints."""
        found = next(item for item in self.bed.api.nodes() if item["metadata"]["name"] == node)
        conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
        ours = conditions.pop(labels.VERDICT_CONDITION, "")
        taints = [item["key"] for item in found["spec"].get("taints", []) if item["key"].startswith(labels.PREFIX)]
        return found["metadata"]["labels"].get(labels.VERDICT, ""), ours, set(conditions), taints


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, as on a cluster: a ledger that begins anew would give a test the name of one whose pods still go."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def scene(bed: Bed, home: Path) -> Iterator[Scene]:
    made = Scene(bed, home)
    yield made
    profile = made.profile(suite(home, 0.001))
    with at_hand(made.settings), using(made.cluster(profile)):
        for node in NODES:
            give_back("bed", node, "the story is over")
    made.ledger.close()


def test_good_nodes_tell_so_and_nobody_holds_them_afterwards(scene: Scene) -> None:
    _, _, before, _ = scene.told("node-0")
    words = scene.proven(suite(scene.home, 0.001), "device")
    assert words == dict.fromkeys(NODES, VerdictWord.PASS), scene.why()
    for node in NODES:
        label, condition, others, taints = scene.told(node)
        assert (label, condition, taints) == ("pass", "True", [])
        assert others >= before, "the kubelet's own conditions stand"
    assert not any(hold_of(node)[0] for node in scene.bed.api.nodes())


def test_what_fails_goes_out_by_taint_label_and_condition(scene: Scene) -> None:
    words = scene.proven(suite(scene.home, 1e6), "device")
    assert words == dict.fromkeys(NODES, VerdictWord.FAIL), scene.why()
    for node in NODES:
        label, condition, _, taints = scene.told(node)
        assert (label, condition, taints) == ("fail", "False", [labels.QUARANTINE_TAINT])
    profile = scene.profile(suite(scene.home, 0.001))
    with at_hand(scene.settings), using(scene.cluster(profile)):
        give_back("bed", "node-0", "mended")
    assert scene.told("node-0")[:2] == ("", "")


def test_nodes_measure_with_each_other(scene: Scene) -> None:
    assert scene.proven("any-machine", "fabric") == dict.fromkeys(NODES, VerdictWord.PASS), scene.why()


def test_each_node_gets_a_volume_writes_it_and_leaves_none(scene: Scene) -> None:
    made = volumes(scene.home, len(NODES))
    scene.bed.api.ensure_all(made)
    try:
        words = scene.proven(volume_suite(scene.home), "storage", storage_class=BY_HAND)
        assert words == dict.fromkeys(NODES, VerdictWord.PASS), scene.why()
        phases = {one["status"]["phase"] for one in scene.bed.api.get("/api/v1/persistentvolumes")["items"]}
        assert phases == {"Released"}, "each was claimed, and given back"
        assert scene.bed.api.get("/api/v1/persistentvolumeclaims")["items"] == []
    finally:
        for one in made:
            scene.bed.api.delete(one)


def test_volumes_that_nobody_provides_are_no_fault_of_nodes(scene: Scene) -> None:
    made = volumes(scene.home, 0)
    scene.bed.api.ensure_all(made)
    path = Path(volume_suite(scene.home))
    path.write_text(path.read_text().replace("deadline_seconds: 120", "deadline_seconds: 10"))
    try:
        words = scene.proven(str(path), "storage", storage_class=BY_HAND)
        assert words == dict.fromkeys(NODES, VerdictWord.UNKNOWN), scene.why()
        claims = "/api/v1/persistentvolumeclaims"  # those that were never bound go with their pods; nobody waits
        until("no claim is left", lambda: scene.bed.api.get(claims)["items"] == [], LIMIT_S, 0.2)
    finally:
        for one in made:
            scene.bed.api.delete(one)
