"""Putting back what drills broke: nodes get their power and their place back, held ranks go on, files are as before.

Everything is safe to repeat, and looks for itself what there is to put back: whoever broke it may have died since. What
comes back without anybody's help (a killed process, a cluster that was away for seconds) has nothing here.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from profiles.cluster import ClusterProfile
from profiles.drill import KINDS, FaultSpec
from profiles.errors import NotFound, ProfileError
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import world
from tasks.embedded.api import EmbeddedCluster
from tasks.nodes.by_hand import give_back
from tasks.observe.nodes import cluster_node
from tasks.runs.faults import (
    DRILL_CORDON,
    FAULT_FILE,
    Scene,
    corrupted_file,
    in_mounts_of,
    rank_process,
    slowing_loop,
    words_of,
)
from tasks.runs.open import resolved_of
from workflows.model.nodes import people_of
from workflows.model.records import Actor, NodeRecord

ON_NODES = ("lose-node", "preempt-node")
"""Faults that leave a node worse than it was."""
STILL_CORDONED = "; it stays cordoned: somebody else did that"


def power_on(profile: ClusterProfile, node: str, why: str, by: Actor) -> str:
    """Put back what drills broke on a node: its power, its cordon, and what our flows set on it because of that.

    What a person took out of service, and what was taken out before its power was cut, stays out.

    Returns:
        What was done, in words.

    Raises:
        ProfileError: no embedded cluster: nothing of ours can cut the power of its nodes.
        NotFound: it has no such node.
    """
    if profile.engine != "embedded":
        raise ProfileError("NODE", f"drills cut no power on {profile.name}: turn {node} on where its power is kept")
    here = world()
    cluster = embedded_cluster(profile, here.settings.home)
    found = cluster_node(cluster, profile, node)
    if found is None:
        raise NotFound(f"{profile.name} has no node {node}: `primus nodes` lists those it has")
    people, held = people_of(profile.name), here.ledger.node(profile.name, node)
    cordons = here.ledger.standing_drains(profile.name, node, people)
    drilled = [action for action in cordons if action.why == DRILL_CORDON]
    cut_at = cluster.power_cut_at(node)
    since = min((at for at in (cut_at, *(action.planned_at for action in drilled)) if at is not None), default=None)
    if since is None and found.ready:
        return f"{node} has power, and nothing that a drill did stands on it"
    here.ledger.act(people, f"power-on {node}", why, by)
    said: list[str] = []
    with using(cluster):
        if cut_at is not None or not found.ready:
            cluster.restore_node(node)
            said.append(f"{node} has power again")
        out = held if held is not None and held.state == "quarantined" else None
        if out is not None and not _is_of_drill(out, since):
            return "; ".join([*said, f"it stays out of service: {out.told}"])
        if found.cordoned and drilled and len(drilled) == len(cordons):
            cluster.patch("Node", node, {"spec": {"unschedulable": False}})
        if drilled or out is not None:
            said.append(give_back(profile.name, node, why, by))
    return "; ".join(said) + (STILL_CORDONED if found.cordoned and len(drilled) != len(cordons) else "")


def _is_of_drill(held: NodeRecord, since: float | None) -> bool:
    """Whether a node is out because of what a drill did to it at `since`, and no person took it out by hand.

    A second of doubt: a file's time and the ledger's are of two clocks.
    """
    by_hand = held.by is not None and not held.incident
    return since is not None and not by_hand and held.since >= since - 1.0


def put_back(spec: FaultSpec, run: str, by: Actor, *, at_end: bool = True) -> str:
    """What this fault left behind of a run, its nodes and its files is as before; says what was done, "" where nothing.

    `at_end`: the drill that caused it is over. Then a corrupt checkpoint stays: it is there for the next resume.
    """
    here, work = world(), _PUT_BACK.get(spec.kind)
    story = here.ledger.story(run)
    resolved = resolved_of(story.run)
    if spec.kind in ON_NODES:
        return power_on(resolved.cluster, spec.node, f"the drill {spec} of {run} is over", by)
    if work is None or story.attempt is None or (at_end and spec.kind == "corrupt-checkpoint"):
        return ""
    cluster = embedded_cluster(resolved.cluster, here.settings.home)
    return work(spec, Scene(here.settings, here.ledger, cluster, resolved, story.attempt), cluster)


def put_back_all(run: str, by: Actor) -> list[str]:
    """What all drills of a run left behind is as before; what was done, a line each."""
    marks = [mark.detail for mark in world().ledger.story(run).marks if mark.kind == "fault"]
    said: list[str] = []
    for detail in dict.fromkeys(reversed(marks)):
        kind, _, target = detail.partition(":")
        if kind in KINDS:
            node = KINDS[kind].target == "node"
            rank = int(target or 0) if KINDS[kind].target == "rank" else None
            said.append(put_back(FaultSpec(kind, rank, target if node else ""), run, by, at_end=False))
    return [line for line in said if line]


def _release_rank(spec: FaultSpec, scene: Scene, _: EmbeddedCluster) -> str:
    """A rank that is stopped, or again and again, goes on."""
    try:
        pid = rank_process(scene, spec.rank or 0)
    except NotFound:
        return ""
    slowing, said = slowing_loop(pid, spec.factor).partition(";")[0], ""
    for other in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        words = words_of(other)
        if words[:2] == ["/bin/sh", "-c"] and slowing in words[2]:
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
            said = f"rank {spec.rank} runs at full speed again"
    if not said and not _is_stopped(pid):
        return ""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return said or f"rank {spec.rank} goes on"


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def _withdraw_request(spec: FaultSpec, scene: Scene, _: EmbeddedCluster) -> str:
    """Nobody suffers later what was asked for now."""
    path = scene.folder / FAULT_FILE
    try:
        asked = json.loads(path.read_text())
    except (OSError, ValueError):
        return ""
    if asked != {"rank": spec.rank, "fault": spec.kind.removesuffix("-rank")}:
        return ""
    path.unlink(missing_ok=True)
    return f"rank {spec.rank} is not asked for it any more"


def _free_disk(_: FaultSpec, scene: Scene, cluster: EmbeddedCluster) -> str:
    """The full file system over the checkpoints goes, in each pod that still has it."""
    target, freed = str(scene.checkpoints), False
    for pod in scene.pods(scene.resolved.run.deciding_role.name):
        for pid in cluster.pod_processes(pod):
            while _is_covered(pid, target):
                if in_mounts_of(pid, ["umount", target]).returncode != 0:
                    break
                freed = True
    return "the full file system over the checkpoints is gone" if freed else ""


def _is_covered(pid: int, target: str) -> bool:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            if left.split()[4:5] == [target] and right.startswith("tmpfs "):
                return True
    return False


def _mend_checkpoint(_: FaultSpec, scene: Scene, __: EmbeddedCluster) -> str:
    """The flipped byte as it was, where the file is still there and nobody wrote it anew."""
    journal = corrupted_file(scene)
    try:
        noted = json.loads(journal.read_text())
        with Path(noted["path"]).open("r+b") as handle:
            handle.seek(noted["offset"])
            if handle.read(1) == bytes([noted["byte"] ^ 0xFF]):
                handle.seek(noted["offset"])
                handle.write(bytes([noted["byte"]]))
    except (OSError, ValueError, KeyError):
        return ""
    journal.unlink(missing_ok=True)
    return f"{noted['path']} is as it was saved"


_PUT_BACK: dict[str, Callable[[FaultSpec, Scene, EmbeddedCluster], str]] = {
    "hang-rank": _release_rank,
    "slow-rank": _release_rank,
    "stop-rank": _release_rank,
    "exception-rank": _withdraw_request,
    "nan-rank": _withdraw_request,
    "oom-rank": _withdraw_request,
    "disk-full": _free_disk,
    "corrupt-checkpoint": _mend_checkpoint,
}
"""What each fault may leave behind on ranks and files; of nodes `power_on` puts it back."""
