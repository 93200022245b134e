"""Checks of the node daemon beyond its GPUs: whether other nodes can be reached, and whether storage can be had.

`ping` tests each announced address of other nodes, with few processes at the same time and a share of the nodes in each
run, so that the fleet's packets grow with its size and not with its square. A bad node is tested again. `pvc` makes a
small claim, which must be bound, and deletes it.
"""

from __future__ import annotations

import re
import socket
import time
import zlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

from workflows.programs.health.gpu_checks import Tools
from workflows.programs.health.peers import Peer
from workflows.programs.health.results import TAGS, DeviceResult, Result
from workflows.programs.probes.call import Call
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, worst
from workflows.programs.runtime.bounded import side_by_side
from workflows.programs.runtime.kubernetes_api import Api, ApiError

AT_ONCE = 16
"""Processes at the same time."""
PACKETS = 10
LOST_PERCENT = 10.0
"""More is bad: one of ten packets may be lost to a neighbour's address that was not known yet."""
PING_SECONDS = 8.0
"""Ten packets a fifth of a second apart, and 2 s for the last one; more is a hung program."""

NOWHERE = "-"
"""Address of a node that was named and has no daemon."""

BOUND_SECONDS = 90.0
"""Autopilot waits 30 s, and 60 s more while the claim is pending."""
LOOK_SECONDS = 0.5
CLASS = "PVC_TEST_STORAGE_CLASS"


@dataclass(frozen=True)
class PingTarget:
    """One address of another node."""

    node: str
    address: str
    interface: str


def ping(tools: Tools, own: str, targets: Sequence[PingTarget], announced: Sequence[str] = ()) -> Result:
    """Whether each target answers; `announced` are the interfaces that this node should have itself."""
    here = {name for _, name in socket.if_nameindex()}
    absent = [name for name in announced if name not in here]
    if absent:
        return Result("ping", UNKNOWN, f"IFACES count inconsistent on {own}: {', '.join(absent)} announced, not there")
    if not targets:
        return Result("ping", UNKNOWN, "No nodes found.")
    first = _asked(tools, targets)
    again = [target for target, (verdict, _) in zip(targets, first) if verdict != PASS]  # noqa: B905 - 3.10
    second = dict(zip(again, _asked(tools, again)))  # noqa: B905 - 3.10
    found = [(target, second.get(target, one)) for target, one in zip(targets, first)]  # noqa: B905 - 3.10
    verdict = worst([one for _, (one, _) in found])
    lines = [f"Node {target.node} {target.address} {target.interface} {_digit(one)}" for target, (one, _) in found]
    reasons = [f"{target.node} {target.address}: {why}" for target, (_, why) in found if why]
    if verdict == PASS:
        lines.append(f"{TAGS['ping']} all nodes reachable. success")
    elif verdict == FAIL:
        lines.append(f"{TAGS['ping']} At least one node unreachable. FAIL")
    return Result("ping", verdict, "; ".join(reasons[:8]), _devices(found), tuple(lines))


def _digit(verdict: str) -> str:
    return {PASS: "0", FAIL: "1"}.get(verdict, "?")


def _devices(found: Sequence[Tuple[PingTarget, Tuple[str, str]]]) -> Tuple[DeviceResult, ...]:
    """Each node with the worst of its addresses."""
    verdicts: Dict[str, List[str]] = {}
    for target, (verdict, _) in found:
        verdicts.setdefault(target.node, []).append(verdict)
    return tuple(DeviceResult(node, worst(words)) for node, words in verdicts.items())


def _asked(tools: Tools, targets: Sequence[PingTarget]) -> List[Tuple[str, str]]:
    """(verdict, why) of each."""
    return side_by_side([_one(tools, target) for target in targets], AT_ONCE)


def _one(tools: Tools, target: PingTarget) -> Callable[[], Tuple[str, str]]:
    command = ("ping", "-n", "-q", "-c", str(PACKETS), "-i", "0.2", "-W", "2", target.address)
    call = Call(0, command=command, parser="ping", deadline_seconds=PING_SECONDS)

    def ask() -> Tuple[str, str]:
        if target.address == NOWHERE:
            return UNKNOWN, "no running daemon of this node is known"
        parsed = tools.call(call)
        losses = [one.value for one in parsed.readings if one.quantity == "packet_loss" and one.value is not None]
        if not losses:
            return UNKNOWN, parsed.unknown or "ping printed no figure"
        bad = max(losses) > LOST_PERCENT
        return (FAIL, f"{max(losses):g} % of {PACKETS} packets lost") if bad else (PASS, "")

    return ask


def targets_of(peers: Sequence[Peer]) -> Tuple[PingTarget, ...]:
    """All addresses of these nodes; of one that announces none, where its daemon answers."""
    found: List[PingTarget] = []
    for one in peers:
        places: Mapping[str, str] = one.addresses or {"eth0": one.host}
        found += [PingTarget(one.node, address, interface) for interface, address in places.items() if address]
    return tuple(found)


def named_targets(nodes: Sequence[str], peers: Mapping[str, Peer], own: str) -> Tuple[PingTarget, ...]:
    """Addresses of named nodes; one without a daemon is told as such."""
    found: List[PingTarget] = []
    for node in dict.fromkeys(nodes):
        peer = peers.get(node)
        if node != own:
            found += targets_of([peer]) if peer and peer.host else [PingTarget(node, NOWHERE, NOWHERE)]
    return tuple(found)


def choose_peers(peers: Sequence[Peer], own: str, most: int, run: int) -> Tuple[Peer, ...]:
    """The nodes of one run: the next ones after this node on a ring of all, further along with every run.

    So each node is asked by as many others in each run, and by all of them in the end.
    """
    ring = sorted((one for one in peers if one.node != own), key=lambda one: (_place(one.node), one.node))
    if len(ring) <= most:
        return tuple(ring)
    after = sum((_place(one.node), one.node) < (_place(own), own) for one in ring)
    begin = after + run * most
    return tuple(ring[(begin + step) % len(ring)] for step in range(most))


def _place(node: str) -> int:
    return zlib.crc32(node.encode())


def pvc(
    api: Optional[Api],
    namespace: str,
    node: str,
    storage_class: str,
    wait: Callable[[float], Any] = time.sleep,
    bound_seconds: float = BOUND_SECONDS,
) -> Result:
    """Whether a claim of the storage class is bound in time; the claim is removed in any case."""
    if not storage_class:
        return Result("pvc", UNKNOWN, f"Storage class not set. Cannot run. Name one in {CLASS}.")
    if api is None:
        return Result("pvc", UNKNOWN, "Create PVC Failed: this daemon has no Kubernetes API")
    name = claim_name(node)
    path = f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims"
    try:
        if _late(api, storage_class):
            return Result("pvc", UNKNOWN, f"{storage_class} binds a claim only where a pod uses it: not tested")
        api.delete(f"{path}/{name}")  # of a daemon that was killed meanwhile
        api.create(path, _claim(name, storage_class))
    except ApiError as error:
        return Result("pvc", UNKNOWN, f"Create PVC Failed: {error}")
    try:
        return _bound(api, f"{path}/{name}", wait, bound_seconds)
    finally:
        try:
            api.delete(f"{path}/{name}")
        except ApiError as error:
            print(f"health: the claim {name} is left over: {error}", flush=True)


def _bound(api: Api, path: str, wait: Callable[[float], Any], seconds: float) -> Result:
    phase, why = "", ""
    for _ in range(max(1, int(seconds / LOOK_SECONDS))):
        try:
            phase, why = str(api.get(path).get("status", {}).get("phase", "")), ""
        except ApiError as error:
            why = str(error)
        if phase == "Bound":
            return Result("pvc", PASS)
        wait(LOOK_SECONDS)
    if why:
        return Result("pvc", UNKNOWN, why)
    return Result("pvc", FAIL, f"the claim is {phase or 'without a phase'} after {seconds:g} s")


def _late(api: Api, storage_class: str) -> bool:
    try:
        found = api.get(f"/apis/storage.k8s.io/v1/storageclasses/{quote(storage_class, safe='')}")
    except ApiError as error:
        if error.code == 403:  # a right that older installations do not have
            return False
        raise
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def claim_name(node: str) -> str:
    """The same for each test of a node, so that one that was left over is found again."""
    return f"autopilot-pvc-{re.sub(r'[^a-z0-9-]+', '-', node.lower())}"[:63].rstrip("-")


def _claim(name: str, storage_class: str) -> Dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "primus-health"}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Mi"}},
            "storageClassName": storage_class,
        },
    }
