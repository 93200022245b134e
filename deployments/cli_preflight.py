"""`primus preflight`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, app, render_app

Suite = Annotated[
    str,
    typer.Option("--suite", help="Suite by name or path; else any-machine on an embedded cluster, smoke elsewhere."),
]
Depth = Annotated[str, typer.Option("--depth", help="Only this depth: smoke, device, fabric, storage or training.")]
Nodes = Annotated[str, typer.Option("--nodes", metavar="A,B", help="Names of nodes; else all of them.")]
Trial = Annotated[
    str,
    typer.Option(
        "--trial",
        metavar="RUN_PROFILE",
        help="A run that is tried on the nodes for a few steps; nothing else is tested without --suite or --depth.",
    ),
]
Launcher = Annotated[
    str,
    typer.Option(
        "--launcher", help="Who starts the tests: kubernetes (the cluster itself), ansible (by SSH) or slurm."
    ),
]


@app.command()
def preflight(
    cluster: Cluster = "",
    suite: Suite = "",
    depth: Depth = "",
    nodes: Nodes = "",
    launcher: Launcher = "",
    trial: Trial = "",
    as_json: Json = False,
) -> int:
    """Test nodes: what was measured, against which limit, with the evidence. Verdicts stand in the ledger.

    A check that crashes, hangs or prints nothing readable is unknown, and unknown is not healthy. What varies and
    failed once is measured again before the node is blamed. Exit code 0: all passed; 1: a node failed; 3: one is
    unknown.

    Example: primus preflight --nodes node-0,node-1
    """
    from deployments.preflight import run_preflight

    return run_preflight(cluster, suite, depth, nodes, launcher, trial, as_json=as_json)


@render_app.command("preflight")
def render_preflight(
    cluster: Cluster = "", suite: Suite = "", depth: Depth = "", nodes: Nodes = "", as_json: Json = False
) -> int:
    """The workflows of a test of nodes: a short pod on each, rack by rack.

    Example: primus render preflight --cluster local
    """
    from deployments.preflight_render import render_preflight as show

    return show(cluster, suite, depth, nodes, as_json=as_json)
