"""`primus drill`: break one thing of a running run, for real, and measure detection, decision and recovery."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, Run, app
from deployments.cli.approvals import who
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from profiles.drill import parse_fault
from profiles.errors import ProfileError
from tasks.settings import Settings

PutBack = Annotated[bool, typer.Option("--put-back", help="Put back what drills of the run broke, and end.")]


def drill_text(document: dict[str, Any]) -> str:
    """The result of a drill for people: what it was, how it came back, and the incident in full."""
    from deployments.screen.views import incident_lines
    from flows.drill import in_words

    head = f"{document['fault']}: {in_words(document)}"
    if "signal" not in document:
        return head
    return "\n".join([head, "", *incident_lines(document)])


@app.command("drill")
def run_drill(
    run: Run,
    fault: Annotated[str, typer.Option("--fault", help="What to break, e.g. lose-node:node-1,step=50.")] = "",
    *,
    put_back: PutBack = False,
    as_json: AsJson = False,
) -> int:
    """Break one thing of a running run, for real, and measure detection, decision and recovery.

    At its end the drill puts back what it broke; where it was killed before, --put-back does. Exit code 3: it waits for
    a person, so whether it comes back was not seen.

    Example: primus drill demo-1 --fault kill-rank:1,step=40
    """
    if bool(fault) == put_back:
        raise ProfileError("--fault", "name one fault to cause, or say --put-back")
    spec = parse_fault(fault) if fault else None  # before Prefect is imported, which takes seconds
    settings = Settings.from_environment(os.environ)
    os.environ.setdefault("DO_NOT_TRACK", "1")  # read when Prefect is imported, which otherwise talks of itself
    from tasks.context import at_hand

    with at_hand(settings) as here:
        if spec is None:
            from tasks.runs.put_back import put_back_all

            done = put_back_all(run, who())
            said = "\n".join(done) or "nothing is left to put back"
            out_json({"run": run, "put_back": done}) if as_json else out(said)
            return GOOD
        from flows.drill import measured
        from tasks.runs.faults import break_at, scene_of, step_seen

        at = break_at(run, spec, settings, here.ledger, who(), say)
        goes_on(f"stopped measuring; {run} comes back. Put back what is still broken: primus drill {run} --put-back")
        say(f"{spec} at step {step_seen(scene_of(run, settings, here.ledger))}")
        document = measured(run, spec, at, here.ledger, who(), say)
    out_json(document) if as_json else out(drill_text(document))
    return FAILED if document["recovered"] is False else UNKNOWN if document.get("waits_for") else GOOD
