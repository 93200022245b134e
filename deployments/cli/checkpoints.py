"""`primus checkpoints`: which checkpoints a run has, which are complete, and which one a resume would take."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.app import AsJson, app
from deployments.exit_codes import FAILED, GOOD, out, out_json
from deployments.screen.tables import table
from flows.decisions.recovery.resume_rule import lineage
from profiles.errors import NotFound
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of, survey_request
from tasks.settings import Settings
from workflows.programs.checkpoints.inventory import SurveyRequest, look_into, to_states
from workflows.programs.checkpoints.kept_copies import NO_LIMIT, ResumeLimits


@app.command("checkpoints")
def show_checkpoints(
    run_or_path: Annotated[str, typer.Argument(help="Name of a run, or a folder of anybody's checkpoints.")],
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything again instead of trusting proofs.")] = False,
    as_json: AsJson = False,
) -> int:
    """Every checkpoint: complete or not, digest, and which one a resume would take and why.

    Example: primus checkpoints demo-1 --verify
    """
    # 1 where none is usable though some exist.
    request = _request(run_or_path)
    seen = look_into(request, deep=verify)
    rows = [asdict(state) for state in to_states(seen.findings)]
    if as_json:
        out_json(rows)
    elif rows:
        out(table(rows, ("step", "tier", "format", "bytes", "complete", "digest", "usable", "would_resume", "why")))
    else:
        out(f"no checkpoint in {request.directory}")
    for path, why in () if as_json else seen.left_out:
        out(f"could not look into {path}: {why}")
    return FAILED if rows and not any(row["usable"] for row in rows) else GOOD


def _request(run_or_path: str) -> SurveyRequest:
    path = Path(run_or_path)
    if "/" in run_or_path or path.is_dir():
        if not path.is_dir():
            raise NotFound(f"{run_or_path} is no folder")
        return SurveyRequest(str(path), str(path.parent))
    settings = Settings.from_environment(os.environ)
    story = Ledger(settings.ledger_url).story(run_or_path)
    kept = lineage(story.attempts, tuple((item.step, item.path) for item in story.checkpoints))
    limits = ResumeLimits(NO_LIMIT if kept.max_step is None else kept.max_step, kept.exclude)
    return replace(survey_request(resolved_of(story.run), run_or_path), limits=limits)
