"""What of ended runs may go from the storage: checkpoints beyond those that the profile keeps, and all of a run.

Nothing of a run that lives, may go on at this moment or belongs to another ledger is touched, and nothing that another
run's profile names. The history stays in the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.cluster import ClusterProfile, Retention
from profiles.errors import Conflict, PrimusError, Unavailable
from profiles.vocabulary import FINISHED
from tasks.context import world
from tasks.lease import is_alive
from tasks.ledger.ledger import Ledger
from tasks.processes import own_user
from tasks.programs_archive import present_folder
from tasks.runs.open import checkpoint_folder, resolved_of, run_folder, storage_root, survey_request
from workflows.model.checkpoints import forbidden
from workflows.model.records import RunRecord
from workflows.programs.checkpoints import proofs
from workflows.programs.checkpoints import surplus as checkpoints_surplus
from workflows.programs.checkpoints.inventory import NEVER, Survey, SurveyRequest, look_into
from workflows.programs.checkpoints.kept_copies import NO_LIMIT, ResumeLimits
from workflows.programs.checkpoints.surplus import ALWAYS_KEPT, beyond, entries_of

DAY_SECONDS = 86400.0
LEAST_DAYS = 1.0
"""What ended less long ago keeps its folder though it is large: somebody may want to go on with it."""


@dataclass(frozen=True)
class Removable:
    """A file or a folder that may go, or one checkpoint."""

    path: Path
    bytes: int
    run: str
    """"": it belongs to no run."""
    why: str
    entries: tuple[str, ...] = ()
    """Names of the files beside `path` that belong to it; empty: it alone."""
    whole_run: bool = False
    """With it goes what a run could go on from."""


def surplus(ledger: Ledger, home: Path) -> Iterator[Removable]:
    """What `primus gc` removes; looks only.

    Raises:
        Unavailable: the ledger does not answer, or a storage cannot be read.
    """
    runs = ledger.runs()
    for run in runs:
        if not why_kept(run, runs, ledger, home):
            yield from _old_checkpoints(run, ledger, reads=True)
    yield from _old_programs_of(runs, home)


def automatic(ledger: Ledger, home: Path, profile: ClusterProfile, now: float) -> Iterator[Removable]:
    """What goes without a person; looks only. Nothing of another cluster's runs, and only what a profile asks for.

    Raises:
        Unavailable: the ledger does not answer, or a storage cannot be read.
    """
    runs, retention = ledger.runs(), profile.retention
    ended = [one for one in runs if one.cluster == profile.name and one.state in FINISHED]
    asking = retention != Retention()
    wanted = [one for one in ended if asking or resolved_of(one).run.checkpoint.remove_surplus != "by_hand"]
    mine = [one for one in wanted if not why_kept(one, runs, ledger, home)]
    gone = _folders_beyond(mine, retention, home, now)
    for run in mine:
        if run.name in gone:
            yield from _folders_of(run, home, gone[run.name])
        elif resolved_of(run).run.checkpoint.remove_surplus != "by_hand":
            yield from _old_checkpoints(run, ledger, reads=False)
    if asking:
        yield from _old_programs_of(runs, home)


def clean_up(profile: ClusterProfile) -> list[tuple[str, str]]:
    """Remove what the profiles ask for of a cluster's ended runs; each run ("": none) and what was removed, in words.

    Every removal stands in the run's history. One that fails is said, and tried again at the next call.

    Raises:
        Unavailable: the ledger does not answer, or a storage cannot be read.
    """
    here, by = world(), own_user()
    found = list(automatic(here.ledger, here.settings.home, profile, here.now()))
    said: list[tuple[str, str]] = []
    for run in dict.fromkeys(one.run for one in found):
        mine = [one for one in found if one.run == run]
        try:
            if any(one.whole_run for one in mine):
                here.ledger.forget_files(run, by)  # before anything goes: it is never taken up again
            for one in mine:
                remove(one)
        except PrimusError as error:
            said.append((run, f"not removed: {error}"))
            continue
        size = sum(one.bytes for one in mine) / 1e9
        what = f"the monitor removed {len(mine)} checkpoints, folders or archives, {size:.3f} GB: {mine[0].why}"
        here.ledger.act(run, "gc", what, by)
        said.append((run, what))
    return said


def why_blind(profile: ClusterProfile) -> str:
    """Why nothing that lies on the cluster's storage can be removed from here; "": it can."""
    root = storage_root(profile)
    return "" if root.is_dir() else f"the storage of {profile.name} is not mounted here ({root})"


@dataclass(frozen=True)
class EndedRun:
    """An ended run as retention sees it."""

    run: str
    ended_at: float
    """Unix time in seconds."""
    bytes: int
    why: str = ""


def beyond_retention(ended: Sequence[EndedRun], retention: Retention, now: float) -> list[EndedRun]:
    """Runs whose folders go, with why; of those that are too large together the one that ended first goes first."""
    old, left = list[EndedRun](), list[EndedRun]()
    days = retention.run_folders_days
    for one in sorted(ended, key=lambda item: (item.ended_at, item.run)):
        is_old = bool(days) and now - one.ended_at >= days * DAY_SECONDS
        why = f"it ended {(now - one.ended_at) / DAY_SECONDS:.1f} days ago, retention.run_folders_days is {days:g}"
        (old if is_old else left).append(replace(one, why=why) if is_old else one)
    limit, total = retention.run_folders_bytes, sum(one.bytes for one in left)
    for one in left if limit else ():
        if total <= limit or now - one.ended_at < LEAST_DAYS * DAY_SECONDS:
            break
        why = f"ended runs take {total} bytes, retention.run_folders_bytes is {limit}"
        old.append(replace(one, why=why))
        total -= one.bytes
    return old


def _folders_beyond(runs: Sequence[RunRecord], retention: Retention, home: Path, now: float) -> dict[str, str]:
    """Why the folders of which of these ended runs go, by name."""
    if retention == Retention():
        return {}
    weighed = [(one, [found.bytes for found in _folders_of(one, home, "")]) for one in runs]
    ended = [EndedRun(one.name, one.ended_at, sum(sizes)) for one, sizes in weighed if sizes and one.ended_at]
    return {one.run: one.why for one in beyond_retention(ended, retention, now)}


def _old_programs_of(runs: Sequence[RunRecord], home: Path) -> Iterator[Removable]:
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


def _old_checkpoints(run: RunRecord, ledger: Ledger, *, reads: bool) -> Iterator[Removable]:
    resolved = resolved_of(run)
    folder, policy = checkpoint_folder(resolved, run.name), resolved.run.checkpoint
    if not folder.is_relative_to(run_folder(resolved, run.name)) or not folder.is_dir():
        return  # shared with others, or not mounted here
    attempts = ledger.attempts(run.name)
    max_step, excluded = forbidden(attempts, ((item.step, item.path) for item in ledger.checkpoints(run.name)))
    limits = ResumeLimits(NO_LIMIT if max_step is None else max_step, excluded)
    request = replace(survey_request(resolved, run.name), limits=limits)
    try:
        # Whoever looks again and again cannot read terabytes each time: then only what was proven counts.
        seen = _looked_into(request, policy.keep) if reads else look_into(replace(request, reading=NEVER))
        found = [one for one in seen.findings if not one.kept]
        named = checkpoints_surplus.named(str(folder), [one.candidate for one in found], request.run_dir)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the checkpoints of {run.name} cannot be looked into: {error}") from error
    # From which the last attempt went on: its first step proves the resume.
    needed = [step for one in attempts[-1:] if (step := one.resumed_from_step) is not None]
    for one in beyond(found, policy.keep, policy.keep_every_steps, needed, named, proven=not reads):
        if checkpoints_surplus.lies_within(one.root, one.candidate, request.run_dir):
            place, names = entries_of(one.root, one.candidate)
            paths = [Path(place) / name for name in names]
            why = f"step {one.step}: older than the newest {max(ALWAYS_KEPT, policy.keep)}"
            yield Removable(paths[0], sum(map(size_of, paths)), run.name, why, tuple(names))
    for place in sorted({str(folder), *(entries_of(one.root, one.candidate)[0] for one in found)}):
        for path in map(Path, checkpoints_surplus.left_overs(place)):
            yield Removable(path, size_of(path), run.name, "left by a removal that was cut off")


def _looked_into(request: SurveyRequest, keep: int) -> Survey:
    found = look_into(request)
    usable, kept = {one.step for one in found.findings if one.usable and one.step >= 0}, max(ALWAYS_KEPT, keep)
    # A resume reads no further than the first usable one; here those that stay must be known to be so.
    return look_into(request, deep=True) if len(usable) < kept < len(found.findings) else found


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
    return list(_folders_of(run, home, "all of the run"))


def _folders_of(run: RunRecord, home: Path, why: str) -> Iterator[Removable]:
    for folder in (run_folder(resolved_of(run), run.name), home / "runs" / run.name):
        left = Path(checkpoints_surplus.left_over(str(folder)))
        for path in (folder, left):
            if path.is_dir():
                yield Removable(path, size_of(path), run.name, why, whole_run=True)


def remove(found: Removable) -> None:
    """Remove it; safe to repeat. It gets another name first, so that nobody takes half of it for whole.

    Raises:
        Unavailable: it cannot be removed.
    """
    try:
        checkpoints_surplus.remove(str(found.path.parent), found.entries or (found.path.name,))
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
