"""Copies of our own: a proven checkpoint that the trainer is about to overwrite stays in `kept/step-<n>/`."""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import replace
from typing import List

from workflows.programs import checkpoint_proofs
from workflows.programs.checkpoint_choice import Kept, surplus
from workflows.programs.checkpoint_listing import FileFacts, file_facts
from workflows.reports import FileRecord, Proof

FICLONE = 0x40049409
"""Share the blocks of another file (btrfs, XFS, some network file systems): a copy at no cost."""


def keep_copy(folder: str, run_dir: str, proof: Proof) -> Proof:
    """Copy the proven files of `folder` to `kept/step-<n>`; the proof with what was kept added to its records.

    A hard link would not do: most trainers open the same file for writing and cut it to nothing first, and a link
    shares that fate. Where the file system can share blocks, the copy costs nothing.

    Raises:
        OSError: the storage refused; nothing is left behind under the final name.
    """
    final = os.path.join(run_dir, checkpoint_proofs.KEPT, checkpoint_proofs.step_name(proof.step))
    unfinished = f"{final}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    for record in proof.files:
        _copy(os.path.join(folder, record.path), os.path.join(unfinished, record.path))
    if any(file_facts(folder, record.path) != _facts(record) for record in proof.files):
        shutil.rmtree(unfinished)
        return proof
    kept: List[FileRecord] = []
    for record in proof.files:
        facts = file_facts(unfinished, record.path)
        if facts is not None:
            path = checkpoint_proofs.KEPT_RECORD + record.path
            kept.append(FileRecord(path, facts.bytes, facts.mtime_ns, facts.inode, record.sha256))
    shutil.rmtree(final, ignore_errors=True)
    os.rename(unfinished, final)
    path = os.path.join(final, proof.files[0].path)
    return replace(proof, kept_path=path, files=[*proof.files, *kept])


def prune(run_dir: str, keep: int) -> List[str]:
    """Delete our copies that are no longer needed; the paths that went.

    Raises:
        OSError: the storage cannot be read.
    """
    kept = [
        Kept(
            proof.step,
            os.path.join(run_dir, checkpoint_proofs.KEPT, checkpoint_proofs.step_name(proof.step)),
            proof.verdict == "pass",
        )
        for proof in checkpoint_proofs.read_all(run_dir)
        if proof.kept_path
    ]
    gone = [path for path in surplus([one for one in kept if os.path.isdir(one.path)], keep)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _facts(record: FileRecord) -> FileFacts:
    return FileFacts(record.path, record.bytes, record.mtime_ns, record.inode)


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 4 << 20)
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)
