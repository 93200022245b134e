"""Which checkpoint to resume from, and our own copies of checkpoints in `kept/step-<n>/`.

A copy keeps a proven checkpoint that the trainer is about to overwrite.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import shutil
from dataclasses import dataclass, replace
from typing import Collection, List, Tuple

from workflows.programs.checkpoints import proofs
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP
from workflows.programs.checkpoints.listing import FileFacts, file_facts, list_files
from workflows.programs.checkpoints.surplus import Stored, surplus
from workflows.wire import FileRecord, Proof

NO_LIMIT = -1
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


def why_not(step: int, path: str, limits: ResumeLimits) -> str:
    """Why the limits forbid this checkpoint, or "". A roll-back never goes forward, nor to an unknown step."""
    if limits.max_step != NO_LIMIT and step == UNKNOWN_STEP:
        return f"its step is not known, and nothing after step {limits.max_step} may be taken"
    if limits.max_step != NO_LIMIT and step > limits.max_step:
        return f"later than step {limits.max_step}, to which the run is rolled back"
    if str(step) in limits.excluded or _matches(path, limits.excluded):
        return "excluded: an attempt could not resume from it"
    return ""


def _matches(path: str, excluded: Collection[str]) -> bool:
    return any(path == one or path.endswith("/" + one.strip("/")) for one in excluded if one.strip("/"))


def keep_copy(folder: str, run_dir: str, proof: Proof) -> Proof:
    """Copy the proven files of `folder` to `kept/step-<n>`; the proof with records of the copies.

    A hard link would not do: most trainers open the same file for writing and cut it to nothing first, and a link
    shares that fate. Where the file system can share blocks, the copy costs nothing.

    Raises:
        OSError: the storage refused; nothing is left behind under the final name.
    """
    place = os.path.join(run_dir, proofs.COPIES_FOLDER, proofs.name_of(run_dir, proof))
    name = os.path.basename(proof.path)
    final = os.path.join(place, name) if os.path.abspath(proof.path) == os.path.abspath(folder) else place
    unfinished = f"{place}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    inside = os.path.join(unfinished, os.path.relpath(final, place))
    for record in proof.files:
        _copy(os.path.join(folder, record.path), os.path.join(inside, record.path))
    if any(
        file_facts(folder, record.path) != FileFacts(record.path, record.bytes, record.mtime_ns, record.inode)
        for record in proof.files
    ):
        shutil.rmtree(unfinished)
        return proof
    kept: List[FileRecord] = []
    for record in proof.files:
        facts = file_facts(inside, record.path)
        if facts is not None:
            path = proofs.COPY_RECORD_PREFIX + record.path
            kept.append(FileRecord(path, facts.bytes, facts.mtime_ns, facts.inode, record.sha256))
    shutil.rmtree(place, ignore_errors=True)
    os.rename(unfinished, place)
    path = final if final != place else os.path.join(place, proof.files[0].path)
    return replace(proof, kept_path=path, files=[*proof.files, *kept])


def put_back(directory: str, run_dir: str, kept_path: str) -> str:
    """Put our copy back under the trainer's own name in `directory`; that path.

    What lies there (cut off, or too new for a roll-back) is kept beside it under a hidden name. A new copy is made, so
    that ours stays when the trainer overwrites the other. Done again, it changes nothing that is the same already.

    Raises:
        OSError: the storage refused; the trainer's name then holds what it held, or the whole copy.
    """
    proof = next((one for one in proofs.read_proofs(run_dir) if _is_copy(one, kept_path)), None)
    own_path = proof.path if proof is not None else kept_path
    root, name = os.path.abspath(directory), os.path.basename(own_path)
    if f"/{os.path.basename(root)}/" in own_path and proof is not None:
        name = own_path.rpartition(f"/{os.path.basename(root)}/")[2]
    is_folder = os.path.isdir(kept_path)
    if is_folder and name == os.path.basename(root):
        root = os.path.dirname(root)  # the folder itself is the checkpoint
    source = kept_path if is_folder else os.path.dirname(kept_path)
    target = os.path.join(root, name) if is_folder else os.path.dirname(os.path.join(root, name))
    for one in list_files(source).files:
        if not _is_same(os.path.join(source, one.path), os.path.join(target, one.path)):
            _replace(os.path.join(source, one.path), os.path.join(target, one.path))
    return os.path.join(root, name)


def _is_copy(proof: Proof, kept_path: str) -> bool:
    end = kept_path.rpartition(f"/{proofs.COPIES_FOLDER}/")[2]
    return bool(proof.kept_path) and proof.kept_path.endswith(f"/{proofs.COPIES_FOLDER}/{end}")


def _is_same(source: str, target: str) -> bool:
    # A copy has the size and the time of its source; where those agree nothing is read, which may be terabytes.
    return os.path.isfile(target) and not os.path.islink(target) and filecmp.cmp(source, target)


def _replace(source: str, target: str) -> None:
    folder, name = os.path.split(target)
    unfinished = os.path.join(folder, f".{name}.unfinished")
    _copy(source, unfinished)
    if os.path.lexists(target):
        os.replace(target, os.path.join(folder, f".{name}.put-aside"))
    os.replace(unfinished, target)


def prune_copies(run_dir: str, keep: int) -> List[str]:
    """Delete our copies that are no longer needed; the deleted paths.

    Raises:
        OSError: the storage cannot be read.
    """
    known = [(_folder_of(run_dir, one.kept_path), one) for one in proofs.read_proofs(run_dir) if one.kept_path]
    copies = [(path, Stored(one.step, one.verdict == "pass")) for path, one in known if os.path.isdir(path)]
    gone = [copies[index][0] for index in surplus([one for _, one in copies], keep)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _folder_of(run_dir: str, kept_path: str) -> str:
    """The folder of one copy, `kept/step-<n>`, wherever the storage is mounted here."""
    rest = kept_path.rpartition(f"/{proofs.COPIES_FOLDER}/")[2]
    return os.path.join(run_dir, proofs.COPIES_FOLDER, rest.partition("/")[0])


def _copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 4 << 20)
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)
