"""What a scale benchmark puts into its plane: conditions as node-problem-detector tells them, and gangs."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from tests.bed import kwok, samples
from tests.benchmarks.scale_plane import LANES, SPACE, ScalePlane
from tests.support.faults.node_faults import entry
from workflows import labels

Json = dict[str, Any]
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
FAULT, TELLER = "KernelDeadlock", "node-problem-detector"
SIZES = ((8, 250), (16, 120), (32, 60), (64, 40), (128, 20), (256, 8), (512, 2))
"""Pods of a JobSet, and how many JobSets have so many: 500 with 14,032 pods."""


class Wire:
    """One kept connection as the administrator: what is asked costs no handshake."""

    def __init__(self, plane: ScalePlane) -> None:
        where = plane.folder.certificates
        context = ssl.create_default_context(cafile=str(where / "ca.crt"))
        context.load_cert_chain(where / "admin.crt", where / "admin.key")
        self._connection = http.client.HTTPSConnection(plane.options.plane, 6443, timeout=30, context=context)

    def patch(self, path: str, change: Json, content: str) -> tuple[Json, float]:
        """The object, and the seconds that it took.

        Raises:
            RuntimeError: it was refused.
        """
        began = time.perf_counter()
        self._connection.request("PATCH", path, json.dumps(change), {"Content-Type": content, "User-Agent": TELLER})
        answer = self._connection.getresponse()
        words = answer.read()
        took = time.perf_counter() - began
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {words[:300]!r}")
        return json.loads(words), took

    def fault(self, node: str) -> None:
        """Tell that a node is bad."""
        told = {"status": {"conditions": [entry(FAULT)]}}
        self.patch(f"/api/v1/nodes/{node}/status", told, STRATEGIC)

    def mark(self, node: str, taints: Sequence[Json], version: str) -> tuple[Json, float]:
        """The patch that the product sends, by hand: a label, annotations, taints, meant for one version."""
        about = {
            "resourceVersion": version,
            "labels": {f"bench/{labels.VERDICT.rpartition('/')[2]}": "fail"},
            "annotations": {"bench/evidence": "x" * 150, "bench/at": "2026-01-01T00:00:00Z"},
        }
        spec = {"taints": [*taints, {"key": "bench/quarantine", "value": "node_lost", "effect": "NoSchedule"}]}
        return self.patch(f"/api/v1/nodes/{node}", {"metadata": about, "spec": spec}, MERGE)


def faults_at_rate(plane: ScalePlane, nodes: Sequence[str], per_second: float) -> float:
    """Faults one after the other, evenly; the rate that was reached."""
    wire, began = Wire(plane), time.monotonic()
    for index, node in enumerate(nodes):
        time.sleep(max(0.0, began + index / per_second - time.monotonic()))
        wire.fault(node)
    return len(nodes) / (time.monotonic() - began)


def faults_at_once(plane: ScalePlane, nodes: Sequence[str]) -> None:
    """Faults as fast as the API server takes them over a few connections."""
    _shared(plane, nodes, lambda wire, node: wire.fault(node))


def marks_by_hand(plane: ScalePlane, nodes: Sequence[Json]) -> float:
    """Seconds in which so many nodes can be patched at all, over as many connections as the product uses."""
    began = time.monotonic()
    _shared(plane, nodes, _mark)
    return time.monotonic() - began


def _mark(wire: Wire, node: Json) -> None:
    about = node["metadata"]
    wire.mark(about["name"], node["spec"].get("taints", []), about["resourceVersion"])


def _shared(plane: ScalePlane, items: Sequence[Any], work: Callable[[Wire, Any], None]) -> None:
    waiting, lock = iter(items), threading.Lock()

    def lane() -> None:
        wire = Wire(plane)
        while True:
            with lock:
                item = next(waiting, None)
            if item is None:
                return
            work(wire, item)

    with ThreadPoolExecutor(LANES) as lanes:
        for done in [lanes.submit(lane) for _ in range(LANES)]:
            done.result()


class RoundTrips(threading.Thread):
    """Patches nodes of its own by hand, a few a second, while others are being marked: the API's own round trip."""

    def __init__(self, plane: ScalePlane, nodes: Sequence[Json], per_second: float) -> None:
        super().__init__(daemon=True)
        self._plane, self._nodes, self._pause = plane, list(nodes), 1.0 / per_second
        self._ended = threading.Event()
        self.seconds: list[float] = []
        self.syncs: list[float] = []
        """Seconds of a synced write of a page to the disk that holds the ledger, after each patch."""

    def run(self) -> None:
        """Each node again and again until ended."""
        with (self._plane.folder.root / "synced").open("wb", buffering=0) as file:
            self._ask(file.fileno())

    def _ask(self, file: int) -> None:
        wire, bare = Wire(self._plane), [node["spec"].get("taints", []) for node in self._nodes]
        versions = [node["metadata"]["resourceVersion"] for node in self._nodes]
        for index in count():
            if self._ended.wait(self._pause):
                return
            at = index % len(self._nodes)
            name = self._nodes[at]["metadata"]["name"]
            stored, took = wire.mark(name, [*bare[at], {"key": f"bench/{index}", "effect": "NoSchedule"}], versions[at])
            versions[at] = stored["metadata"]["resourceVersion"]
            self.seconds.append(took)
            self.syncs.append(_sync(file))

    def end(self) -> list[float]:
        """Stop; seconds of each."""
        self._ended.set()
        self.join()
        return self.seconds


def _sync(file: int) -> float:
    os.write(file, b"x" * 4096)
    began = time.perf_counter()
    os.fsync(file)
    return time.perf_counter() - began


def jobsets() -> list[Json]:
    """500 suspended gangs, as attempts of so many runs."""
    found: list[Json] = []
    for pods, number in SIZES:
        for _ in range(number):
            run = f"run-{len(found):03d}"
            made = samples.jobset(f"{run}-a1", SPACE, pods, samples.pod_spec(samples.BUSYBOX, ["train"]))
            made["metadata"]["labels"] = {labels.RUN: run, labels.ATTEMPT: "1", labels.ROLE: "trainer"}
            made["spec"]["suspend"] = True
            found.append(made)
    return found


def pods_of(found: Sequence[Json], nodes: int) -> Iterator[Json]:
    """Their pods on played nodes, labelled as the JobSet controller and the product label them."""
    at = count()
    for jobset in found:
        name, marks = jobset["metadata"]["name"], jobset["metadata"]["labels"]
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        for index in range(job["parallelism"]):
            made = samples.pod(f"{name}-w-0-{index}", SPACE, dict(job["template"]["spec"]))
            made["metadata"]["labels"] = {**marks, "jobset.sigs.k8s.io/jobset-name": name}
            made["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
            made["spec"]["nodeName"] = kwok.name(next(at) % nodes)
            made["spec"]["tolerations"] = [{"operator": "Exists"}]
            yield made


def silent_nodes(plane: ScalePlane, first: int, end: int) -> Iterator[Json]:
    """Played nodes that nobody plays: they join with the conditions that a kubelet would tell."""
    good = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    told = [entry(kind, status, message="as a kubelet says it") for kind, status in good.items()]
    for index in range(first, end):
        made = kwok.node(plane.options, index)
        made["status"]["conditions"] = told
        yield made
