"""Examines one candidate: by its proof where no file changed, else by its structure, else by reading it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Dict, Mapping, Optional, Sequence, Set, Tuple

from workflows.programs.checkpoints import integrity, listing, proofs, zip_files
from workflows.programs.checkpoints.candidate import Candidate
from workflows.programs.checkpoints.digest import Digest, Part, digest_files
from workflows.programs.checkpoints.formats import METADATA, TRACKERS
from workflows.programs.checkpoints.integrity import storage_pieces
from workflows.programs.checkpoints.judge import (
    ABSENT,
    BAD,
    COMPLETE,
    CORRUPT,
    OK,
    PARTIAL,
    STALE,
    Evidence,
    Judgement,
    judge,
    texts_wanted,
    tracked_iteration,
)
from workflows.wire import FileRecord, Proof

TEXT_LIMIT_BYTES = 64 << 20
NEVER, NEEDED, ALL = "never", "needed", "all"
"""How much is read: names and headers only; unproven candidates until a usable one is found; everything."""


@dataclass(frozen=True)
class CheckpointFinding:
    """One candidate and the result of its examination."""

    candidate: Candidate
    root: str
    """Folder that `candidate.path` is relative to."""
    step: int
    judgement: Judgement
    usable: bool
    kept: bool = False
    """Whether it is our own copy."""
    bytes_read: int = 0
    digests: Tuple[Tuple[str, str], ...] = ()
    """Path and SHA-256 of its files, as far as they were read now."""

    @property
    def path(self) -> str:
        """Where it lies."""
        return place_of(self.root, self.candidate)


def examine(
    root: str,
    candidate: Candidate,
    proof: Optional[Proof],
    clues: Evidence,
    reading: str,
    kept: bool = False,
    from_storage: bool = False,
) -> CheckpointFinding:
    """Examine one candidate, whose path is relative to `root`.

    `clues` has what is usual among the others; what is read from the storage is added here. `reading` is `never`,
    `needed` or `all`; `kept` marks our own copy; `from_storage` drops the kernel's cache of the files first.
    """
    records = proofs.records_of(proof, kept) if proof is not None else ()
    check = proofs.recheck(candidate.files, records)
    if proof is not None and records and not check.moved and reading != ALL:
        return _finding(root, candidate, _as_proven(proof))
    evidence = _evidence(root, candidate, clues)
    judgement = judge(candidate, evidence)
    if judgement.word != COMPLETE or reading == NEVER:
        return (_finding if judgement.word != COMPLETE else _unread)(root, candidate, judgement)
    wanted = [one.path for one in candidate.files if reading == ALL or one.path not in check.proven]
    read = read_files(root, candidate, wanted, pieces_of(evidence), from_storage)
    digests = {**check.proven, **{path: found.sha256 for path, found in read.items()}}
    wrong = {path: found.why for path, found in read.items() if found.why}
    judgement = judge(candidate, replace(evidence, digests=digests, broken=wrong))
    if has_changed(root, candidate):
        judgement = Judgement(PARTIAL, "it changed while it was read: somebody is still writing it")
    elif judgement.word == COMPLETE and proof is not None and records:
        judgement = against_proof(candidate, judgement, digests, proof, records)
    total = sum(one.bytes for one in read.values())
    return replace(_finding(root, candidate, judgement), bytes_read=total, digests=tuple(sorted(digests.items())))


def against_proof(
    candidate: Candidate, judgement: Judgement, digests: Mapping[str, str], proof: Proof, records: Sequence[FileRecord]
) -> Judgement:
    """Judge a complete candidate whose files changed since the proof: the same content, a later save, or damage."""
    now = {one.path: one for one in candidate.files}
    gone = [record.path for record in records if record.path not in now]
    if gone and candidate.format != "primus":
        return Judgement(PARTIAL, f"{gone[0]} was proven and is gone")
    known = [record for record in records if record.path in now and record.sha256]
    differing = [record for record in known if digests.get(record.path) != record.sha256]
    if not differing:
        return _as_proven(proof)
    if candidate.format == "primus" or proof.verdict != "pass":
        return judgement
    for record in differing:
        if now[record.path].mtime_ns == record.mtime_ns:
            return Judgement(CORRUPT, f"the content of {record.path} changed without being written", BAD)
    untouched = proofs.recheck(candidate.files, records).proven
    if untouched:
        # A later save writes every file; a few changed ones among untouched ones are damage.
        return Judgement(CORRUPT, f"{differing[0].path} changed after it was proven, {min(untouched)} did not", BAD)
    return judgement


def pieces_of(evidence: Evidence) -> Mapping[str, Sequence[Tuple[int, int]]]:
    """Where each tensor of a Distributed Checkpoint lies, by its shard's path; empty for other formats."""
    found: Dict[str, Set[Tuple[int, int]]] = {}
    for path, text in evidence.texts.items():
        if path.endswith(METADATA):
            folder = path[: len(path) - len(path.rpartition("/")[2])]
            for shard, pieces in storage_pieces(text).items():
                found.setdefault(f"{folder}{shard}", set()).update(pieces)
    return {shard: sorted(pieces) for shard, pieces in found.items()}


def read_files(
    root: str,
    candidate: Candidate,
    paths: Sequence[str],
    pieces: Mapping[str, Sequence[Tuple[int, int]]],
    from_storage: bool = False,
) -> Dict[str, Digest]:
    """Digest by path of some of the candidate's files, compared with the checksums inside them."""
    places = {path: os.path.join(folder_of(root, candidate), path) for path in paths}
    parts: Dict[str, Tuple[Part, ...]] = {}
    broken: Dict[str, Digest] = {}
    for path, place in places.items():
        try:
            own = candidate.format == "primus"
            parts[place] = () if own else zip_files.checksummed_parts(place, pieces.get(path, ()))
        except zip_files.UnsoundFileError as error:
            broken[path] = Digest("", 0, str(error))
        except OSError as error:
            broken[path] = Digest("", 0, f"cannot be read: {error.strerror}")
    found = digest_files(list(parts), from_storage=from_storage, parts=parts)
    return {**{path: found[place] for path, place in places.items() if place in found}, **broken}


def has_changed(root: str, candidate: Candidate) -> bool:
    """Whether the files differ from those of the candidate; raises OSError where the storage cannot be read."""
    folder = folder_of(root, candidate)
    return any(listing.file_facts(folder, one.path) != one for one in candidate.files)


def place_of(root: str, candidate: Candidate) -> str:
    """Where a candidate lies whose path is relative to `root`."""
    return os.path.join(root, candidate.path) if candidate.path else root


def folder_of(root: str, candidate: Candidate) -> str:
    """The folder that the candidate's files are relative to."""
    path = place_of(root, candidate)
    return os.path.dirname(path) if candidate.single else path


def read_small(path: str) -> Optional[bytes]:
    """Content of a small file; None where it is missing, too large or unreadable."""
    try:
        with open(path, "rb") as file:
            data = file.read(TEXT_LIMIT_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= TEXT_LIMIT_BYTES else None


def _read_tracker(root: str, candidate: Candidate) -> Tuple[Optional[bytes], int]:
    """The file beside a candidate that names the newest finished one of its format, and its mtime in ns; None: none.

    One that names what does not exist was cut off when it was written: it says nothing.
    """
    name = TRACKERS.get(candidate.format)
    folder = os.path.dirname(os.path.join(root, candidate.path))
    facts = listing.file_facts(folder, name) if name is not None else None
    text = read_small(os.path.join(folder, facts.path)) if facts is not None else None
    if facts is None or text is None:
        return None, 0
    iteration = tracked_iteration(text) if candidate.format == "megatron" else None
    tag = f"iter_{iteration:07d}" if iteration is not None else text.decode("utf-8", "replace").strip()
    return (text if tag and os.path.isdir(os.path.join(folder, tag)) else b""), facts.mtime_ns


def _evidence(root: str, candidate: Candidate, clues: Evidence) -> Evidence:
    folder = folder_of(root, candidate)
    texts: Dict[str, bytes] = {}
    for path in texts_wanted(candidate):
        text = read_small(os.path.join(folder, path))
        if text is not None:
            texts[path] = text
    headers: Dict[str, str] = {}
    if candidate.format != "primus":
        headers = {one.path: _probe(os.path.join(folder, one.path)) for one in candidate.files}
    tracker, mtime_ns = _read_tracker(root, candidate)
    return replace(clues, texts=texts, headers=headers, tracker=tracker, tracker_mtime_ns=mtime_ns)


def _probe(path: str) -> str:
    try:
        return integrity.probe(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _as_proven(proof: Proof) -> Judgement:
    if proof.first_nan_step is not None and proof.step >= proof.first_nan_step:
        return Judgement(STALE, f"at or after the first NaN (step {proof.first_nan_step})", OK)
    if proof.verdict == "pass":
        return Judgement(COMPLETE, "proven when it was written, unchanged since", OK)
    return Judgement(CORRUPT if proof.verdict == "fail" else PARTIAL, proof.why, ABSENT)


def _unread(root: str, candidate: Candidate, judgement: Judgement) -> CheckpointFinding:
    """A candidate that is complete by its structure; where digests exist, that is not enough to be usable."""
    if candidate.format == "primus":
        why = f"{judgement.why}; its digests were not compared, a newer one is usable"
        return replace(_finding(root, candidate, Judgement(COMPLETE, why, ABSENT)), usable=False)
    return _finding(root, candidate, judgement)


def _finding(root: str, candidate: Candidate, judgement: Judgement) -> CheckpointFinding:
    return CheckpointFinding(candidate, root, candidate.step, judgement, judgement.word == COMPLETE)
