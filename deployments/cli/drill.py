"""`primus drill`: break one thing of a running run, for real, and measure detection, decision and recovery."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, Run, app
from deployments.exit_codes import FAILED, GOOD, out, out_json, say
from deployments.screen.live import wait_for
from flows.decisions.views.status import incident_row
from profiles.drill import FaultSpec, parse_fault
from profiles.errors import ProfileError, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import Scene, cause, step_seen
from tasks.settings import Settings
from workflows.model.records import Story

Json = dict[str, Any]

STEP_SECONDS = 600.0
"""A fault that waits for a step waits no longer than this."""
RECOVERY_SECONDS = 300.0
"""A recovery that takes longer is reported as not seen."""
LOOK_SECONDS = 0.005
"""Between two looks at the step file while waiting for a step."""
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


def scene_of(run: str, settings: Settings, ledger: Ledger) -> Scene:
    """The living attempt of a run on an embedded cluster.

    Raises:
        ProfileError: there is nothing to break.
    """
    story = ledger.story(run)
    if story.run.state in FINISHED or story.attempt is None:
        raise ProfileError("RUN", f"{run} is {story.run.state}: nothing runs that could be broken")
    resolved = Resolved.model_validate(story.run.resolved)
    if resolved.cluster.engine != "embedded":
        raise ProfileError("RUN", "drills break things of the embedded cluster only")
    return Scene(settings, ledger, embedded_cluster(resolved.cluster, settings.home), resolved, story.attempt)


def break_at(run: str, spec: FaultSpec, settings: Settings, ledger: Ledger) -> float:
    """Cause the fault as soon as its step was seen; returns when (Unix seconds)."""
    wait_for(ledger, run, _is_up, STEP_SECONDS)
    scene = scene_of(run, settings, ledger)
    deadline = time.monotonic() + STEP_SECONDS
    while spec.step is not None and step_seen(scene) < spec.step:
        if time.monotonic() > deadline:
            raise Unavailable(f"step {spec.step} of {run} was not seen within {STEP_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
    return cause(spec, scene)


def _is_up(story: Story) -> bool:
    attempt = story.attempt
    return attempt is not None and attempt.ended_at is None and attempt.first_step is not None


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
