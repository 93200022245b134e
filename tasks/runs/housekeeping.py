"""What of ended runs may go from the storage: checkpoints beyond those that the profile keeps, and all of a run.

Nothing of a run that lives, may go on at this moment or belongs to another ledger is touched, and nothing that another
run's profile names. The history stays in the ledger.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiles.errors import Conflict, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from tasks.lease import is_alive
from tasks.ledger.ledger import Ledger
from tasks.programs_archive import present_folder
from tasks.runs.open import checkpoint_folder, resolved_of, run_folder, survey_request
from workflows.model.records import RunRecord
from workflows.programs.checkpoints import proofs
from workflows.programs.checkpoints.inventory import look_into, to_states
from workflows.wire import CheckpointState

BAD = "bad"
ALWAYS_KEPT = 2
"""Usable checkpoints that stay whatever a profile says."""


@dataclass(frozen=True)
class Removable:
    """A file or a folder that may go."""

    path: Path
    bytes: int
    run: str
    """"": it belongs to no run."""
    why: str


def beyond(states: Sequence[CheckpointState], keep: int, needed: Sequence[int]) -> list[CheckpointState]:
    """Whole checkpoints older than the newest `keep` usable ones (two at least), but those of `needed` steps.

    What is damaged or of an unknown step is evidence and stays; so do all where fewer are known to be usable.
    """
    usable, kept = usable_steps(states), max(ALWAYS_KEPT, keep)
    if len(usable) < kept:
        return []
    whole = [one for one in states if one.complete and one.digest != BAD and one.step >= 0]
    return [one for one in whole if one.step < usable[kept - 1] and one.step not in needed and not one.would_resume]


def usable_steps(states: Sequence[CheckpointState]) -> list[int]:
    """Steps of which a usable checkpoint is there, the newest first."""
    return sorted({one.step for one in states if one.usable and one.step >= 0}, reverse=True)


def surplus(ledger: Ledger, home: Path) -> Iterator[Removable]:
    """What `primus gc` removes; looks only.

    Raises:
        Unavailable: the ledger does not answer, or a storage cannot be read.
    """
    runs = ledger.runs()
    for run in runs:
        if not why_kept(run, runs, ledger, home):
            yield from _old_checkpoints(run, ledger)
    if all(run.state in FINISHED for run in runs):
        yield from _old_programs(home)


def why_kept(run: RunRecord, runs: Sequence[RunRecord], ledger: Ledger, home: Path) -> str:
    """Why nothing of a run may be removed now; "" where it may."""
    if run.state not in FINISHED:
        return f"it is {run.state.value}: primus stop {run.name} ends it"
    lease = ledger.lease(run.name)
    if lease is not None and is_alive(lease.driver) is not False and lease.expires_at > ledger.database.clock():
        return f"its driver still lives (process {lease.driver.pid} on {lease.driver.host})"
    if any(attempt.submitted_at is not None and attempt.ended_at is None for attempt in ledger.attempts(run.name)):
        return "the end of its last attempt is not written down yet: its pods may live"
    folder = run_folder(resolved_of(run), run.name)
    if (elsewhere := _other_home(folder, home)) is not None:
        return f"{folder} lies in another home, {elsewhere}: this one may be a copy of it"
    owner = proofs.owner_of(str(folder))
    if owner not in ("", ledger.identity()):
        return f"{folder} belongs to the run {run.name} of another ledger ({owner[:8]})"
    other = next((one.name for one in runs if one.name != run.name and _names(one, folder)), "")
    return f"the profile of run {other}, which has not ended, names a file of it" if other else ""


def _other_home(folder: Path, home: Path) -> Path | None:
    return next((one for one in folder.parents if one != home and (one / "ledger.sqlite").exists()), None)


def _names(run: RunRecord, folder: Path) -> bool:
    return run.state not in FINISHED and f"{folder}/" in f"{json.dumps(run.resolved)}/".replace('"', "/")


def _old_checkpoints(run: RunRecord, ledger: Ledger) -> Iterator[Removable]:
    resolved = resolved_of(run)
    folder, policy = checkpoint_folder(resolved, run.name), resolved.run.checkpoint
    if not folder.is_relative_to(run_folder(resolved, run.name)) or not folder.is_dir():
        return  # shared with others, or not mounted here
    request = survey_request(resolved, run.name)
    try:
        states = to_states(look_into(request).findings)
        kept = max(ALWAYS_KEPT, policy.keep)
        if len(usable_steps(states)) < kept < len(states):
            # A resume reads no further than the first usable one; here those that stay must be known to be so.
            states = to_states(look_into(request, deep=True).findings)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the checkpoints of {run.name} cannot be looked into: {error}") from error
    # From which the last attempt went on: its first step proves the resume.
    needed = [step for one in ledger.attempts(run.name)[-1:] if (step := one.resumed_from_step) is not None]
    for one in beyond(states, policy.keep, needed):
        path = Path(one.path)
        if path.is_relative_to(folder) and path != folder:
            yield Removable(path, size_of(path), run.name, f"step {one.step}: older than the newest {policy.keep}")


def _old_programs(home: Path) -> Iterator[Removable]:
    """Archives of programs of an older state of the code, where no run lives that might use one."""
    here = present_folder(home)
    for path in sorted((home / "programs").glob("*/")):
        if path != here and not _used(path):
            yield Removable(path, size_of(path), "", "programs of an older version")


def _used(path: Path) -> bool:
    """Whether a living process was started from it."""
    mark = os.fsencode(path)
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in one.read_bytes():
                return True
        except OSError:
            continue
    return False


def whole_run(name: str, ledger: Ledger, home: Path) -> list[Removable]:
    """Everything that lies anywhere of an ended run; looks only.

    Raises:
        NotFound: the ledger knows no such run.
        Conflict: it may not be removed now; the message says why.
    """
    run, runs = ledger.story(name).run, ledger.runs()
    if why := why_kept(run, runs, ledger, home):
        raise Conflict(f"nothing of {name} is removed: {why}")
    resolved: Resolved = resolved_of(run)
    folders = (run_folder(resolved, name), home / "runs" / name)
    return [Removable(one, size_of(one), name, "all of the run") for one in folders if one.is_dir()]


def remove(found: Removable) -> None:
    """Remove it; safe to repeat. A folder gets another name first, so that nobody takes half of it for whole.

    Raises:
        Unavailable: it cannot be removed.
    """
    try:
        if found.path.is_dir() and not found.path.is_symlink():
            leaving = found.path.with_name(f".{found.path.name}.removed")
            if leaving.exists():
                shutil.rmtree(leaving)
            found.path.rename(leaving)
            shutil.rmtree(leaving)
        else:
            found.path.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{found.path} cannot be removed: {error.strerror or error}") from error


def size_of(path: Path) -> int:
    """Bytes on the disk of a file, or of all files below a folder."""
    if not path.is_dir() or path.is_symlink():
        return _bytes(path)
    return sum(_bytes(Path(folder) / name) for folder, _, names in os.walk(path) for name in names)


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
