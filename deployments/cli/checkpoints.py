"""`primus checkpoints`, `gc` and `runs rm`: what runs have on their storage, what a resume would take, what may go.

What ended runs left there goes, their history stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.app import AsJson, app
from deployments.cli.approvals import note_act, open_ledger, who
from deployments.exit_codes import FAILED, GOOD, out, out_json
from deployments.screen.tables import table
from flows.decisions.recovery.resume_rule import lineage
from profiles.errors import NotFound
from tasks.ledger.ledger import Ledger
from tasks.runs.housekeeping import Removable, remove, surplus, whole_run
from tasks.runs.open import resolved_of, survey_request
from tasks.settings import Settings
from workflows.model.checkpoints import removed
from workflows.model.records import CheckpointRecord
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
    if not as_json and (gone := _removed(run_or_path)):
        size = sum(one.bytes for one in gone) / 1e9
        out(f"{len(gone)} older ones were removed while it ran ({size:.3f} GB), the newest of step {gone[-1].step}")
    for path, why in () if as_json else seen.left_out:
        out(f"could not look into {path}: {why}")
    return FAILED if rows and not any(row["usable"] for row in rows) else GOOD


def _removed(run_or_path: str) -> list[CheckpointRecord]:
    """Which checkpoints of the run went while it lived; none of a folder of anybody's."""
    if _is_path(run_or_path):
        return []
    return removed(Ledger(Settings.from_environment(os.environ).ledger_url).checkpoints(run_or_path))


def _is_path(run_or_path: str) -> bool:
    return "/" in run_or_path or Path(run_or_path).is_dir()


def _request(run_or_path: str) -> SurveyRequest:
    path = Path(run_or_path)
    if _is_path(run_or_path):
        if not path.is_dir():
            raise NotFound(f"{run_or_path} is no folder")
        return SurveyRequest(str(path), str(path.parent))
    settings = Settings.from_environment(os.environ)
    story = Ledger(settings.ledger_url).story(run_or_path)
    kept = lineage(story.attempts, tuple((item.step, item.path) for item in story.checkpoints))
    limits = ResumeLimits(NO_LIMIT if kept.max_step is None else kept.max_step, kept.exclude)
    return replace(survey_request(resolved_of(story.run), run_or_path), limits=limits)


DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")]


@app.command("gc")
def collect(*, dry_run: DryRun = False, as_json: AsJson = False) -> int:
    """Remove what no run needs: of ended runs all checkpoints but the newest `checkpoint.keep`, and old programs.

    The newest two usable checkpoints of a run always stay, and so does all of a run that has not ended. What goes
    without anybody's command, `checkpoint.remove_surplus` and the cluster profile's `retention` say.

    Example: primus gc --dry-run
    """
    settings = Settings.from_environment(os.environ)
    found = list(surplus(open_ledger(), settings.home))
    runs = list(dict.fromkeys(one.run for one in found if one.run))
    if not dry_run:
        note_act("", "gc", f"{len(found)} files and folders are removed, {_size(sum(one.bytes for one in found))}")
    return _done(found, "gc", runs, dry_run=dry_run, as_json=as_json)


def remove_runs(names: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    """Remove the files of ended runs; all of them are looked at before any is touched.

    Raises:
        NotFound: the ledger knows no such run.
        Conflict: one may not be removed now; nothing was.
    """
    settings, ledger = Settings.from_environment(os.environ), open_ledger()
    found = [one for name in dict.fromkeys(names) for one in whole_run(name, ledger, settings.home)]
    if not dry_run:
        for name in dict.fromkeys(names):
            # Before anything goes: a run that has lost its checkpoints is never taken up again.
            ledger.forget_files(name, who())
    return _done(found, "", (), dry_run=dry_run, as_json=as_json)


def _done(found: Sequence[Removable], act: str, runs: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    if not dry_run:
        for one in found:
            remove(one)
        for run in runs:
            mine = [one for one in found if one.run == run]
            note_act(run, act, f"{len(mine)} checkpoints removed, {_size(sum(one.bytes for one in mine))}")
    rows = [{"path": str(one.path), "bytes": one.bytes, "run": one.run, "why": one.why} for one in found]
    if as_json:
        out_json({"removed": not dry_run, "bytes": sum(one.bytes for one in found), "found": rows})
        return GOOD
    if rows:
        out(table([{**row, "size": _size(int(str(row["bytes"])))} for row in rows], ("run", "size", "path", "why")))
    total = _size(sum(one.bytes for one in found))
    out(f"{total} would go; nothing was removed" if dry_run else f"{total} removed")
    return GOOD


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
