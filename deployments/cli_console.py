"""`primus automations`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, app


@app.command()
def automations(
    apply: Annotated[bool, typer.Option("--apply", help="Make the server's automations what is wanted.")] = False,
    block: Annotated[
        str, typer.Option("--block", help="Tell people through this block of the server, e.g. slack-webhook/ops.")
    ] = "",
    cluster: Cluster = "",
    as_json: Json = False,
) -> int:
    """Who is told of what, and what is looked at by itself; without --apply nothing is changed.

    People are told of incidents, failed runs, questions and findings. Where steps become slower, the monitor sweeps the
    run's nodes. One that you switched off on the server's page stays off.

    Example: primus automations --apply --block slack-webhook/ops
    """
    from deployments.automations import show_automations

    return show_automations(cluster, block, apply=apply, as_json=as_json)
