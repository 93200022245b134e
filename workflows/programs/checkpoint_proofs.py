"""Proofs: what was found when a checkpoint was read once, and whether the files are still those.

A restart compares path, size, mtime and inode with the record and reads again only what moved, so resuming terabytes
costs no digest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.checkpoint_formats import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoint_listing import FileFacts
from workflows.reports import FileRecord, Proof, from_json, to_json

FOLDER = "proofs"
KEPT = "kept"
KEPT_RECORD = "kept/"
"""Start of a record's path that describes our own copy, not the trainer's file."""


@dataclass(frozen=True)
class Recheck:
    """A candidate held against its record."""

    moved: Tuple[str, ...]
    """Files that are new, gone, or differ in size, mtime or inode; empty: all is as it was proven."""
    proven: Mapping[str, str]
    """Digest by path of the files that did not move."""


def recheck(files: Sequence[FileFacts], records: Sequence[FileRecord]) -> Recheck:
    """Which files are not those of the record.

    Args:
        files: as they are now.
        records: as they were when they were read.
    """
    known = {record.path: record for record in records}
    same: Dict[str, str] = {}
    moved: List[str] = [path for path in known if path not in {one.path for one in files}]
    for one in files:
        record = known.get(one.path)
        if record is not None and (record.bytes, record.mtime_ns, record.inode) == (one.bytes, one.mtime_ns, one.inode):
            same[one.path] = record.sha256
        else:
            moved.append(one.path)
    return Recheck(tuple(sorted(moved)), same)


def records_of(proof: Proof, kept: bool) -> Tuple[FileRecord, ...]:
    """The records of our own copy, or those of the trainer's files."""
    if not proof.kept_path:
        return () if kept else tuple(proof.files)
    found: List[FileRecord] = []
    for record in proof.files:
        if record.path.startswith(KEPT_RECORD) == kept:
            path = record.path[len(KEPT_RECORD) :] if kept else record.path
            found.append(FileRecord(path, record.bytes, record.mtime_ns, record.inode, record.sha256))
    return tuple(found)


def to_records(files: Iterable[FileFacts], digests: Mapping[str, str], prefix: str = "") -> List[FileRecord]:
    """Records of files and what reading them gave."""
    return [
        FileRecord(prefix + one.path, one.bytes, one.mtime_ns, one.inode, digests.get(one.path, "")) for one in files
    ]


def proof_of(candidate: Candidate, proofs: Sequence[Proof], kept: bool) -> Optional[Proof]:
    """The latest proof about the candidate.

    Paths are compared by their end: the same storage may be mounted elsewhere here than where it was proven.
    """
    end = "/" + (f"{KEPT}/{candidate.path}" if kept else candidate.path)
    about = [proof for proof in proofs if (proof.kept_path if kept else proof.path).endswith(end)]
    return max(about, key=lambda proof: proof.at, default=None)


def read_all(run_dir: str) -> Tuple[Proof, ...]:
    """Every proof of a run; broken ones are left out (their checkpoints are then read again).

    Raises:
        OSError: the storage cannot be read.
    """
    folder = os.path.join(run_dir, FOLDER)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return ()
    found: List[Proof] = []
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                found.append(from_json(Proof, file.read()))
        except (ValueError, FileNotFoundError, RecursionError):
            continue
    return tuple(found)


def step_name(step: int) -> str:
    """Name of a step's proof and folder; one name for all whose step nobody knows."""
    return "step-unknown" if step == UNKNOWN_STEP else f"step-{step}"


def write(run_dir: str, proof: Proof) -> None:
    """Keep a proof as `proofs/step-<n>.json`: whole or not at all.

    Raises:
        OSError: the storage refused.
    """
    folder = os.path.join(run_dir, FOLDER)
    os.makedirs(folder, exist_ok=True)
    write_atomically(os.path.join(folder, f"{step_name(proof.step)}.json"), to_json(proof).encode() + b"\n")


def write_atomically(path: str, data: bytes) -> None:
    """Write `path` so that a reader sees the old or the new content, also after a power cut.

    Raises:
        OSError: the storage refused.
    """
    unfinished = f"{path}.{os.getpid()}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
