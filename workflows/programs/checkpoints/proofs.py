"""Proofs: records of checkpoints that were read once, and whether the files are still the same.

A restart compares path, size, mtime and inode with the record and reads again only files that changed, so resuming
terabytes costs no digest.

Also the owner of a run's folder: it holds the identity of the run's ledger, and no run of another ledger continues
there. Names of runs are unique only within one ledger, and many ledgers may share one storage.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.listing import FileFacts
from workflows.programs.runtime.files import write_atomically
from workflows.wire import FileRecord, Proof, from_json, to_json

FOLDER = "proofs"
COPIES_FOLDER = "kept"
COPY_RECORD_PREFIX = "kept/"
"""Start of a record's path that describes our own copy, not the trainer's file."""

NAME = "ledger"
VARIABLE = "PRIMUS_LEDGER"
"""Environment variable with the identity of the ledger that the run stands in."""


@dataclass(frozen=True)
class Recheck:
    """A candidate compared with its record."""

    moved: Tuple[str, ...]
    """Files that are new, gone, or differ in size, mtime or inode; empty: none changed since the proof."""
    proven: Mapping[str, str]
    """Digest by path of the files that did not move."""


def recheck(files: Sequence[FileFacts], records: Sequence[FileRecord]) -> Recheck:
    """Compare the files of now with the records of the proof."""
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
        if record.path.startswith(COPY_RECORD_PREFIX) == kept:
            path = record.path[len(COPY_RECORD_PREFIX) :] if kept else record.path
            found.append(FileRecord(path, record.bytes, record.mtime_ns, record.inode, record.sha256))
    return tuple(found)


def to_records(files: Iterable[FileFacts], digests: Mapping[str, str], prefix: str = "") -> List[FileRecord]:
    """Records of files with their digests."""
    return [
        FileRecord(prefix + one.path, one.bytes, one.mtime_ns, one.inode, digests.get(one.path, "")) for one in files
    ]


def proof_of(root: str, candidate: Candidate, proofs: Sequence[Proof], kept: bool) -> Optional[Proof]:
    """The latest proof about the candidate, whose path is relative to `root`.

    Paths are compared by their end: the same storage may be mounted elsewhere here than where it was proven.
    """
    path = candidate.path or os.path.basename(os.path.abspath(root))
    end = "/" + (f"{COPIES_FOLDER}/{path}" if kept else path)
    about = [proof for proof in proofs if (proof.kept_path if kept else proof.path).endswith(end)]
    return max(about, key=lambda proof: proof.at, default=None)


def read_proofs(run_dir: str) -> Tuple[Proof, ...]:
    """Every proof of a run; broken ones are left out (their checkpoints are then read again).

    Raises:
        OSError: the storage cannot be read.
    """
    folder = os.path.join(run_dir, FOLDER)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return ()
    found = (_read_proof(os.path.join(folder, name)) for name in names)
    return tuple(proof for proof in found if proof is not None)


def _read_proof(path: str) -> Optional[Proof]:
    try:
        with open(path, "rb") as file:
            return from_json(Proof, file.read())
    except (ValueError, FileNotFoundError, RecursionError):
        return None


def step_name(step: int) -> str:
    """Name of a step's proof and folder; one name for all whose step nobody knows."""
    return "step-unknown" if step == UNKNOWN_STEP else f"step-{step}"


def name_of(run_dir: str, proof: Proof) -> str:
    """Name of a proof's file and of its copy's folder: of its step, and of its path where another one has that step.

    Raises:
        OSError: the storage cannot be read.
    """
    name = step_name(proof.step)
    other = _read_proof(os.path.join(run_dir, FOLDER, f"{name}.json"))
    if other is None or other.path == proof.path:
        return name
    return f"{name}-{hashlib.sha256(proof.path.encode()).hexdigest()[:8]}"


def write_proof(run_dir: str, proof: Proof) -> None:
    """Keep a proof as `proofs/step-<n>.json`: whole or not at all.

    Raises:
        OSError: the storage refused.
    """
    folder = os.path.join(run_dir, FOLDER)
    os.makedirs(folder, exist_ok=True)
    write_atomically(os.path.join(folder, f"{name_of(run_dir, proof)}.json"), to_json(proof).encode() + b"\n")


def drop_proof(run_dir: str, proof: Proof) -> None:
    """Forget what was proven about a checkpoint that is gone; one of which a copy of ours is left is kept.

    Raises:
        OSError: the storage refused.
    """
    if not proof.kept_path:
        path = os.path.join(run_dir, FOLDER, f"{name_of(run_dir, proof)}.json")
        if _read_proof(path) == proof:
            os.unlink(path)


def claim_folder(run_dir: str, ledger: str) -> str:
    """Identity of the other ledger that owns the folder; "" where it is ours.

    A folder without an owner becomes ours: nobody was there yet, or an older version that wrote none.

    The folder is made where it is missing; without an identity nobody asks whose it is.

    Raises:
        OSError: the storage cannot be read or written.
    """
    if ledger and not owner_of(run_dir):
        os.makedirs(run_dir, exist_ok=True)
        _write_once(os.path.join(run_dir, NAME), ledger)
    return other_owner(run_dir, ledger)


def other_owner(run_dir: str, ledger: str) -> str:
    """As `claim_folder`, but writes nothing.

    Raises:
        OSError: the storage cannot be read.
    """
    owner = owner_of(run_dir) if ledger else ""
    return "" if owner == ledger else owner


def owner_of(run_dir: str) -> str:
    """Identity of the ledger that the folder belongs to; "" where none is written there.

    Raises:
        OSError: the storage cannot be read.
    """
    try:
        with open(os.path.join(run_dir, NAME), "rb") as file:
            return file.read(256).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def refusal(run_dir: str, owner: str) -> str:
    """Message about a folder that another ledger owns; short, since the diagnosis cuts long lines."""
    return (
        f"{run_dir} belongs to another ledger ({owner[:8]}): choose another --name; "
        f"where that ledger is lost, delete the file `{NAME}` there"
    )


def _write_once(path: str, ledger: str) -> None:
    # Not by a process's number: many containers call theirs 1.
    unfinished = f"{path}.{ledger}.unfinished"
    write_atomically(unfinished, f"{ledger}\n".encode())
    try:
        os.link(unfinished, path)  # of two who come at once one is first, and stays
    except FileExistsError:
        os.unlink(unfinished)
    except OSError:
        os.replace(unfinished, path)  # a storage without hard links
    else:
        os.unlink(unfinished)
