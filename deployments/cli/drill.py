"""`primus drill`: break one thing of a running run, for real, and measure detection, decision and recovery."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, Run, app
from deployments.exit_codes import FAILED, GOOD, out, out_json, say
from flows.decisions.views.status import incident_row
from profiles.drill import FaultSpec, parse_fault
from profiles.errors import Unavailable
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import break_at, scene_of, step_seen, wait_for
from tasks.settings import Settings
from workflows.model.records import Story

Json = dict[str, Any]

RECOVERY_SECONDS = 300.0
"""A recovery that takes longer is reported as not seen."""
HARMLESS = frozenset({"stop-rank", "slow-rank", "kill-coordinator", "kill-flow", "api-away", "ledger-away"})
"""Faults that training outlives: nothing is to be recovered."""
ASLEEP = {
    "corrupt-checkpoint": "nothing is to be expected until a resume: it was proven when it was written, and is not "
    "read before; a resume goes on from the next older proven one; cause one, e.g. with --fault kill-rank:0"
}
"""Faults that nobody notices by themselves, and why."""


@app.command()
def drill(
    run: Run,
    fault: Annotated[str, typer.Option("--fault", help="What to break, e.g. lose-node:node-1,step=50.")],
    as_json: AsJson = False,
) -> int:
    """Break one thing of a running run, for real, and measure detection, decision and recovery.

    Example: primus drill demo-1 --fault kill-rank:1,step=40
    """
    return run_drill(run, fault, as_json=as_json)


def run_drill(run: str, fault: str, *, as_json: bool) -> int:
    """Break, wait for the recovery, report."""
    spec = parse_fault(fault)
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    before = len(ledger.story(run).troubles)
    at = break_at(run, spec, settings, ledger)
    say(f"{spec} at step {step_seen(scene_of(run, settings, ledger))}")
    document = _measure(run, spec, at, before, ledger)
    if as_json:
        out_json(document)
    else:
        out("\n".join(f"{key}: {value}" for key, value in document.items()))
    return FAILED if document["recovered"] is False else GOOD


def _measure(run: str, spec: FaultSpec, at: float, before: int, ledger: Ledger) -> Json:
    """What followed. `recovered` is None where nothing is to be recovered yet."""
    if spec.kind in ASLEEP:
        return {"fault": str(spec), "recovered": None, "why": ASLEEP[spec.kind]}
    if spec.kind in HARMLESS:
        return _still_stepping(run, spec, at, ledger)
    try:
        story = wait_for(ledger, run, lambda story: _came_back(story, before), RECOVERY_SECONDS)
    except Unavailable as error:
        story = ledger.story(run)
        row = incident_row(story.troubles[before]) if len(story.troubles) > before else {}
        return {"fault": str(spec), "recovered": False, "why": str(error), **row}
    return {"fault": str(spec), "recovered": True, **incident_row(story.troubles[before])}


def _came_back(story: Story, before: int) -> bool:
    if len(story.troubles) <= before:
        return False
    return story.troubles[before].resumed_at is not None


def _still_stepping(run: str, spec: FaultSpec, at: float, ledger: Ledger) -> Json:
    def stepped(story: Story) -> bool:
        return any(row.at > at + spec.seconds for row in ledger.steps(story.run.name))

    try:
        story = wait_for(ledger, run, stepped, RECOVERY_SECONDS)
    except Unavailable as error:
        return {"fault": str(spec), "recovered": False, "why": str(error)}
    after = next(row for row in ledger.steps(run) if row.at > at + spec.seconds)
    return {
        "fault": str(spec),
        "recovered": True,
        "why": "training went on by itself",
        "next_step": after.step,
        "next_step_after_seconds": round(after.at - at, 3),
        "attempts": len(story.attempts),
    }
