"""`primus health serve` and `primus render health`: the node daemon in the foreground, and its manifests.

The daemon is the program that runs in a pod of each node of a cluster. The manifests come with the commands that take
the health service away again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, health_app, render_app
from deployments.exit_codes import GOOD, out, out_json
from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.loading.document import MAX_BYTES
from profiles.loading.load import load_text
from tasks.settings import Settings
from workflows.platform.health import CHECK, SERVICE, check_pod, health
from workflows.platform.health_alerts import rules, scrape_config
from workflows.platform.pod_shapes import NAME

Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the checks.")]
ReadinessPort = Annotated[
    int, typer.Option("--readiness-port", min=-1, max=65535, help="Port of the readiness probe; -1: none.")
]
MetricsPort = Annotated[int, typer.Option("--metrics-port", min=-1, max=65535, help="Port of the metrics; -1: none.")]
Address = Annotated[str, typer.Option("--address", help="Where it listens; else the pod's address or loopback.")]
Node = Annotated[str, typer.Option("--node", help="Name of this node; else as Kubernetes or the host says.")]
Peers = Annotated[str, typer.Option("--peers", metavar="NODE=HOST:PORT,…", help="Other daemons; else by the API.")]
Interval = Annotated[str, typer.Option("--interval", help="Between two rounds of the periodic checks; 0: none.")]
DeepInterval = Annotated[str, typer.Option("--deep-interval", help="Between two deep tests while idle; 0: none.")]
Checks = Annotated[str, typer.Option("--checks", metavar="A,B", help="The periodic checks.")]
Pcie = Annotated[float, typer.Option("--bw", min=0.0, max=1e6, help="PCIe bandwidth that a GPU must reach, GB/s.")]
Gpus = Annotated[
    int, typer.Option("--gpus", min=0, max=1024, help="GPUs that the node should have; 0: as many as its bus shows.")
]
Label = Annotated[bool, typer.Option("--label", help="Write autopilot.ibm.com labels on the node.")]
Compatible = Annotated[bool, typer.Option("--compatible", help="What starts work needs no token, as in Autopilot.")]
Values = Annotated[str, typer.Option("--values", help="File of values (docs/profiles.md); else the defaults.")]
Part = Annotated[str, typer.Option("--part", help="all, check, rules or scrape.")]

WIDTH = 120
SELECTOR = f"{NAME}={SERVICE}"
KINDS = (
    "daemonsets",
    "services",
    "networkpolicies",
    "rolebindings",
    "roles",
    "serviceaccounts",
    "persistentvolumeclaims",
)
"""What there is of it in its namespace."""
OPERATOR_KINDS = ("servicemonitors", "prometheusrules")
NODE_LABELS = ("gpuhealth", "dcgm.level.1", "dcgm.level.2", "dcgm.level.3", "dcgm.level.4")
"""What the daemon may have written on nodes, behind `autopilot.ibm.com/`."""


@health_app.command("serve")
def serve(  # noqa: PLR0913, PLR0917 - one parameter an option
    port: Port = 3333,
    readiness_port: ReadinessPort = 8080,
    metrics_port: MetricsPort = 8081,
    address: Address = "",
    node: Node = "",
    peers: Peers = "",
    interval: Interval = "24h",
    deep_interval: DeepInterval = "4h",
    checks: Checks = "",
    bw: Pcie = 4.0,
    gpus: Gpus = 0,
    label: Label = False,
    compatible: Compatible = False,
) -> int:
    """Serve this node's health in the foreground, until Ctrl-C.

    Example: primus health serve --port 3333 --peers node-b=10.0.0.2:3333
    """
    return serve_checks(
        Serving(
            port=port,
            readiness_port=readiness_port,
            metrics_port=metrics_port,
            address=address,
            node=node,
            peers=peers,
            interval=interval,
            deep_interval=deep_interval,
            checks=checks,
            pcie_gb_per_second=bw,
            gpus=gpus,
            label=label,
            compatible=compatible,
        )
    )


@render_app.command("health")
def print_health_manifests(values: Values = "", *, part: Part = "all", as_json: AsJson = False) -> int:
    """The health service: a daemon on each node, its rights, Services and alerts; how to take it away stands above.

    Example: primus render health --values health.yaml
    """
    wanted = values_from(values)
    documents = documents_of(wanted, part)
    if as_json:
        out_json(documents)
        return GOOD
    import yaml

    head = instructions(wanted) if part == "all" else ""
    out(head + yaml.safe_dump_all(documents, sort_keys=False, width=WIDTH).rstrip("\n"))
    return GOOD


@dataclass(frozen=True)
class Serving:
    """What the command line says; what it leaves out is as `programs.pyz health` has it."""

    port: int = 3333
    readiness_port: int = 8080
    """-1: not there."""
    metrics_port: int = 8081
    """-1: not there."""
    address: str = ""
    """Where it listens; "": the pod's own address, outside of a pod loopback."""
    node: str = ""
    """Name of this node; "": as Kubernetes or the host says."""
    peers: str = ""
    """`node=host:port,…`; "": the daemon's pods, from the Kubernetes API."""
    interval: str = "24h"
    """Between two rounds of the periodic checks; `0`: none."""
    deep_interval: str = "4h"
    """Between two deep tests of an idle node; `0`: none."""
    checks: str = ""
    """The periodic set."""
    pcie_gb_per_second: float = 4.0
    gpus: int = 0
    """GPUs that the node should have; 0: as many as its bus shows."""
    label: bool = False
    compatible: bool = False


def serve_checks(serving: Serving) -> int:
    """Serve until SIGTERM or Ctrl-C. The token is that of all our HTTP endpoints (PRIMUS_TOKEN, PRIMUS_TOKEN_FILE).

    Returns:
        0 after a signal, 2 where it cannot be started as asked; the reason is on standard error.

    Raises:
        ProfileError: the token cannot be read.
    """
    from workflows.programs.health import main
    from workflows.programs.health import options as programs_health_options

    environment = dict(os.environ)
    if not serving.compatible:
        environment["PRIMUS_TOKEN"] = Settings.from_environment(os.environ).token()
    options = programs_health_options.Options(
        port=serving.port,
        readiness_port=serving.readiness_port,
        metrics_port=serving.metrics_port,
        address=serving.address,
        node=serving.node,
        peers=serving.peers,
        w=serving.interval,
        invasive_check_timer=serving.deep_interval,
        checks=serving.checks,
        bw=serving.pcie_gb_per_second,
        gpus=serving.gpus,
        label=serving.label,
        compatible=serving.compatible,
    )
    # The same words, the same refusals: as if they had been typed after `programs.pyz health`.
    return main.serve(options.argv(), environment)


def documents_of(values: HealthValues, part: str) -> list[dict[str, Any]]:
    """The documents of a part.

    Raises:
        ProfileError: no such part.
    """
    match part:
        case "all":
            return health(values)
        case "check":
            return [check_pod(values)]
        case "rules":
            return [rules(values)]
        case "scrape":
            return [{"scrape_configs": [scrape_config(values)]}]
        case other:
            raise ProfileError("part", f"must be all, check, rules or scrape, got {other!r}")


def values_from(path: str) -> HealthValues:
    """The values in a file.

    Raises:
        ProfileError: it cannot be read, or a value in it is wrong; names the field.
    """
    if not path:
        return HealthValues()
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError("values", f"cannot read {path}: {error}") from error
    return load_text(HealthValues, text, path) if text.strip() else HealthValues()


def instructions(values: HealthValues) -> str:
    """How it is set up and taken away, as comments above the documents."""
    lines = [f"The health service. Everything in it has the label {SELECTOR}."]
    if not values.compatible:
        make = f"kubectl create secret generic {values.token_secret} --namespace {values.namespace}"
        lines += [
            f"Before:    the Secret {values.token_secret} with a long random `token`, without which no daemon starts:",
            f"           kubectl create namespace {values.namespace}",
            f"           head -c 32 /dev/urandom | base64 | tr -d '\\n' | {make} --from-file=token=/dev/stdin",
        ]
    lines += [
        "Set up:    primus render health [--values FILE] | kubectl apply --server-side -f -",
        f"Look:      kubectl rollout status daemonset/{SERVICE} --namespace {values.namespace}",
        "Take away: " + "\n           ".join(take_away(values)),
        "           (each may be left out; the last one also takes the token, and whatever others have there)",
    ]
    return "".join(f"# {line}\n" for text in lines for line in text.split("\n")) + "---\n"


def take_away(values: HealthValues) -> list[str]:
    """Commands, in order, that remove everything the service and its daemons made."""
    kinds = [*KINDS, *(OPERATOR_KINDS if values.service_monitor else ())]
    keys = " ".join(f"autopilot.ibm.com/{name}-" for name in NODE_LABELS)
    notes = " ".join(f"autopilot.ibm.com/{name}.output-" for name in NODE_LABELS if "." in name)
    named = f"{SERVICE}-{values.namespace}"
    marks = [
        f"kubectl label nodes --all {keys}",
        f"kubectl annotate nodes --all {notes}",
    ]
    return [
        f"kubectl delete {','.join(kinds)} --namespace {values.namespace} --selector {SELECTOR}",
        f"kubectl delete pod {CHECK} --namespace {values.namespace} --ignore-not-found",
        f"kubectl delete clusterrole,clusterrolebinding {named}",
        *(marks if values.write_labels else []),
        f"kubectl delete namespace {values.namespace}",
    ]
