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

from workflows.programs.checkpoints import kept_copies, listing
from workflows.programs.checkpoints import proofs as checkpoints_proofs
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.examine import ALL, NEEDED, NEVER, CheckpointFinding, examine, folder_of, place_of
from workflows.programs.checkpoints.formats import find_candidates
from workflows.programs.checkpoints.judge import COMPLETE, STALE, Evidence, Judgement, usual
from workflows.programs.checkpoints.kept_copies import NO_LIMITS, ResumeLimits
from workflows.programs.checkpoints.listing import Listing
from workflows.programs.checkpoints.names import step_of
from workflows.wire import LINE_PREFIX, CheckpointState, Proof

Row = Tuple[float, int]
"""Unix time in seconds and step of a report."""

TAIL_BYTES = 1 << 20
"""So much of the end of each record of steps is read: some 10,000 steps."""
SHORT_TAIL_BYTES = 1 << 14
"""So much where only the last steps are of interest."""
LATE_SECONDS = 0.25
LATE_SHARE = 0.25
"""A line is read a little after it was printed, on a busy machine later than a small file is written: a step reported
so soon after the file belongs before it. The delay is at most this share of the shortest step nearby, or a slow save
would count as such a delay."""
ENOUGH_PAIRS = 2
"""Reports in a row, one less, from which the pace of steps is told."""
QUICKEST_SECONDS = 1e-4
"""Reports that are closer together were read together."""
NEARBY = 3
"""Steps on either side from which the shortest step is taken."""

KEPT_FOLDER = re.compile(r"^step-(unknown|[0-9]{1,18})(?:-[0-9a-f]{8})?$")
TIER = "durable"
"""Everything in the run's folder lies on shared storage."""


class ReportedSteps:
    """The steps that all attempts of a run have reported, with their times, as they stand in its folder."""

    def __init__(self, run_dir: str) -> None:
        found = glob.glob(os.path.join(glob.escape(run_dir), "a[0-9]*", "*", "steps.jsonl"))
        self._paths = sorted(found, key=_modified_at, reverse=True)
        self._logs: Dict[Tuple[str, int], List[Row]] = {}

    def before(self, mtime_ns: int) -> int:
        """The last step that was over by `mtime_ns`; `UNKNOWN_STEP` where there is none."""
        rows = (_last_by(self._read(path, TAIL_BYTES), mtime_ns / 1e9) for path in self._paths)
        return max((row for row in rows if row is not None), default=(0.0, UNKNOWN_STEP))[1]

    def may_have_reached(self, step: int, mtime_ns: int) -> bool:
        """Whether the run may have made `step` by then, or reported it since: a file's number may be no step at all.

        Steps that were not reported yet count at the pace of the reports; where there are too few, anything may be.
        """
        possible = UNKNOWN_STEP
        for path in self._paths:
            log = self._read(path, SHORT_TAIL_BYTES)
            if any(reported >= step for _, reported in log):
                return True
            possible = max(possible, _possible_step(log, mtime_ns / 1e9))
        return possible == UNKNOWN_STEP or step <= possible

    def _read(self, path: str, count: int) -> List[Row]:
        if (path, count) not in self._logs:
            self._logs[(path, count)] = [row for line in _last_lines(path, count) for row in _parse_row(line)]
        return self._logs[(path, count)]


def _modified_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _possible_step(log: Sequence[Row], moment: float) -> int:
    """The furthest step that an attempt with these reports may have made by `moment`; `UNKNOWN_STEP`: not known."""
    pairs = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in zip(log, log[1:])]  # noqa: B905, RUF007 - 3.10
    forward = [(seconds, steps) for seconds, steps in pairs if steps > 0]
    if len(forward) < ENOUGH_PAIRS:
        return UNKNOWN_STEP
    widest = max(steps for _, steps in forward)
    quickest = max(steps / max(seconds, QUICKEST_SECONDS) for seconds, steps in forward)
    return int(log[-1][1] + 2 * widest + quickest * max(0.0, moment - log[-1][0]))


def _last_by(rows: Sequence[Row], moment: float) -> Optional[Row]:
    before = [row for row in rows if row[0] <= moment]
    after = [row for row in rows if row[0] > moment]
    times = sorted(at for at, _ in before[-NEARBY:] + after[:NEARBY])
    shortest = min((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)  # noqa: B905, RUF007 - 3.10
    if after and after[0][0] - moment <= min(LATE_SECONDS, shortest * LATE_SHARE):
        return after[0]
    return before[-1] if before else None


def _last_lines(path: str, count: int) -> List[bytes]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - count))
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


@dataclass(frozen=True)
class Survey:
    """What a look at a run's checkpoints found."""

    findings: Tuple[CheckpointFinding, ...] = ()
    """Newest first."""
    left_out: Tuple[Tuple[str, str], ...] = ()
    """Relative path and reason of what could not be looked into."""

    @property
    def unseen(self) -> Tuple[Tuple[str, str], ...]:
        """Of these what may be a checkpoint by its name."""
        return tuple(one for one in self.left_out if step_of(one[0].rpartition("/")[2]) is not None)


def largest_file_of_the_newest(request: SurveyRequest) -> str:
    """Path of the largest file of the newest whole checkpoint, by names and headers; "": none but copies of ours.

    Raises:
        OSError: the storage cannot be read.
    """
    found = look_into(replace(request, reading=NEVER)).findings
    whole = [one for one in found if one.judgement.word == COMPLETE and not one.kept]
    if not whole:
        return ""
    newest = max(whole, key=lambda one: one.step)
    largest = max(newest.candidate.files, key=lambda one: one.bytes)
    return os.path.join(folder_of(newest.root, newest.candidate), largest.path)


def look_into(request: SurveyRequest, deep: bool = False) -> Survey:
    """All candidates, newest first, each with its judgement; of equal steps what is proven goes before the rest.

    `deep` reads everything again, also what is proven.

    Raises:
        OSError: the storage cannot be read.
        ValueError: format or pattern is wrong.
    """
    request = replace(request, reading=ALL) if deep else request
    if request.format == "none":
        return Survey()
    proofs = checkpoints_proofs.read_proofs(request.run_dir)
    found = listing.list_files(request.directory)
    places = _places(request, found, proofs)
    findings: List[CheckpointFinding] = []
    settled = False
    for one in places:
        forbidden = kept_copies.why_not(one.step, place_of(one.root, one.candidate), request.limits)
        reading = NEVER if (settled or forbidden) and request.reading == NEEDED else request.reading
        others = () if one.kept else tuple(other.candidate for other in places if other is not one and not other.kept)
        clues = Evidence() if one.is_proven else usual(one.candidate, others)
        finding = examine(one.root, one.candidate, one.proof, clues, reading, one.kept)
        finding = _within_limits(replace(finding, step=one.step, kept=one.kept), forbidden)
        settled = settled or finding.usable
        findings.append(finding)
    return Survey(tuple(findings), found.left_out)


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
class _Place:
    """A candidate with its folder, its true step and the proof about it."""

    candidate: Candidate
    root: str
    step: int
    kept: bool
    proof: Optional[Proof]

    @property
    def is_proven(self) -> bool:
        """Whether it passed, and no file has changed since."""
        if self.proof is None or self.proof.verdict != "pass":
            return False
        records = checkpoints_proofs.records_of(self.proof, self.kept)
        return bool(records) and not checkpoints_proofs.recheck(self.candidate.files, records).moved

    def rank(self) -> Tuple[int, bool, bool, int]:
        """Sorts the newest step last; of equal ones a proof goes before a look, the trainer's own before our copy."""
        return self.step, self.is_proven, not self.kept, self.candidate.newest_mtime_ns()


def _places(request: SurveyRequest, found: Listing, proofs: Sequence[Proof]) -> List[_Place]:
    """The trainer's checkpoints and our own copies, newest first."""
    reported = ReportedSteps(request.run_dir)
    places: List[_Place] = []
    for one in find_candidates(found, request.format, request.pattern):
        proof = checkpoints_proofs.proof_of(request.directory, one, proofs, kept=False)
        step = true_step(one, proof, reported, request.counter_restarts)
        places.append(_Place(one, request.directory, step, False, proof))
    kept_root = os.path.join(request.run_dir, checkpoints_proofs.COPIES_FOLDER)
    for one in kept_candidates(kept_root, proofs):
        proof = checkpoints_proofs.proof_of(kept_root, one, proofs, kept=True)
        places.append(_Place(one, kept_root, one.step, True, proof))
    return sorted(places, key=_Place.rank, reverse=True)


def kept_candidates(kept_root: str, proofs: Sequence[Proof]) -> List[Candidate]:
    """Our own copies: `step-<n>` folders, each with the files of one checkpoint, or its folder.

    Raises:
        OSError: the storage cannot be read.
    """
    found = listing.list_files(kept_root)
    candidates: List[Candidate] = []
    for folder in found.folders:
        match = KEPT_FOLDER.match(folder)
        files = found.below(folder)
        if match is None or not files:
            continue
        step = UNKNOWN_STEP if match.group(1) == "unknown" else int(match.group(1))
        proof = next((one for one in proofs if f"/{folder}/" in one.kept_path), None)
        name = proof.kept_path.rpartition("/")[2] if proof is not None else files[0].path
        form = proof.format if proof is not None else "pattern"
        inside = found.below(f"{folder}/{name}")
        candidates.append(Candidate(form, step, f"{folder}/{name}", inside or files, single=not inside))
    return candidates


def true_step(candidate: Candidate, proof: Optional[Proof], reported: ReportedSteps, counter_restarts: bool) -> int:
    """Step in the name where the run may have made it, else in the proof, else the last one reported before it."""
    written_at = candidate.newest_mtime_ns()
    if (
        candidate.step != UNKNOWN_STEP
        and not counter_restarts
        and reported.may_have_reached(candidate.step, written_at)
    ):
        return candidate.step
    if proof is not None:
        records = checkpoints_proofs.records_of(proof, kept=False)
        if not checkpoints_proofs.recheck(candidate.files, records).moved:
            return proof.step
    return reported.before(written_at)


def _within_limits(found: CheckpointFinding, forbidden: str) -> CheckpointFinding:
    """A complete candidate that the limits forbid is stale; a fault outweighs that it is forbidden."""
    if not forbidden or found.judgement.word != COMPLETE:
        return found
    return replace(found, usable=False, judgement=Judgement(STALE, forbidden, found.judgement.digest))
