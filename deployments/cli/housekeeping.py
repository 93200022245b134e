"""`primus gc` and `primus runs rm`: what ended runs left on the storage goes, their history stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from deployments.cli.app import AsJson, app
from deployments.cli.approvals import note_act, open_ledger, who
from deployments.exit_codes import GOOD, out, out_json
from deployments.screen.tables import table
from tasks.runs.housekeeping import Removable, remove, surplus, whole_run
from tasks.settings import Settings

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")]


@app.command("gc")
def collect(*, dry_run: DryRun = False, as_json: AsJson = False) -> int:
    """Remove what no run needs: of ended runs all checkpoints but the newest `checkpoint.keep`, and old programs.

    The newest two usable checkpoints of a run always stay, and so does all of a run that has not ended.

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
