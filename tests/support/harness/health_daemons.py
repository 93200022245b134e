"""Node daemons for tests: fake tools that print what real ones printed, a small cluster in memory, real HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.cases.tool_samples import printed
from workflows.programs.health.daemon import Daemon, Plan
from workflows.programs.health.fleet_status import Fleet
from workflows.programs.health.gpu_checks import Tools
from workflows.programs.health.kubernetes import Hold, NoHold
from workflows.programs.health.labels import NodeLabels
from workflows.programs.health.peers import ConfiguredNodes, Nodes, Peer
from workflows.programs.health.routes import Gate, PageResponse, Pages
from workflows.programs.health.server import ConnectionLimiter, HealthPort, HealthPorts, RateLimiter
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.call import Call, execute
from workflows.programs.runtime.kubernetes_api import ApiError

Json = dict[str, Any]
TOKEN = "a-token"
H100 = printed("nvidia-smi", "550-query-h100.txt")
BANDWIDTH = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
NOTE = "NOTE: The reported results may not reflect the full capabilities of the platform."


def nvidia_smi(
    gpus: int = 1, pending: Sequence[int] = (), slow: Sequence[int] = (), mig: Sequence[int] = (), attached: int = 0
) -> str:
    """The query of an H100 node, its one GPU repeated, with states changed as the tool prints them."""
    head, _, block = H100.partition("GPU 00000000:19:00.0")
    text = head.replace("Attached GPUs                             : 1", f"Attached GPUs{'':29}: {attached or gpus}")
    for index in range(gpus):
        one = f"GPU 00000000:{index + 16:02X}:00.0{block}"
        if index in pending:
            one = one.replace("        Pending                           : No", f"        Pending{'':27}: Yes")
        if index in slow:
            one = one.replace("HW Slowdown                       : Not Active", f"HW Slowdown{'':23}: Active")
        if index in mig:
            one = one.replace(
                "MIG Mode\n        Current                           : Disabled",
                f"MIG Mode\n        Current{'':27}: Enabled",
            )
        text += one
    return text


def nvbandwidth(*figures: float) -> str:
    """What nvbandwidth 0.6 prints of host to device copies, a figure a GPU."""
    columns = "".join(f"{index:10d}" for index in range(len(figures)))
    cells = "".join(f"{one:10.2f}" for one in figures)
    total = f"SUM host_to_device_memcpy_ce {sum(figures):.2f}"
    head = "nvbandwidth Version: v0.6\nBuilt from Git version: v0.6\n\nRunning host_to_device_memcpy_ce."
    return f"{head}\n{BANDWIDTH}\n{columns}\n 0{cells}\n\n{total}\n\n{NOTE}\n"


def diag(tests: Mapping[str, Mapping[int, str]], version: int = 4) -> str:
    """JSON of `dcgmi diag`: test -> GPU -> status, in the form of DCGM 3 or 4."""
    told: list[Json] = []
    for name, by_gpu in tests.items():
        results = [
            {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
            if version == 4
            else {"gpu_id": str(gpu), "status": status}
            for gpu, status in by_gpu.items()
        ]
        told.append({"name": name, "results": results})
    root = {"test_categories": [{"category": "Hardware", "tests": told}]}
    return json.dumps({"DCGM Diagnostic" if version == 4 else "DCGM GPU Diagnostic": root}) + "\n"


def ping_text(address: str, received: int) -> str:
    """What iputils prints at the end of ten packets."""
    lost = 10 * (10 - received)
    counts = f"10 packets transmitted, {received} received, {lost}% packet loss, time 1830ms"
    times = "rtt min/avg/max/mdev = 0.038/0.047/0.080/0.011 ms\n" if received else ""
    return f"PING {address} ({address}) 56(84) bytes of data.\n\n--- {address} ping statistics ---\n{counts}\n{times}"


class Toolbox:
    """Programs of a folder at the front of PATH, each of which prints a text and counts how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> str:
        return f"{self.folder}:/usr/bin:/bin"

    def prints(self, tool: str, text: str, code: int = 0, first: str = "") -> None:
        """`first`: a line of shell that runs before."""
        (self.folder / f"{tool}.txt").write_text(text)
        lines = [
            "#!/bin/sh",
            f'echo "$*" >> {self.folder}/{tool}.calls',
            first,
            f"cat {self.folder}/{tool}.txt",
            f"exit {code}",
        ]
        script = self.folder / tool
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)

    def calls(self, tool: str) -> list[str]:
        """Arguments of each call."""
        path = self.folder / f"{tool}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def healthy(self, gpus: int = 1) -> Toolbox:
        """A healthy NVIDIA node."""
        self.prints("nvidia-smi", nvidia_smi(gpus))
        self.prints("nvbandwidth", nvbandwidth(*[55.3] * gpus))
        self.prints("dcgmi", diag({"software": dict.fromkeys(range(gpus), "Pass")}))
        return self


class Cluster:
    """Objects of a cluster, with the API's calls; a write with an old resource version is a conflict."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.patches: list[tuple[str, Json]] = []
        self.refuses: dict[str, int] = {}
        """Part of `METHOD path` -> status that is answered."""
        self.before_patch: Callable[[], None] | None = None
        self.version = 1

    def _check(self, line: str) -> None:
        code = next((code for part, code in self.refuses.items() if part in line), 0)
        if code:
            raise ApiError(code, f"{line}: {code} refused")

    def put(self, path: str, item: Json) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = item

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        self._check(f"GET {path}")
        if path not in self.objects:
            raise ApiError(404, f"GET {path}: 404 not found")
        return json.loads(json.dumps(self.objects[path]))

    def items(self, path: str, query: Mapping[str, str] | None = None) -> list[Json]:
        self._check(f"GET {path}")
        selector = (query or {}).get("labelSelector", "")
        node = (query or {}).get("fieldSelector", "").partition("spec.nodeName=")[2]
        found = [one for key, one in self.objects.items() if key.startswith(f"{path}/")]
        if path == "/api/v1/pods":
            found = [one for key, one in self.objects.items() if "/pods/" in key]
        key, _, value = selector.partition("=")
        found = [one for one in found if not selector or one["metadata"].get("labels", {}).get(key) == value]
        return [one for one in found if not node or one["spec"].get("nodeName") == node]

    def patch(self, path: str, body: Json) -> Json:
        self._check(f"PATCH {path}")
        if self.before_patch is not None:
            self.before_patch()
        found = self.objects[path]
        wanted = body["metadata"].pop("resourceVersion", None)
        if wanted is not None and wanted != found["metadata"]["resourceVersion"]:
            raise ApiError(409, f"PATCH {path}: 409 the object has been modified")
        self.patches.append((path, body))
        self.put(path, merged(found, body))
        return self.objects[path]

    def create(self, path: str, body: Json) -> Json:
        self._check(f"POST {path}")
        if f"{path}/{body['metadata']['name']}" in self.objects:
            raise ApiError(409, f"POST {path}: 409 already exists")
        self.put(f"{path}/{body['metadata']['name']}", body)
        return body

    def delete(self, path: str) -> None:
        self._check(f"DELETE {path}")
        self.objects.pop(path, None)

    def node(self, name: str, labels: Mapping[str, str] | None = None) -> Json:
        self.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {}})
        return self.objects[f"/api/v1/nodes/{name}"]

    def pod(self, name: str, node: str, namespace: str = "default", gpus: int = 0, **more: Any) -> None:
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        metadata = {"name": name, "namespace": namespace, "labels": more.get("labels", {})}
        metadata["annotations"] = more.get("annotations", {})
        status = {"phase": more.get("phase", "Running"), "podIP": more.get("address", "10.0.0.1")}
        spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]}
        self.put(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": metadata, "spec": spec, "status": status})

    def labels(self, node: str) -> dict[str, str]:
        return self.objects[f"/api/v1/nodes/{node}"]["metadata"].get("labels", {})

    def annotations(self, node: str) -> dict[str, str]:
        return self.objects[f"/api/v1/nodes/{node}"]["metadata"].get("annotations", {})

    def taints(self, node: str) -> list[Json]:
        return self.objects[f"/api/v1/nodes/{node}"]["spec"].get("taints", [])


def merged(target: Any, patch: Any) -> Any:
    """A merge patch, applied."""
    result = dict(target or {})
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value) if isinstance(value, dict) else value
    return result


class Told:
    """Answers probes as told, and runs everything else."""

    def __init__(self, **answers: ParsedOutput) -> None:
        self.answers = {name.replace("_", "-"): parsed for name, parsed in answers.items()}
        self.asked: list[str] = []

    def __call__(self, call: Call, places: Mapping[str, str], seconds: float, parsers: Any) -> ParsedOutput:
        self.asked.append(call.title)
        if call.probe:
            return self.answers.get(call.probe, ParsedOutput(unknown=f"no {call.probe} here"))
        return execute(call, places, seconds, parsers)


IDLE = ParsedOutput((Reading("gpu_foreign_processes", 0.0, "count", line="no process computes"),))


@dataclass
class Made:
    """A daemon without its ports."""

    daemon: Daemon
    pages: Pages
    said: list[str] = field(default_factory=list[str])

    def text(self, target: str, token: str = TOKEN) -> str:
        return self.answer(target, token).body

    def answer(self, target: str, token: str = TOKEN, typed: bool = False) -> PageResponse:
        path, _, query = target.partition("?")
        return self.pages.answer(path, query, f"Bearer {token}" if token else "", typed)

    def json(self, target: str, token: str = TOKEN) -> Json:
        return json.loads(self.answer(target, token, typed=True).body)

    def metrics(self, name: str) -> dict[str, float]:
        """Series of a metric: its labels but those of the node -> value."""
        found: dict[str, float] = {}
        for line in self.text("/metrics").splitlines():
            if line.startswith(name + "{"):
                labels, _, value = line[len(name) + 1 :].rpartition("} ")
                kept = [one for one in labels.split(",") if not one.startswith(("node=", "cpumodel=", "gpumodel="))]
                found[",".join(kept).replace('"', "")] = float(value)
        return found


def made(
    node: str = "n0",
    *,
    peers: Sequence[Peer] = (),
    cluster: Cluster | None = None,
    hold: Hold | None = None,
    run: Any = None,
    label: bool = True,
    nodes: Nodes | None = None,
    compatible: bool = False,
    expected: int = 0,
    **plan: Any,
) -> Made:
    """A daemon; its rounds are made by hand. `expected`: GPUs that the node should have."""
    said: list[str] = []
    api: Any = cluster
    told = nodes or ConfiguredNodes([*peers, Peer(node, "127.0.0.1")])
    planned = Plan(node, **plan)
    marks = NodeLabels(node, api if label else None, planned.fatal, planned.periodic, said.append)
    tools = Tools(expected, run or execute)
    daemon = Daemon(planned, tools, told, api, hold or NoHold(), marks=marks, say=said.append)
    pages = Pages(daemon, Fleet(node, told, daemon.report, TOKEN), Gate(TOKEN, compatible), TOKEN, "a CPU")
    return Made(daemon, pages, said)


@contextmanager
def serving(one: Made, rate: float = 1e6, connections: int = 512, port: int = 0) -> Generator[int]:
    """The daemon on a port of loopback."""
    servers = HealthPorts()
    place = ("127.0.0.1", port)
    try:
        yield servers.add(
            HealthPort(
                place,
                one.pages,
                (),
                rate=RateLimiter(rate),
                room=ConnectionLimiter(connections),
                count=one.daemon.known.count,
            )
        )
    finally:
        servers.close()


def get(port: int, target: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
    """Status, text and headers of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Answers of as many threads that begin together; an exception is an answer."""
    barrier = threading.Barrier(count)
    answers: list[Any] = []

    def one() -> None:
        barrier.wait(60)
        try:
            answers.append(work())
        except Exception as error:
            answers.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
