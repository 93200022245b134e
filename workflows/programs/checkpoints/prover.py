"""The background prover: reads each checkpoint once when it is written and records what it found.

A low-priority child of one launcher. It polls the checkpoint folder, waits until a checkpoint is whole and unchanged
for two looks, says so (a CheckpointSeen line, verdict unknown), reads it back from the storage, writes
`proofs/step-<n>.json`, keeps a copy of a file that the trainer overwrites in place, and prints a CheckpointSeen line
with the verdict. Lines on its standard input: `nan <step>` (checkpoints from that step on are not good, however
complete), `look` (something was saved: look at once), `surplus <ledger> <path>` (what nobody needs may go now, but for
what the ranks resumed from); their end is the end of the attempt: one last look, then it exits with 0.

    python3 programs.pyz prove --directory=/data/runs/x/checkpoints --run-dir=/data/runs/x

"""

from __future__ import annotations

import os
import select
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from workflows.programs.checkpoints import listing as listings
from workflows.programs.checkpoints import names
from workflows.programs.checkpoints import proofs as checkpoints_proofs
from workflows.programs.checkpoints import surplus as checkpoints_surplus
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP, Candidate
from workflows.programs.checkpoints.examine import (
    NEEDED,
    NEVER,
    CheckpointFinding,
    examine,
    folder_of,
    has_changed,
    place_of,
)
from workflows.programs.checkpoints.formats import find_candidates
from workflows.programs.checkpoints.inventory import ReportedSteps, true_step
from workflows.programs.checkpoints.judge import COMPLETE, CORRUPT, Evidence, usual
from workflows.programs.checkpoints.kept_copies import keep_copy, prune_copies
from workflows.programs.checkpoints.listing import FileFacts, Listing
from workflows.programs.checkpoints.surplus import Stored, entries_of
from workflows.programs.runtime import flags
from workflows.wire import REMOVED, UNRECOGNISED, CheckpointSeen, Proof, line

Signature = Tuple[FileFacts, ...]
Proofs = Sequence[Proof]

NICENESS = 10
NO_NAN = -1
CORRUPT_AFTER_LOOKS = 4
"""Looks that must find a broken file unchanged before it counts as corrupt: until then it may still be written."""
GIVE_WAY_SECONDS = 2.0
"""A look that has read for so long ends, since a newer checkpoint, which is worth more, may have come."""
LEAST_STATE_BYTES = 1024
UNRECOGNISED_AFTER_LOOKS = 20
"""Looks (10 s by default) that must find a folder unchanged before that is said: a save may take long."""
EVERYTHING_EACH_LOOKS = 20
"""Every so many looks (10 s by default) settled folders are listed too, to notice a file overwritten in place."""


@dataclass(frozen=True)
class CandidateMemory:
    """What the prover remembers about one candidate between two looks."""

    signature: Signature
    look_count: int = 1
    """Looks in a row that found it unchanged."""
    settled: bool = False
    """Whether everything about its present state is reported."""


def remember(previous: Optional[CandidateMemory], signature: Signature, counts: bool = True) -> CandidateMemory:
    """The memory after one more look.

    `counts` is False for a requested look, which may come right after another one, so that a file still being written
    would seem to be at rest.
    """
    if previous is None or previous.signature != signature:
        return CandidateMemory(signature, int(counts))
    return replace(previous, look_count=previous.look_count + counts)


def is_at_rest(candidate: Candidate, now: CandidateMemory) -> bool:
    """Whether it is at rest: our own format, whose folder gets its name last, is so from the first look on."""
    return not now.settled and (now.look_count >= 2 or candidate.format == "primus")


def resume_path_in_place(found: CheckpointFinding, since_ns: int) -> str:
    """Resume argument for a restart in place from this checkpoint; "": only a new attempt may resume it.

    Nobody reads the storage before a restart in place. So this attempt must have written the checkpoint (an older one
    may have been passed over), the next save must not overwrite it, and its path alone must identify it, which it does
    not where a tracker file names the iteration.
    """
    candidate = found.candidate
    older = candidate.newest_mtime_ns() < since_ns
    return "" if older or candidate.overwritten or candidate.format == "megatron" else found.path


def is_of_state(one: FileFacts) -> bool:
    """Whether a file may hold a training program's state: it is no log, no event of a tool, and not tiny."""
    name = one.path.rpartition("/")[2]
    return one.bytes >= LEAST_STATE_BYTES and not names.is_apart(one.path) and not names.IS_NOTE.search(name)


class LineInput:
    """Reads lines of standard input without blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self.ended = False

    def lines(self, wait_seconds: float) -> List[str]:
        """What arrived within `wait_seconds`; returns early when something does."""
        if self.ended:
            return []
        ready, _, _ = select.select([self._descriptor], [], [], wait_seconds)
        if not ready:
            return []
        data = os.read(self._descriptor, 65536)
        self.ended = not data
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [text.decode("utf-8", "replace") for text in whole]


class ReportOutput:
    """Prints the prover's reports on standard output; a failing storage is printed once, and tried again."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._complained = ""

    def print_reports(self, ask: Callable[[], List[CheckpointSeen]]) -> None:
        """Print a line for each report of `ask`."""
        try:
            for report in ask():
                self.print_report(report)
            self._complained = ""
        except OSError as error:
            why = f"{error.strerror or error} ({error.filename})"
            if why != self._complained:
                report = CheckpointSeen(UNKNOWN_STEP, self._directory, time.time(), "unknown", why)
                self.print_report(report)
            self._complained = why

    def print_report(self, report: CheckpointSeen) -> None:
        """Print one report's line."""
        print(line(report), flush=True)


@dataclass(frozen=True)
class Options(flags.Flags):
    """What to watch."""

    directory: str
    """The trainer's checkpoint folder."""
    run_dir: str
    """The run's own folder."""
    format: str = "auto"
    pattern: str = ""
    keep: int = 3
    """Copies of our own to keep; the newest two usable ones stay in any case."""
    keep_overwritten: bool = True
    remove_surplus: bool = False
    """Delete what nobody needs any more, whenever a line says that it may go now."""
    keep_every_steps: int = 0
    """Of each so many steps the oldest stays for good; 0: none does."""
    counter_restarts: bool = False
    """Steps in names start again after a resume: the last reported step counts instead."""
    poll_seconds: float = 0.5


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    if not 0 < options.poll_seconds <= 60:
        raise flags.UsageError(f"--poll-seconds: must be between 0 and 60, got {options.poll_seconds}")
    return options


def _ignore(_report: CheckpointSeen) -> None:
    """Nobody listens."""


class Prover:
    """Watches one folder; `tell` is called at once with each checkpoint that is complete but was not read yet."""

    def __init__(self, options: Options, tell: Callable[[CheckpointSeen], None] = _ignore) -> None:
        self.options = options
        self._tell = tell
        self._whole: Dict[str, Signature] = {}
        """What was told of so."""
        self.first_nan_step = NO_NAN
        self.behind = False
        """The last look gave way before everything was proven."""
        self._memory: Dict[str, CandidateMemory] = {}
        self._passed: Dict[int, Proof] = {}
        self._looks = 0
        self._known = Listing(options.directory)
        self._places: Dict[str, Tuple[int, int]] = {}
        self._since_ns = time.time_ns()
        self._unchanged_looks = 0
        """Looks in a row that found files of this attempt, the same ones, and no whole checkpoint."""

    def take_line(self, text: str) -> List[CheckpointSeen]:
        """Handle one line of standard input; `nan` withdraws proofs of later steps.

        Raises:
            OSError: the storage refused.
        """
        words = text.split()
        if words == ["look"]:
            return self.look(asked=True)
        if words[:1] == ["surplus"] and len(words) > 1:
            return self.remove_surplus(words[1], text.split(None, 2)[2] if len(words) > 2 else "")
        if len(words) != 2 or words[0] != "nan" or not words[1].isdigit():
            return []
        step = int(words[1])
        self.first_nan_step = step if self.first_nan_step == NO_NAN else min(step, self.first_nan_step)
        taken_back: List[CheckpointSeen] = []
        for proof in [one for at, one in self._passed.items() if at >= self.first_nan_step]:
            del self._passed[proof.step]
            why = self._after_nan()
            checkpoints_proofs.write_proof(
                self.options.run_dir, replace(proof, verdict="fail", why=why, first_nan_step=self.first_nan_step)
            )
            size = sum(record.bytes for record in checkpoints_proofs.records_of(proof, kept=False))
            taken_back.append(CheckpointSeen(proof.step, proof.path, time.time(), "fail", why, size, proof.format))
        return taken_back

    def look(self, asked: bool = False) -> List[CheckpointSeen]:
        """One look: reports on newly proven or broken checkpoints, newest first; it ends early when it takes long.

        A requested look (`asked`) proves only our own format, which needs no second look: its folder gets its name when
        all is written and synced, and its manifest holds the digest of every file.

        Raises:
            OSError: the storage cannot be read.
        """
        before, give_way_at = self._known, time.monotonic() + GIVE_WAY_SECONDS
        self.behind = False
        listing = self._listing()
        self._report_unrecognised(listing, listing == before)
        if listing == before and all(one.settled for one in self._memory.values()):
            return []
        candidates = find_candidates(listing, self.options.format, self.options.pattern)
        proofs = checkpoints_proofs.read_proofs(self.options.run_dir)
        memory = {one.path: remember(self._memory.get(one.path), one.files, not asked) for one in candidates}
        due = {one.path: usual(one, candidates) for one in candidates if is_at_rest(one, memory[one.path])}
        self._report_complete([(one, due[one.path]) for one in candidates if one.path in due], proofs)
        seen: List[CheckpointSeen] = []
        for candidate in candidates:
            now = memory[candidate.path]
            if seen and not now.settled and time.monotonic() > give_way_at:
                self.behind = True
            elif candidate.path in due:
                report = self._prove(candidate, due[candidate.path], now.look_count, proofs)
                if report is not None:
                    memory[candidate.path] = replace(now, settled=True)
                    seen.append(report)
        self._memory = memory
        return [report for report in seen if report.path]

    def remove_surplus(self, ledger: str, resume_from: str) -> List[CheckpointSeen]:
        """Delete proven checkpoints beyond those that the profile keeps; reports on those that are gone.

        `ledger`: identity of the one that says so; it must own the run's folder. `resume_from`: what the ranks resumed
        from, which stays. It ends early when it takes long: the next line goes on.

        Raises:
            OSError: the storage refused.
        """
        options = self.options
        if not options.remove_surplus or checkpoints_proofs.owner_of(options.run_dir) != ledger:
            return []
        candidates = find_candidates(self._known, options.format, options.pattern)
        if len(candidates) <= max(checkpoints_surplus.ALWAYS_KEPT, options.keep):
            return []
        folders = {options.directory, *(entries_of(options.directory, one)[0] for one in candidates)}
        checkpoints_surplus.finish_removals(sorted(folders))
        gone: List[CheckpointSeen] = []
        give_way_at = time.monotonic() + GIVE_WAY_SECONDS
        for candidate, proof in self._surplus(candidates, resume_from):
            if gone and time.monotonic() > give_way_at:
                return gone
            if not has_changed(options.directory, candidate):
                checkpoints_surplus.remove(*entries_of(options.directory, candidate))
                gone.append(self._forget(candidate, proof))
        return gone

    def _surplus(self, candidates: Sequence[Candidate], resume_from: str) -> List[Tuple[Candidate, Proof]]:
        """What may go, the oldest first. Only what was read back and has not changed since is judged at all."""
        options = self.options
        proofs = checkpoints_proofs.read_proofs(options.run_dir)
        known = [(one, proof) for one in candidates if (proof := self._proof(one, proofs)) is not None]
        stored = [self._stored(one, proof, resume_from) for one, proof in known]
        if not checkpoints_surplus.surplus(stored, options.keep, options.keep_every_steps):
            return []
        named = checkpoints_surplus.named(options.directory, candidates, options.run_dir)
        for index, (one, _) in enumerate(known):
            stored[index] = replace(stored[index], needed=stored[index].needed or one.path in named)
        found = checkpoints_surplus.surplus(stored, options.keep, options.keep_every_steps)
        return sorted((known[index] for index in found), key=lambda one: one[1].step)

    def _stored(self, candidate: Candidate, proof: Proof, resume_from: str) -> Stored:
        good = proof.verdict == "pass" and (self.first_nan_step == NO_NAN or proof.step < self.first_nan_step)
        place = place_of(self.options.directory, candidate)
        opened = f"{resume_from}/".startswith(f"{place}/") if resume_from else False
        mine = checkpoints_surplus.lies_within(self.options.directory, candidate, self.options.run_dir)
        return Stored(proof.step, good, good, candidate.overwritten or opened or not mine)

    def _forget(self, candidate: Candidate, proof: Proof) -> CheckpointSeen:
        """It is gone; the report of that."""
        checkpoints_proofs.drop_proof(self.options.run_dir, proof)
        self._passed.pop(proof.step, None)
        why = f"removed: older than the newest {max(checkpoints_surplus.ALWAYS_KEPT, self.options.keep)} usable ones"
        return CheckpointSeen(proof.step, proof.path, time.time(), "unknown", why, candidate.total_bytes(), REMOVED)

    def _report_complete(self, due: Sequence[Tuple[Candidate, Evidence]], proofs: Proofs) -> None:
        """Report which checkpoints of this attempt are complete before any is read, which may take minutes."""
        self._whole = {one.path: self._whole[one.path] for one, _ in due if one.path in self._whole}
        for candidate, clues in due:
            earlier = candidate.newest_mtime_ns() < self._since_ns
            if earlier or self._whole.get(candidate.path) == candidate.files or self._proof(candidate, proofs):
                continue
            found = examine(self.options.directory, candidate, None, clues, NEVER)
            if found.judgement.word == COMPLETE:
                self._whole[candidate.path] = candidate.files
                at, written_at = time.time(), candidate.newest_mtime_ns() / 1e9
                why, size = f"whole, not read yet: {found.judgement.why}", candidate.total_bytes()
                seen = CheckpointSeen(self._step(candidate), found.path, at, "unknown", why, size, candidate.format)
                self._tell(replace(seen, written_at=written_at))

    def _report_unrecognised(self, listing: Listing, same: bool) -> None:
        """Say once that this attempt has written something, and that nothing of it can be resumed from."""
        fresh = [one for one in listing.files if one.mtime_ns >= self._since_ns and is_of_state(one)]
        if not fresh or self._passed or self._whole or self._unchanged_looks > UNRECOGNISED_AFTER_LOOKS:
            return
        self._unchanged_looks = self._unchanged_looks + 1 if same else 0
        if self._unchanged_looks <= UNRECOGNISED_AFTER_LOOKS:
            return
        found = find_candidates(listing, self.options.format, self.options.pattern)
        what = f"{len(fresh)} files in {self.options.directory}, e.g. {fresh[0].path}"
        why = f"none of the {what}, is a checkpoint that is known: set checkpoint.format or checkpoint.pattern"
        if found:
            judged = examine(self.options.directory, found[0], None, usual(found[0], found), NEVER).judgement
            why = f"no checkpoint in {self.options.directory} is whole: {found[0].path or '.'}: {judged.why}"
        size = sum(one.bytes for one in fresh)
        self._tell(CheckpointSeen(0, self.options.directory, time.time(), "unknown", why, size, UNRECOGNISED))

    def _listing(self) -> Listing:
        """One look; folders that are settled and untouched are remembered instead of listed, save now and then."""
        self._looks += 1
        skipped: List[str] = []
        places: Dict[str, Tuple[int, int]] = {}

        def skip(path: str, mtime_ns: int, inode: int) -> bool:
            places[path] = (mtime_ns, inode)
            known = self._memory.get(path)
            quiet = known is not None and known.settled and self._places.get(path) == (mtime_ns, inode)
            if quiet and self._looks % EVERYTHING_EACH_LOOKS:
                skipped.append(path)
                return True
            return False

        fresh = listings.list_files(self.options.directory, skip)
        self._places = places
        self._known = fresh.merge_earlier(self._known, skipped)
        return self._known

    def _prove(self, candidate: Candidate, clues: Evidence, looks: int, proofs: Proofs) -> Optional[CheckpointSeen]:
        """None: look again later. A report without a path: known already, nothing to say."""
        known = self._proof(candidate, proofs)
        if known is not None:
            return CheckpointSeen(known.step, "", known.at)
        found = examine(self.options.directory, candidate, None, clues, NEEDED, from_storage=True)
        if found.judgement.word != COMPLETE and not (found.judgement.word == CORRUPT and looks >= CORRUPT_AFTER_LOOKS):
            return None
        step = self._step(candidate)
        return self._record(replace(found, step=step), step)

    def _proof(self, candidate: Candidate, proofs: Proofs) -> Optional[Proof]:
        """What was proven about it as it is; None: nothing."""
        known = checkpoints_proofs.proof_of(self.options.directory, candidate, proofs, kept=False)
        if known is None:
            return None
        records = checkpoints_proofs.records_of(known, kept=False)
        return None if checkpoints_proofs.recheck(candidate.files, records).moved else known

    def _record(self, found: CheckpointFinding, step: int) -> CheckpointSeen:
        verdict, why = "pass", found.judgement.why
        if found.judgement.word != COMPLETE:
            verdict = "fail"
        elif self.first_nan_step != NO_NAN and step >= self.first_nan_step:
            verdict, why = "fail", self._after_nan()
        digests = dict(found.digests)
        proof = Proof(
            step=step,
            path=found.path,
            format=found.candidate.format,
            verdict=verdict,
            why=why,
            files=checkpoints_proofs.to_records(found.candidate.files, digests),
            at=time.time(),
            first_nan_step=None if self.first_nan_step == NO_NAN else self.first_nan_step,
        )
        if verdict == "pass" and found.candidate.overwritten and self.options.keep_overwritten:
            proof = keep_copy(folder_of(found.root, found.candidate), self.options.run_dir, proof)
        checkpoints_proofs.write_proof(self.options.run_dir, proof)
        if verdict == "pass":
            self._passed[step] = proof
        if proof.kept_path:
            prune_copies(self.options.run_dir, self.options.keep)
        size = found.candidate.total_bytes()
        resume_from = resume_path_in_place(found, self._since_ns) if verdict == "pass" else ""
        written_at = found.candidate.newest_mtime_ns() / 1e9
        seen = CheckpointSeen(step, found.path, proof.at, verdict, why, size, found.candidate.format, resume_from)
        return replace(seen, written_at=written_at)

    def _after_nan(self) -> str:
        return f"after the first NaN (step {self.first_nan_step})"

    def _step(self, candidate: Candidate) -> int:
        return true_step(candidate, None, ReportedSteps(self.options.run_dir), self.options.counter_restarts)


def run(prover: Prover, source: LineInput, voice: ReportOutput) -> None:
    """Look repeatedly until the input ends, and once more then."""
    while True:
        ended = source.ended
        voice.print_reports(prover.look)
        if ended:
            # Formats without a manifest are believed at the second look only.
            voice.print_reports(prover.look)
            return
        deadline = time.monotonic() + (0.01 if prover.behind else prover.options.poll_seconds)
        while not source.ended and time.monotonic() < deadline:
            for text in source.lines(max(0.0, deadline - time.monotonic())):
                voice.print_reports(partial(prover.take_line, text))


@flags.program("prove")
def main(argv: List[str]) -> int:
    """Watch until standard input ends; the exit code."""
    options = parse(argv)
    try:
        find_candidates(Listing(options.directory), options.format, options.pattern)
    except ValueError as error:
        raise flags.UsageError(str(error)) from error
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    voice = ReportOutput(options.directory)
    run(Prover(options, voice.print_report), LineInput(sys.stdin.fileno()), voice)
    return 0
