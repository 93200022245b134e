"""What the contract of the seam stands on: one cluster, and the little that its statements need beyond the seam."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tasks.cluster import Answered, Cluster, Event, Kind, Manifest
from tasks.embedded.store import store
from tests.support.harness import embedded_stage
from tests.support.simulated.cluster import Act, SimulatedCluster
from tests.support.simulated.store import Clock
from workflows import labels

MINE = {labels.RUN: "contract"}
"""On everything that a statement makes, so that it may share a namespace."""
PORT = 8080
PROGRAM = """
import http.server, json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
script = json.loads(sys.argv[1])
for line in script["lines"]:
    print(line, flush=True)
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        said = json.dumps([self.command, self.path, self.headers.get("X-Primus-Token"), body]).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    do_GET = do_POST
    def log_message(self, *_):
        pass
if script["echoes"]:
    http.server.HTTPServer((os.environ["ADDRESS"], script["port"]), Echo).serve_forever()
while script["exit_code"] is None:
    time.sleep(0.05)
sys.exit(script["exit_code"])
"""
"""Acts a `Script` out. As a pod's first process it would not hear SIGTERM without a handler."""
T = TypeVar("T")


@dataclass(frozen=True)
class Script:
    """What a container does: print, answer requests or end."""

    lines: tuple[str, ...] = ()
    exit_code: int | None = 0
    """None: it runs until it is ended."""
    echoes: bool = False
    """It answers every request on `PORT` with 201 and [method, path, token, body], and does not end."""


class Bench(Protocol):
    """One cluster, made for one statement."""

    cluster: Cluster
    node: str
    """One of its nodes, with room for a pod."""
    patience_seconds: float

    def container(self, script: Script) -> Manifest:
        """A container that acts the script out."""
        ...

    def until(self, holds: Callable[[], T | None]) -> T:
        """What `holds` says as soon as it says something true."""
        ...

    def expire_versions(self) -> None:
        """Let the cluster forget how it came to be as it is."""
        ...

    def lose_node(self, name: str) -> None:
        """Cut a node's power; the cluster notices at once."""
        ...


class RealBench:
    """Containers are processes, and time passes by itself."""

    image = "any"

    def __init__(self, cluster: Cluster, node: str, patience_seconds: float) -> None:
        self.cluster, self.node, self.patience_seconds = cluster, node, patience_seconds

    def container(self, script: Script) -> Manifest:
        """See `Bench`."""
        address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        command = ["python3", "-c", PROGRAM, json.dumps({**asdict(script), "port": PORT})]
        return {"name": "main", "image": self.image, "command": command, "env": [address]}

    def until(self, holds: Callable[[], T | None]) -> T:
        """See `Bench`."""
        deadline = time.monotonic() + self.patience_seconds
        while not (said := holds()):
            assert time.monotonic() < deadline, "it did not come true"
            time.sleep(0.02)
        return said

    def expire_versions(self) -> None:
        """See `Bench`."""
        pytest.skip("nobody tells this cluster when to forget")

    def lose_node(self, name: str) -> None:
        """See `Bench`."""
        cluster: Any = self.cluster
        cluster.lose_node(name)


class EmbeddedBench(RealBench):
    """The embedded cluster in a folder of its own."""

    def expire_versions(self) -> None:
        """The log of changes grows too large, and is begun anew with what was written last."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "ROTATE_BYTES", 0)
            for value in ("one", "two"):
                self.cluster.apply(note("that-rotates", value))
        self.cluster.delete("ConfigMap", "that-rotates")


@contextmanager
def embedded(folder: Path) -> Generator[EmbeddedBench]:
    """A bench on the embedded cluster."""
    with embedded_stage.cluster(folder) as cluster:
        yield EmbeddedBench(cluster, "node-0", embedded_stage.DEADLINE_SECONDS)


class SimulatedBench:
    """The simulated cluster: time passes while somebody waits."""

    node = "node-0"
    patience_seconds = 60.0

    def __init__(self) -> None:
        self._clock = Clock()
        self._simulated = SimulatedCluster(self._clock, embedded_stage.spec().nodes, _act)
        self.cluster: Cluster = self._simulated

    def container(self, script: Script) -> Manifest:
        """See `Bench`."""
        return {"name": "main", "image": "any", "command": ["act", json.dumps(asdict(script))]}

    def until(self, holds: Callable[[], T | None]) -> T:
        """See `Bench`."""
        deadline = self._clock.now() + self.patience_seconds
        while not (said := holds()):
            assert self._clock.now() < deadline, "it did not come true"
            self._clock.sleep(0.02)
        return said

    def expire_versions(self) -> None:
        """See `Bench`."""
        self._simulated.forget_changes()

    def lose_node(self, name: str) -> None:
        """See `Bench`."""
        self._simulated.lose_node(name)


def _act(manifest: Manifest) -> Act:
    script = Script(**json.loads(manifest["spec"]["containers"][0]["command"][1]))
    ends = script.exit_code is not None and not script.echoes
    act = Act(seconds=0.1 if ends else None, exit_code=script.exit_code or 0, lines=tuple(script.lines))
    return replace(act, port=PORT, answer=_echo) if script.echoes else act


def _echo(method: str, path: str, token: str, body: bytes) -> Answered:
    return Answered(201, json.dumps([method, path, token or None, body.decode()]).encode())


@contextmanager
def simulated(folder: Path) -> Generator[SimulatedBench]:
    """A bench on the simulated cluster, which needs no folder."""
    del folder
    yield SimulatedBench()


BENCHES: Mapping[str, Callable[[Path], AbstractContextManager[Bench]]] = {
    "embedded": embedded,
    "simulated": simulated,
}
"""A bench on a new cluster, by implementation of the seam."""


def note(name: str, text: str = "", *, marks: Mapping[str, str] | None = None, **metadata: Any) -> Manifest:
    """A ConfigMap of ours."""
    about = {"name": name, "labels": {**MINE, **(marks or {})}, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"text": text}}


def pod(bench: Bench, name: str, script: Script, **spec: Any) -> Manifest:
    """A pod of one container."""
    inner = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [bench.container(script)]}
    metadata = {"name": name, "labels": dict(MINE)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**inner, **spec}}


def gang(bench: Bench, name: str, pods: int, script: Script, *, suspend: bool = False) -> Manifest:
    """A JobSet of one role `worker`."""
    inner = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [bench.container(script)]}
    job = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}
    template = {"metadata": {"labels": {**MINE, labels.ROLE: "worker"}}, "spec": inner}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {**job, "template": template}}}
    spec = {"suspend": suspend, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [role]}
    metadata = {"name": name, "labels": dict(MINE)}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def version_of(stored: Manifest) -> int:
    """Its resource version, which grows."""
    return int(stored["metadata"]["resourceVersion"])


def names_of(found: list[Manifest]) -> list[str]:
    """Names in the order given."""
    return [item["metadata"]["name"] for item in found]


def lines_of(bench: Bench, kind: Kind, count: int, since: str | None) -> list[Event]:
    """The first so many lines of a watch over what is ours."""
    found: list[Event] = []
    for event in bench.cluster.watch(kind, MINE, since=since, timeout_seconds=bench.patience_seconds):
        found.append(event)
        if len(found) == count:
            break
    assert len(found) == count, found
    return found


def pods_of(bench: Bench, jobset: str) -> list[Manifest]:
    """The pods that a JobSet made."""
    return bench.cluster.list("Pod", {"jobset.sigs.k8s.io/jobset-name": jobset})


def in_phase(bench: Bench, name: str, *phases: str) -> Manifest:
    """The pod once it is in one of these phases."""

    def there() -> Manifest | None:
        found = bench.cluster.get("Pod", name)
        return found if found is not None and found.get("status", {}).get("phase") in phases else None

    return bench.until(there)


def conditions_of(manifest: Manifest) -> dict[str, str]:
    """Status of each condition, by type."""
    return {item["type"]: item["status"] for item in manifest["status"]["conditions"]}
