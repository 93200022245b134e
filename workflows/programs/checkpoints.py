"""Checkpoints of a run as they lie on the storage: found, judged, held against their proofs, newest usable first.

The shell around the pure modules `checkpoint_formats`, `checkpoint_judgement`, `checkpoint_proofs` and
`checkpoint_choice`. Used inside pods by `verify` and `prove`, and on the host by the command that lists checkpoints.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import List, Sequence

from workflows.programs import checkpoint_choice, checkpoint_listing, checkpoint_proofs
from workflows.programs.checkpoint_choice import NO_LIMITS, Limits
from workflows.programs.checkpoint_examine import ALL, NEEDED, NEVER, Finding, examine, read_small
from workflows.programs.checkpoint_formats import TRACKER, UNKNOWN_STEP, Candidate, recognise
from workflows.programs.checkpoint_judgement import COMPLETE, STALE, Evidence, Judgement, usual_names
from workflows.programs.checkpoint_steps import reported_step
from workflows.reports import CheckpointState, Proof

KEPT_FOLDER = re.compile(r"^step-(unknown|[0-9]{1,18})$")
TIER = "durable"
"""Everything in the run's folder lies on shared storage."""


@dataclass(frozen=True)
class Request:
    """Where to look, and for what."""

    directory: str
    """The trainer's checkpoint folder."""
    run_dir: str
    """The run's own folder, with `proofs` and `kept`."""
    format: str = "auto"
    pattern: str = ""
    limits: Limits = NO_LIMITS
    reading: str = NEEDED
    counter_restarts: bool = False
    """Steps in names start again after a resume: the reported step at the time of writing counts instead."""


def look(
    directory: str,
    run_dir: str,
    format: str = "auto",
    pattern: str = "",
    max_step: int = -1,
    excluded: Sequence[str] = (),
    deep: bool = False,
) -> List[CheckpointState]:
    """Every checkpoint, newest first; `would_resume` marks the one a resume would take.

    Args:
        directory: the trainer's checkpoint folder.
        run_dir: the run's own folder.
        format: a word of profiles (`auto` recognises by content).
        pattern: for `pattern`: regular expression on file names with a group `step`.
        max_step: roll-back limit; -1: none.
        excluded: steps or paths not to be taken.
        deep: read everything again, also what is proven.

    Raises:
        OSError: the storage cannot be read.
        ValueError: format or pattern is wrong.
    """
    limits = Limits(max_step, tuple(excluded))
    reading = ALL if deep else NEEDED
    return states(survey(Request(directory, run_dir, format, pattern, limits, reading)))


def survey(request: Request) -> List[Finding]:
    """All candidates, newest first, each with its judgement.

    Raises:
        OSError: the storage cannot be read.
        ValueError: format or pattern is wrong.
    """
    if request.format == "none":
        return []
    proofs = checkpoint_proofs.read_all(request.run_dir)
    placed = _placed(request, proofs)
    tracker = read_small(os.path.join(request.directory, TRACKER))
    findings: List[Finding] = []
    settled = False
    for one in placed:
        forbidden = checkpoint_choice.why_not(one.step, os.path.join(one.root, one.candidate.path), request.limits)
        reading = NEVER if (settled or forbidden) and request.reading == NEEDED else request.reading
        others = tuple(other.candidate for other in placed if other is not one and not other.kept)
        usual = frozenset[str]() if one.kept else usual_names(one.candidate, others)
        proof = checkpoint_proofs.proof_of(one.candidate, proofs, one.kept)
        clues = Evidence(tracker=tracker, usual_names=usual)
        found = examine(one.root, one.candidate, proof, clues, reading, one.kept)
        found = _limited(replace(found, step=one.step), forbidden)
        settled = settled or found.usable
        findings.append(found)
    return findings


def states(findings: Sequence[Finding]) -> List[CheckpointState]:
    """The findings in the shape that users see."""
    chosen = next((index for index, found in enumerate(findings) if found.usable), None)
    return [
        CheckpointState(
            step=found.step,
            path=found.path,
            tier=TIER,
            format=found.candidate.format,
            bytes=found.candidate.total_bytes(),
            complete=found.judgement.word in (COMPLETE, STALE),
            digest=found.judgement.digest,
            usable=found.usable,
            why=found.judgement.why,
            would_resume=index == chosen,
        )
        for index, found in enumerate(findings)
    ]


@dataclass(frozen=True)
class _Placed:
    """A candidate, where it lies and which step it really is."""

    candidate: Candidate
    root: str
    step: int
    kept: bool


def _placed(request: Request, proofs: Sequence[Proof]) -> List[_Placed]:
    """The trainer's checkpoints and our own copies, newest first; of equals the trainer's comes first."""
    listing = checkpoint_listing.take(request.directory)
    found = [
        _Placed(one, request.directory, _step(one, request, proofs), kept=False)
        for one in recognise(listing, request.format, request.pattern)
    ]
    kept_root = os.path.join(request.run_dir, checkpoint_proofs.KEPT)
    found += [_Placed(one, kept_root, one.step, kept=True) for one in kept_candidates(kept_root)]
    return sorted(found, key=lambda one: (one.step, not one.kept, one.candidate.newest_mtime_ns()), reverse=True)


def kept_candidates(kept_root: str) -> List[Candidate]:
    """Our own copies: `step-<n>` folders, each with the files of one checkpoint.

    Raises:
        OSError: the storage cannot be read.
    """
    listing = checkpoint_listing.take(kept_root)
    found: List[Candidate] = []
    for folder in listing.folders:
        match = KEPT_FOLDER.match(folder)
        files = listing.below(folder)
        if match is not None and files:
            step = UNKNOWN_STEP if match.group(1) == "unknown" else int(match.group(1))
            found.append(Candidate("pattern", step, f"{folder}/{files[0].path}", files, single=True))
    return found


def _step(candidate: Candidate, request: Request, proofs: Sequence[Proof]) -> int:
    """As the name says; else as it was proven; else the last step reported before it was written."""
    if candidate.step != UNKNOWN_STEP and not request.counter_restarts:
        return candidate.step
    proof = checkpoint_proofs.proof_of(candidate, proofs, kept=False)
    if proof is not None:
        records = checkpoint_proofs.records_of(proof, kept=False)
        if not checkpoint_proofs.recheck(candidate.files, records).moved:
            return proof.step
    return reported_step(request.run_dir, candidate.newest_mtime_ns())


def _limited(found: Finding, forbidden: str) -> Finding:
    """A whole one that may not be taken is stale; what is wrong with one outweighs that it may not be taken."""
    if not forbidden or found.judgement.word != COMPLETE:
        return found
    return replace(found, usable=False, judgement=Judgement(STALE, forbidden, found.judgement.digest))
