"""`primus monitor`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, app


@app.command()
def monitor(
    cluster: Cluster = "",
    once: Annotated[bool, typer.Option("--once", help="One pass over all nodes, then return.")] = False,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the cluster profile.")] = "",
    as_json: Json = False,
) -> int:
    """Watch the nodes' conditions and take bad nodes out, within the brake; in the foreground until Ctrl-C.

    With --json the loop prints one JSON document a line. Exit code of one pass: 0: nothing is wrong; 1: a node has a
    fault; 3: of a node it is not known.

    Example: primus monitor --once --mode observe
    """
    from deployments.monitor import show_monitor

    return show_monitor(cluster, mode, once=once, as_json=as_json)
