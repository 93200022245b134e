"""Lists a run's checkpoints on the storage: found, judged and compared with their proofs, newest usable first.

It connects the pure modules `formats`, `judge`, `proofs` and `kept_copies`. `choose` and `prover` use it in pods, the
command that lists checkpoints on the host. The step of a file without one in its name is the last step that was
reported before the file was written.
"""

from __future__ import annotations

import glob
import json
import os
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, cast

from workflows.programs.checkpoints import formats, kept_copies
from workflows.programs.checkpoints import proofs as checkpoints_proofs
from workflows.programs.checkpoints.examine import ALL, NEEDED, NEVER, CheckpointFinding, examine, read_small
from workflows.programs.checkpoints.formats import TRACKER, UNKNOWN_STEP, Candidate, find_candidates
from workflows.programs.checkpoints.judge import COMPLETE, STALE, Evidence, Judgement, usual_names
from workflows.programs.checkpoints.kept_copies import NO_LIMITS, ResumeLimits
from workflows.wire import LINE_PREFIX, CheckpointState, Proof

Row = Tuple[float, int]
"""Unix time in seconds and step of a report."""

TAIL_BYTES = 1 << 20
"""So much of the end of each record of steps is read: some 10,000 steps."""
LATE_SECONDS = 0.25
LATE_SHARE = 0.25
"""A line is read a little after it was printed, on a busy machine later than a small file is written: a step reported
so soon after the file belongs before it. The delay is at most this share of the shortest step nearby, or a slow save
would count as such a delay."""
NEARBY = 3
"""Steps on either side from which the shortest step is taken."""

KEPT_FOLDER = re.compile(r"^step-(unknown|[0-9]{1,18})$")
TIER = "durable"
"""Everything in the run's folder lies on shared storage."""


def reported_step(run_dir: str, mtime_ns: int) -> int:
    """The last step in any attempt's `steps.jsonl` that was over by `mtime_ns`; `UNKNOWN_STEP` where there is none."""
    latest: Optional[Row] = None
    for path in glob.glob(os.path.join(glob.escape(run_dir), "a[0-9]*", "*", "steps.jsonl")):
        found = _last_by(path, mtime_ns / 1e9)
        if found is not None and (latest is None or found > latest):
            latest = found
    return UNKNOWN_STEP if latest is None else latest[1]


def _last_by(path: str, moment: float) -> Optional[Row]:
    before: List[Row] = []
    after: List[Row] = []
    for line in reversed(_last_lines(path)):
        for row in _parse_row(line):
            (before if row[0] <= moment else after).append(row)
        if len(before) >= NEARBY:
            break
    times = sorted(at for at, _ in before[:NEARBY] + after[-NEARBY:])
    shortest = min((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)  # noqa: B905, RUF007 - 3.10
    if after and after[-1][0] - moment <= min(LATE_SECONDS, shortest * LATE_SHARE):
        return after[-1]
    return before[0] if before else None


def _last_lines(path: str) -> List[bytes]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().splitlines()
    except OSError:
        return []


def _parse_row(line: bytes) -> Iterator[Row]:
    text = line.decode("utf-8", "replace")
    try:
        data = json.loads(text[len(LINE_PREFIX) :] if text.startswith(LINE_PREFIX) else text)
    except (ValueError, RecursionError):
        return
    if isinstance(data, dict):
        seen = cast("Dict[str, Any]", data)
        at, step = seen.get("at"), seen.get("step")
        if isinstance(at, (int, float)) and isinstance(step, int):
            yield float(at), step


@dataclass(frozen=True)
class SurveyRequest:
    """Folders, format and limits of a survey."""

    directory: str
    """The trainer's checkpoint folder."""
    run_dir: str
    """The run's own folder, with `proofs` and `kept`."""
    format: str = "auto"
    pattern: str = ""
    limits: ResumeLimits = NO_LIMITS
    reading: str = NEEDED
    counter_restarts: bool = False
    """Steps in names start again after a resume: the reported step at the time of writing counts instead."""


def list_checkpoints(
    directory: str,
    run_dir: str,
    format: str = "auto",
    pattern: str = "",
    max_step: int = -1,
    excluded: Sequence[str] = (),
    deep: bool = False,
) -> List[CheckpointState]:
    """Every checkpoint, newest first; `would_resume` marks the one a resume would take.

    `format` is a word of profiles (`auto` recognises by content), `pattern` for `pattern` a regular expression on file
    names with a group `step`; `max_step` is the limit of a roll-back (-1: none), `excluded` has steps or paths; `deep`
    reads everything again, also what is proven.

    Raises:
        OSError: the storage cannot be read.
        ValueError: format or pattern is wrong.
    """
    limits = ResumeLimits(max_step, tuple(excluded))
    reading = ALL if deep else NEEDED
    return to_states(survey(SurveyRequest(directory, run_dir, format, pattern, limits, reading)))


def survey(request: SurveyRequest) -> List[CheckpointFinding]:
    """All candidates, newest first, each with its judgement.

    Raises:
        OSError: the storage cannot be read.
        ValueError: format or pattern is wrong.
    """
    if request.format == "none":
        return []
    proofs = checkpoints_proofs.read_proofs(request.run_dir)
    placed = _locations(request, proofs)
    tracker = read_small(os.path.join(request.directory, TRACKER))
    findings: List[CheckpointFinding] = []
    settled = False
    for one in placed:
        forbidden = kept_copies.why_not(one.step, os.path.join(one.root, one.candidate.path), request.limits)
        reading = NEVER if (settled or forbidden) and request.reading == NEEDED else request.reading
        others = tuple(other.candidate for other in placed if other is not one and not other.kept)
        usual = frozenset[str]() if one.kept else usual_names(one.candidate, others)
        proof = checkpoints_proofs.proof_of(one.candidate, proofs, one.kept)
        clues = Evidence(tracker=tracker, usual_names=usual)
        found = examine(one.root, one.candidate, proof, clues, reading, one.kept)
        found = _within_limits(replace(found, step=one.step), forbidden)
        settled = settled or found.usable
        findings.append(found)
    return findings


def to_states(findings: Sequence[CheckpointFinding]) -> List[CheckpointState]:
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
class _Location:
    """A candidate with its folder and its true step."""

    candidate: Candidate
    root: str
    step: int
    kept: bool


def _locations(request: SurveyRequest, proofs: Sequence[Proof]) -> List[_Location]:
    """The trainer's checkpoints and our own copies, newest first; of equals the trainer's comes first."""
    listing = formats.list_files(request.directory)
    found = [
        _Location(one, request.directory, _step(one, request, proofs), kept=False)
        for one in find_candidates(listing, request.format, request.pattern)
    ]
    kept_root = os.path.join(request.run_dir, checkpoints_proofs.COPIES_FOLDER)
    found += [_Location(one, kept_root, one.step, kept=True) for one in kept_candidates(kept_root)]
    return sorted(found, key=lambda one: (one.step, not one.kept, one.candidate.newest_mtime_ns()), reverse=True)


def kept_candidates(kept_root: str) -> List[Candidate]:
    """Our own copies: `step-<n>` folders, each with the files of one checkpoint.

    Raises:
        OSError: the storage cannot be read.
    """
    listing = formats.list_files(kept_root)
    found: List[Candidate] = []
    for folder in listing.folders:
        match = KEPT_FOLDER.match(folder)
        files = listing.below(folder)
        if match is not None and files:
            step = UNKNOWN_STEP if match.group(1) == "unknown" else int(match.group(1))
            found.append(Candidate("pattern", step, f"{folder}/{files[0].path}", files, single=True))
    return found


def _step(candidate: Candidate, request: SurveyRequest, proofs: Sequence[Proof]) -> int:
    """Step in the name, else in the proof, else the last step reported before it was written."""
    if candidate.step != UNKNOWN_STEP and not request.counter_restarts:
        return candidate.step
    proof = checkpoints_proofs.proof_of(candidate, proofs, kept=False)
    if proof is not None:
        records = checkpoints_proofs.records_of(proof, kept=False)
        if not checkpoints_proofs.recheck(candidate.files, records).moved:
            return proof.step
    return reported_step(request.run_dir, candidate.newest_mtime_ns())


def _within_limits(found: CheckpointFinding, forbidden: str) -> CheckpointFinding:
    """A complete candidate that the limits forbid is stale; a fault outweighs that it is forbidden."""
    if not forbidden or found.judgement.word != COMPLETE:
        return found
    return replace(found, usable=False, judgement=Judgement(STALE, forbidden, found.judgement.digest))
