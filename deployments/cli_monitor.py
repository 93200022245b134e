"""`primus monitor`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, app, render_app


@app.command()
def monitor(
    cluster: Cluster = "",
    once: Annotated[bool, typer.Option("--once", help="One pass over nodes, runs and objects, then return.")] = False,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the cluster profile.")] = "",
    as_json: Json = False,
) -> int:
    """Watch nodes, runs and objects of a cluster, and mend what was lost; in the foreground until Ctrl-C.

    Bad nodes are taken out, within the brake; runs without a driver get one; what nobody wants is removed. With --json
    the loop prints one JSON document a line. Exit code of one pass: 0: nothing is wrong; 1: a node has a fault, or
    something is to be mended; 3: something is not known. Where a loop lives, one pass only shows what stands.

    Example: primus monitor --once --mode observe
    """
    from deployments.monitor import show_monitor

    return show_monitor(cluster, mode, once=once, as_json=as_json)


@render_app.command("monitor")
def render_monitor(
    cluster: Cluster = "",
    nodes: Annotated[str, typer.Option("--nodes", metavar="A,B", help="Names of nodes of the first pool.")] = "",
    as_json: Json = False,
) -> int:
    """The workflow of one sweep: a short read-only pod on each of some nodes.

    Example: primus render monitor --cluster local
    """
    from deployments.monitor import render_monitor as show

    return show(cluster, nodes, as_json=as_json)
