"""Which checkpoint to resume from, and our own copies of checkpoints in `kept/step-<n>/`.

A copy keeps a proven checkpoint that the trainer is about to overwrite.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass, replace
from typing import Collection, List, Sequence, Tuple

from workflows.programs.checkpoints import proofs
from workflows.programs.checkpoints.formats import UNKNOWN_STEP, FileFacts, file_facts
from workflows.wire import FileRecord, Proof

NO_LIMIT = -1
ALWAYS_KEPT = 2
"""The newest two usable ones are never deleted, whatever a profile says."""

FICLONE = 0x40049409
"""Share the blocks of another file (btrfs, XFS, some network file systems): a copy at no cost."""


@dataclass(frozen=True)
class ResumeLimits:
    """Limits on the checkpoint to resume from."""

    max_step: int = NO_LIMIT
    """Highest step, for a roll-back; `NO_LIMIT`: any."""
    excluded: Tuple[str, ...] = ()
    """Steps (as text) or paths of checkpoints that failed."""


NO_LIMITS = ResumeLimits()


@dataclass(frozen=True)
class OwnCopy:
    """One of our own copies."""

    step: int
    path: str
    usable: bool


def why_not(step: int, path: str, limits: ResumeLimits) -> str:
    """Why the limits forbid this checkpoint, or "". A roll-back never goes forward, nor to an unknown step."""
    if limits.max_step != NO_LIMIT and step == UNKNOWN_STEP:
        return f"its step is not known, and nothing after step {limits.max_step} may be taken"
    if limits.max_step != NO_LIMIT and step > limits.max_step:
        return f"later than step {limits.max_step}, to which the run is rolled back"
    if str(step) in limits.excluded or _matches(path, limits.excluded):
        return "excluded: an attempt could not resume from it"
    return ""


def surplus_copies(kept: Sequence[OwnCopy], keep: int) -> Tuple[str, ...]:
    """Our copies that may be deleted: older than the newest `keep` usable ones, of which there are at least two."""
    usable = sorted({one.step for one in kept if one.usable}, reverse=True)
    protected = usable[: max(ALWAYS_KEPT, keep)]
    if len(protected) < ALWAYS_KEPT:
        return ()
    return (
        tuple(one.path for one in kept if one.step < protected[-1]) if len(protected) >= max(ALWAYS_KEPT, keep) else ()
    )


def _matches(path: str, excluded: Collection[str]) -> bool:
    return any(path == one or path.endswith("/" + one.strip("/")) for one in excluded if one.strip("/"))


def keep_copy(folder: str, run_dir: str, proof: Proof) -> Proof:
    """Copy the proven files of `folder` to `kept/step-<n>`; the proof with records of the copies.

    A hard link would not do: most trainers open the same file for writing and cut it to nothing first, and a link
    shares that fate. Where the file system can share blocks, the copy costs nothing.

    Raises:
        OSError: the storage refused; nothing is left behind under the final name.
    """
    final = os.path.join(run_dir, proofs.COPIES_FOLDER, proofs.step_name(proof.step))
    unfinished = f"{final}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    for record in proof.files:
        _copy(os.path.join(folder, record.path), os.path.join(unfinished, record.path))
    if any(
        file_facts(folder, record.path) != FileFacts(record.path, record.bytes, record.mtime_ns, record.inode)
        for record in proof.files
    ):
        shutil.rmtree(unfinished)
        return proof
    kept: List[FileRecord] = []
    for record in proof.files:
        facts = file_facts(unfinished, record.path)
        if facts is not None:
            path = proofs.COPY_RECORD_PREFIX + record.path
            kept.append(FileRecord(path, facts.bytes, facts.mtime_ns, facts.inode, record.sha256))
    shutil.rmtree(final, ignore_errors=True)
    os.rename(unfinished, final)
    path = os.path.join(final, proof.files[0].path)
    return replace(proof, kept_path=path, files=[*proof.files, *kept])


def prune_copies(run_dir: str, keep: int) -> List[str]:
    """Delete our copies that are no longer needed; the deleted paths.

    Raises:
        OSError: the storage cannot be read.
    """
    kept = [
        OwnCopy(
            proof.step,
            os.path.join(run_dir, proofs.COPIES_FOLDER, proofs.step_name(proof.step)),
            proof.verdict == "pass",
        )
        for proof in proofs.read_proofs(run_dir)
        if proof.kept_path
    ]
    gone = [path for path in surplus_copies([one for one in kept if os.path.isdir(one.path)], keep)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 4 << 20)
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)
