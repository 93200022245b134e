"""`primus drill`: break one thing of a running run, for real, and measure detection, decision and recovery."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from deployments.cli.app import AsJson, Run, app
from deployments.cli.approvals import who
from deployments.exit_codes import FAILED, GOOD, out, out_json, say
from profiles.drill import parse_fault
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import break_at, scene_of, step_seen
from tasks.settings import Settings


@app.command("drill")
def run_drill(
    run: Run,
    fault: Annotated[str, typer.Option("--fault", help="What to break, e.g. lose-node:node-1,step=50.")],
    *,
    as_json: AsJson = False,
) -> int:
    """Break one thing of a running run, for real, and measure detection, decision and recovery.

    Example: primus drill demo-1 --fault kill-rank:1,step=40
    """
    spec = parse_fault(fault)  # before Prefect is imported, which takes seconds
    from flows.drill import measure

    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    at = break_at(run, spec, settings, ledger, who())
    say(f"{spec} at step {step_seen(scene_of(run, settings, ledger))}")
    document = measure(run, spec, at, ledger)
    if as_json:
        out_json(document)
    else:
        out("\n".join(f"{key}: {value}" for key, value in document.items()))
    return FAILED if document["recovered"] is False else GOOD
