"""Stories of the sweep on the embedded cluster: what nobody complained about is found by a pod on each node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.monitor import monitor
from flows.watching.sweep import Sweeper
from profiles.cluster import Brake, ClusterProfile, Monitor
from profiles.vocabulary import Mode
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.ledger.ledger import Ledger
from tasks.observe.nodes import stream_nodes
from tasks.settings import Settings, localised
from tests.support.faults.node_faults import local, loop, quarantined
from tests.support.running.waiting import until
from workflows import labels
from workflows.model.records import NodeRecord
from workflows.node_tests.sweep import SWEEP

pytestmark = pytest.mark.story
XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
WIDE = Brake(max_quarantined_share=1.0, max_evictions=100)


class Scene:
    """A home, its embedded cluster of six nodes, its ledger, and what stands for their kernels."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(brake=WIDE), home)
        self.cluster: Any = embedded_cluster(self.profile, home)
        self.ledger = Ledger(self.settings.ledger_url)
        storage = Path(self.profile.storage[0].source)
        self.storage, self.kernels = storage, storage / "kernel"
        self.kernels.mkdir(parents=True)

    def sweeping(self, seconds: float, share: float = 1.0) -> ClusterProfile:
        return self.profile.model_copy(update={"monitor": Monitor(sweep_seconds=seconds, sweep_share=share)})

    def says(self, node: str, *lines: str) -> None:
        """What the node's kernel said just now."""
        since_boot = time.clock_gettime(time.CLOCK_MONOTONIC)
        (self.kernels / f"{node}.log").write_text("".join(f"<4>[{since_boot:12.6f}] {line}\n" for line in lines))

    def looked_at(self) -> set[str]:
        return set(self.ledger.cursors("sweep/local/"))

    def words(self) -> dict[str, str]:
        nodes = [f"node-{number}" for number in range(6)]
        return {node: word for node, (word, _) in self.ledger.last_verdicts("local", SWEEP, nodes).items()}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()
    made.ledger.close()


def test_a_kernel_line_and_a_read_only_storage_take_their_nodes_out(scene: Scene) -> None:
    for number in range(6):
        scene.says(f"node-{number}", "usb 1-1: new high-speed USB device number 2 using xhci_hcd")
    scene.says("node-1", XID)
    (scene.kernels / "node-2.mounts").write_text(f"38 29 0:43 / {scene.storage} rw - nfs4 nas:/data ro\n")
    with loop(scene.settings, scene.cluster, scene.sweeping(2.0)) as lines:
        until("both are out", lambda: len(quarantined(scene.cluster)) == 2, lambda: str(lines))
    assert quarantined(scene.cluster) == {"node-1": "gpu_hardware", "node-2": "storage"}
    out = {item.node: item.why for item in scene.ledger.nodes("local")}
    assert XID in out["node-1"]
    assert out["node-2"].endswith("lies on nfs4, which is mounted read-only")
    assert scene.words() == {f"node-{number}": "fail" if number == 2 else "pass" for number in range(6)}
    assert scene.cluster.list("Workflow", {labels.PIPELINE: SWEEP}) == [] or len(scene.looked_at()) == 6
    taken = [line for line in lines if line.event == "quarantined"]
    assert sorted(line.node for line in taken) == ["node-1", "node-2"]
    scene.ledger.set_node(NodeRecord("local", "node-1", "schedulable", "looked at", time.time()))


def test_what_most_nodes_tell_of_blames_none(scene: Scene) -> None:
    for number in range(6):
        (scene.kernels / f"node-{number}.mounts").write_text(f"38 29 0:43 / {scene.storage} rw - nfs4 nas:/data ro\n")
    with loop(scene.settings, scene.cluster, scene.sweeping(2.0)) as lines:
        until("all are looked at", lambda: len(scene.looked_at()) == 6, lambda: str(lines))
        until("it is told", lambda: any(line.why.startswith("6 of 6 nodes") for line in lines), lambda: str(lines))
    assert quarantined(scene.cluster) == {}
    assert set(scene.words().values()) == {"fail"}


def test_a_share_at_a_time(scene: Scene) -> None:
    with loop(scene.settings, scene.cluster, scene.sweeping(1.0, share=0.3)) as lines:
        until("two are looked at", lambda: len(scene.looked_at()) == 2, lambda: str(lines))
        until("all are in the end", lambda: len(scene.looked_at()) == 6, lambda: str(lines))
    known = scene.ledger.cursor("sweep/local")
    assert known is not None
    assert known.position >= 3


@pytest.mark.parametrize(
    ("mode", "pause", "begun"), [(Mode.ACT, "", 1), (Mode.OBSERVE, "", 0), (Mode.ASK, "", 1), (Mode.ACT, "night", 0)]
)
def test_none_is_begun_in_mode_observe_or_while_paused(scene: Scene, mode: Mode, pause: str, begun: int) -> None:
    if pause:
        scene.ledger.pause(None, pause)
    sweeper = Sweeper(scene.sweeping(1e-6), mode, lambda _: None)
    with at_hand(scene.settings), using(scene.cluster):
        nodes = list(stream_nodes(scene.profile))
        assert sweeper.take(nodes) == [], "its turn comes"
        assert sweeper.take(nodes) == []
    assert len(scene.cluster.list("Workflow", {labels.PIPELINE: SWEEP})) == begun


def test_a_person_sweeps_a_node_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch, prefect_server: str) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(scene.settings.home))
    scene.says("node-3", XID)
    said = asyncio.run(monitor(nodes=["node-3", "node-4"]))
    assert said.endswith("swept node-3: pass, node-4: pass"), "the kernel's words are judged, not the node's checks"
    assert quarantined(scene.cluster) == {"node-3": "gpu_hardware"}
    with pytest.raises(ValueError, match="nodes: node-9: no such node of local is ready"):
        asyncio.run(monitor(nodes=["node-9"]))
