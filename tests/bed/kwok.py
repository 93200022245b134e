"""Nodes that KWOK plays: they are Ready, take pods, and run nothing."""

from __future__ import annotations

from tests.bed.api import Api, Manifest
from tests.bed.commands import until
from tests.bed.layout import Cache, Folder
from tests.bed.nodes import place_labels
from tests.bed.options import NAMESPACE, REAL_LABEL, Options
from tests.bed.plane import healthy
from tests.bed.processes import Processes, Program

HEALTH_PORT = 10247
ANNOTATION = "kwok.x-k8s.io/node"
TAINT = {"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}
NODES_PER_RACK = 8
RACKS_PER_BLOCK = 4


def name(index: int) -> str:
    """A played node's name."""
    return f"kwok-{index:03d}"


def node(options: Options, index: int) -> Manifest:
    """A played node; its taint keeps away every pod that does not ask for it."""
    rack = index // NODES_PER_RACK
    marks = {
        "kubernetes.io/hostname": name(index),
        REAL_LABEL: "kwok",
        **place_labels(f"kwok-rack-{rack}", f"kwok-block-{rack // RACKS_PER_BLOCK}", options),
    }
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", options.gpu: str(options.gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name(index), "annotations": {ANNOTATION: "fake"}, "labels": marks},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": room, "allocatable": room},
    }


def command(cache: Cache, folder: Folder, options: Options) -> list[str]:
    """How the program is started."""
    return [
        f"{cache.binaries}/kwok",
        f"--kubeconfig={folder.kubeconfigs}/admin",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--config={cache.manifests}/kwok-stages.yaml",
        f"--cidr={options.network}.128.0/17",
        "--node-ip=127.0.0.1",
        f"--node-lease-duration-seconds={options.lease_s}",
        f"--server-address=0.0.0.0:{HEALTH_PORT}",
    ]


def start(cache: Cache, folder: Folder, options: Options, processes: Processes, api: Api) -> None:
    """The program and its nodes; returns when all are Ready."""
    processes.start(Program("kwok", command(cache, folder, options), NAMESPACE, "plane/kwok"))
    api.ensure_all(node(options, index) for index in range(options.kwok))
    wanted = {name(index) for index in range(options.kwok)}
    until("played nodes Ready", lambda: wanted <= api.ready_nodes(), limit_s=60, every_s=0.2)


def ready(options: Options) -> bool:
    """Whether the program answers."""
    return healthy(f"http://{options.plane}:{HEALTH_PORT}/healthz")
