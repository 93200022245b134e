"""Bad nodes out of a large cluster: 2,000 played nodes with 1,500 faults, 500 gangs, then 12,500 nodes.

`python -m tests.benchmarks.scale`. Each reaction is measured by the API server's own clock, in its audit log: from the
answer to the patch of a node's status, as node-problem-detector sends it, to the answer to the patch with our taint.
The limit measured in the same run is the API's round trip: the same patch by hand, on other nodes, at the same time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.bed import kwok
from tests.bed.commands import until
from tests.benchmarks import scale_load as load
from tests.benchmarks.scale_monitor import RUNNER, Monitor, events, latencies, patches, verbs
from tests.benchmarks.scale_plane import SPACE, ScalePlane, in_own_network, scale_plane, why_not

NODES, FAULTS, BURST, MANY = 2_000, 1_500, 400, 12_500
PER_SECOND = 25.0
"""What one API server on two cores, which run everything else too, bears beside 200 lease renewals a second."""
ROUND_TRIPS_PER_SECOND = 5.0
LATE_FAULTS = 50
P50_GOAL_MS, P99_GOAL_MS = 20.0, 150.0
"""Over the median round trip."""
LOOP_GOAL_MB = 250.0
PASS_GOAL_SECONDS = 15.0


def at(values: Sequence[float], share: float) -> float:
    """The value below which that share of all lies, in ms."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000.0


def told(what: str, good: bool = True) -> bool:
    """Print a line; hand on whether its goal was met."""
    print(what if good else f"{what}: MISSED", flush=True)
    return good


def reactions(plane: ScalePlane, monitor: Monitor, names: Sequence[str], spare: Sequence[str], rate: float) -> bool:
    """Faults at a steady rate."""
    whole = {node["metadata"]["name"]: node for node in plane.api.nodes()}
    monitor.wait_idle()
    trips = load.RoundTrips(plane, [whole[name] for name in spare], ROUND_TRIPS_PER_SECOND)
    begin, began, used = plane.folder.audit.stat().st_size, time.monotonic(), monitor.processor_seconds
    trips.start()
    reached = load.faults_at_rate(plane, names, rate)
    until("all of them patched", lambda: monitor.told("quarantined", names) == len(names), 120, 0.5)
    took, used = time.monotonic() - began, monitor.processor_seconds - used
    by_hand = trips.end()
    seen = events(plane.folder.audit, begin)
    found = list(latencies(seen).values())
    trip = statistics.median(by_hand) * 1000.0
    p50, p99 = at(found, 0.5), at(found, 0.99)
    asked = verbs(seen, RUNNER)
    rates = ", ".join(f"{count / took:.1f}/s {verb}" for verb, count in sorted(asked.items()))
    return told(
        f"condition -> node patched, {len(found)} faults at {reached:.0f}/s among {len(whole)} nodes: "
        f"P50 {p50:.1f} ms, P99 {p99:.1f} ms; the API's round trip P50 {trip:.1f} ms, P99 {at(by_hand, 0.99):.1f} ms "
        f"(n={len(by_hand)}); beyond its median {p50 - trip:.1f} and {p99 - trip:.1f} ms "
        f"(goal <= {P50_GOAL_MS:.0f} and {P99_GOAL_MS:.0f})\n"
        f"  the monitor asks the API server {rates}; {used / len(found) * 1000.0:.1f} ms of processor a fault; "
        f"{sum(count > 1 for count in patches(seen).values())} nodes patched more than once; "
        f"a synced write to the ledger's disk meanwhile P50 {at(trips.syncs, 0.5):.1f} ms, "
        f"P99 {at(trips.syncs, 0.99):.1f} ms; load {os.getloadavg()[0]:.0f}",
        p50 - trip <= P50_GOAL_MS and p99 - trip <= P99_GOAL_MS and len(found) == len(names),
    )


def burst(plane: ScalePlane, monitor: Monitor, names: Sequence[str]) -> None:
    """Faults as fast as they can be told, beside patching as many nodes by hand."""
    begin, began = plane.folder.audit.stat().st_size, time.monotonic()
    load.faults_at_once(plane, names)
    injected = time.monotonic() - began
    until("all of them patched", lambda: monitor.told("quarantined", names) == len(names), 120, 0.1)
    took = time.monotonic() - began
    found = list(latencies(events(plane.folder.audit, begin)).values())
    whole = {node["metadata"]["name"]: node for node in plane.api.nodes()}
    by_hand = load.marks_by_hand(plane, [whole[name] for name in names])
    told(
        f"a burst of {len(names)} faults, told in {injected:.1f} s: all patched and written down after {took:.1f} s, "
        f"P50 {at(found, 0.5):.0f} ms, P99 {at(found, 0.99):.0f} ms; patching as many by hand, over as many "
        f"connections and nothing else going on, {by_hand:.1f} s"
    )


def one_pass(plane: ScalePlane, nodes: int) -> bool:
    """`primus monitor --once` over all nodes."""
    monitor = Monitor(plane, nodes)
    took, kib, document = monitor.once("--mode", "observe")
    return told(
        f"`primus monitor --once` over {document['nodes']} nodes, {len(document['held'])} of them in quarantine: "
        f"{took:.1f} s from the shell (goal <= {PASS_GOAL_SECONDS:.0f}), {kib / 1024:.0f} MB at most",
        document["nodes"] == nodes and took <= PASS_GOAL_SECONDS,
    )


def readers(plane: ScalePlane, nodes: int) -> None:
    """What a driver and `primus queue` read."""
    monitor = Monitor(plane, nodes)
    account = {"KUBECONFIG": str(plane.folder.account("runner")), "PRIMUS_HOME": str(monitor.home)}
    environment = {**os.environ, **account}
    for what in ("queue", "candidates", "gang"):
        command = [sys.executable, "-m", "tests.benchmarks.scale_readers", what, str(monitor.profile)]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        found = json.loads(said)
        told(f"  {what}: {found['said']}: {found['seconds']:.2f} s, {found['kib'] / 1024:.0f} MB at most")


def gangs(plane: ScalePlane) -> None:
    """500 JobSets and their pods as objects."""
    made, began = load.jobsets(), time.monotonic()
    plane.post_all(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets", made)
    plane.post_all(f"/api/v1/namespaces/{SPACE}/pods", load.pods_of(made, NODES))
    pods = sum(size * number for size, number in load.SIZES)
    told(f"{len(made)} JobSets with {pods} pods created in {time.monotonic() - began:.0f} s; read by processes:")


def many(plane: ScalePlane) -> bool:
    """The same with 12,500 nodes, which nobody plays any more."""
    began = time.monotonic()
    plane.stop("kwok")  # 1,250 lease renewals a second are more than this machine bears
    plane.post_all("/api/v1/nodes", load.silent_nodes(plane, NODES, MANY))
    told(f"{MANY} nodes after {time.monotonic() - began:.0f} s")
    good = one_pass(plane, MANY)
    readers(plane, MANY)
    with Monitor(plane, MANY) as monitor:
        names = [kwok.name(index) for index in range(MANY)]
        good = reactions(plane, monitor, names[-LATE_FAULTS:], names[NODES : NODES + 20], 5.0) and good
        megabytes = monitor.resident_kib / 1024
    return (
        told(f"the loop over {MANY} nodes: {megabytes:.0f} MB (goal <= {LOOP_GOAL_MB:.0f})", megabytes <= LOOP_GOAL_MB)
        and good
    )


def main() -> int:
    """Print the figures; 1 where a goal was missed."""
    if why := why_not():
        print(f"not measured: {why}")
        return 0
    inside = in_own_network("tests.benchmarks.scale")
    if inside is not None:
        return inside
    with scale_plane() as plane:
        began = time.monotonic()
        plane.play_nodes(0, NODES)
        told(f"{NODES} nodes played by KWOK are Ready after {time.monotonic() - began:.0f} s")
        names = [kwok.name(index) for index in range(NODES)]
        with Monitor(plane, NODES) as monitor:
            good = reactions(plane, monitor, names[:FAULTS], names[-20:], PER_SECOND)
            burst(plane, monitor, names[FAULTS : FAULTS + BURST])
            told(f"the loop over {NODES} nodes: {monitor.resident_kib / 1024:.0f} MB")
        good = one_pass(plane, NODES) and good
        gangs(plane)
        readers(plane, NODES)
        good = many(plane) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
