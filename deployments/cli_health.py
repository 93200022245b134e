"""`primus health` and `primus render health`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Json, app, render_app

health_app = typer.Typer(no_args_is_help=True, help="The health service: a daemon on each node, as IBM Autopilot's.")
app.add_typer(health_app, name="health")

Port = Annotated[int, typer.Option("--port", help="Port of the checks.")]
ReadinessPort = Annotated[int, typer.Option("--readiness-port", help="Port of the readiness probe; -1: none.")]
MetricsPort = Annotated[int, typer.Option("--metrics-port", help="Port of the metrics; -1: none.")]
Address = Annotated[str, typer.Option("--address", help="Where it listens; else the pod's address or loopback.")]
Node = Annotated[str, typer.Option("--node", help="Name of this node; else as Kubernetes or the host says.")]
Peers = Annotated[str, typer.Option("--peers", metavar="NODE=HOST:PORT,…", help="Other daemons; else by the API.")]
Interval = Annotated[str, typer.Option("--interval", help="Between two rounds of the periodic checks; 0: none.")]
DeepInterval = Annotated[str, typer.Option("--deep-interval", help="Between two deep tests while idle; 0: none.")]
Checks = Annotated[str, typer.Option("--checks", metavar="A,B", help="The periodic checks.")]
Pcie = Annotated[float, typer.Option("--bw", help="PCIe bandwidth that a GPU must reach, GB/s.")]
Gpus = Annotated[int, typer.Option("--gpus", help="GPUs that the node should have; 0: as many as its bus shows.")]
Label = Annotated[bool, typer.Option("--label", help="Write autopilot.ibm.com labels on the node.")]
Compatible = Annotated[bool, typer.Option("--compatible", help="What starts work needs no token, as in Autopilot.")]
Values = Annotated[str, typer.Option("--values", help="File of values (docs/profiles.md); else the defaults.")]
Part = Annotated[str, typer.Option("--part", help="all, check, rules or scrape.")]


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
    from deployments.health import Serving, serve

    return serve(
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
def render_health(values: Values = "", part: Part = "all", as_json: Json = False) -> int:
    """The health service: a daemon on each node, its rights, Services and alerts; how to take it away stands above.

    Example: primus render health --values health.yaml
    """
    from deployments.health_manifests import render_health as show

    return show(values, part=part, as_json=as_json)
