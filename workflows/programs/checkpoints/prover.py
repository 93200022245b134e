"""The background prover: reads each checkpoint once when it is written and records what it found.

A low-priority child of one launcher. It polls the checkpoint folder, waits until a checkpoint is whole and unchanged
for two looks, says so (a CheckpointSeen line, verdict unknown), reads it back from the storage, writes
`proofs/step-<n>.json`, keeps a copy of a file that the trainer overwrites in place, and prints a CheckpointSeen line
with the verdict. Lines on its standard input: `nan <step>` (checkpoints from that step on are not good, however
complete), `look` (something was saved: look at once); their end is the end of the attempt: one last look, then it exits
with 0.

    python3 programs.pyz prove --directory=/data/runs/x/checkpoints --run-dir=/data/runs/x

What the prover remembers about one candidate from look to look, and what it may make of it. Pure.

How the prover hears and speaks: lines of standard input without waiting for them, reports on standard output.
"""

from __future__ import annotations

import os
import select
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from workflows.programs.checkpoints import formats
from workflows.programs.checkpoints import proofs as checkpoints_proofs
from workflows.programs.checkpoints.choice import keep_copy, prune
from workflows.programs.checkpoints.examine import NEEDED, NEVER, CheckpointFinding, examine, folder_of, read_small
from workflows.programs.checkpoints.formats import TRACKER, UNKNOWN_STEP, Candidate, FileFacts, Listing, recognise
from workflows.programs.checkpoints.inventory import reported_step
from workflows.programs.checkpoints.judge import COMPLETE, CORRUPT, Evidence, usual_names
from workflows.programs.runtime import flags
from workflows.wire import CheckpointSeen, Proof, line

Signature = Tuple[FileFacts, ...]


@dataclass(frozen=True)
class Watched:
    """What is remembered about one candidate between looks."""

    signature: Signature
    looks: int = 1
    """Looks in a row at which it was just so."""
    settled: bool = False
    """Said all there is to say about it as it is."""


def watch(previous: Optional[Watched], signature: Signature, counts: bool = True) -> Watched:
    """The memory after one more look.

    Args:
        previous: what was remembered; None: it is new.
        signature: how it is now.
        counts: False for a look that was asked for: it may come right after another one, and what is still written
            would seem to be at rest.
    """
    if previous is None or previous.signature != signature:
        return Watched(signature, int(counts))
    return replace(previous, looks=previous.looks + counts)


def due_now(candidate: Candidate, now: Watched) -> bool:
    """Whether it is at rest: our own format, whose folder gets its name last, is so from the first look on."""
    return not now.settled and (now.looks >= 2 or candidate.format == "primus")


def resumable(found: CheckpointFinding, since_ns: int) -> str:
    """What ranks restarted in place are told to go on from it; "": only a new attempt may.

    Nobody looks at the storage before a restart in place. So it must have been written by this attempt, or it may be
    one that was passed over; it must not be overwritten by the next save; and its path alone must say which one it is,
    which it does not where a tracker file does.
    """
    candidate = found.candidate
    older = candidate.newest_mtime_ns() < since_ns
    return "" if older or candidate.overwritten or candidate.format == "megatron" else found.path


class Input:
    """Lines of standard input, without ever waiting longer than asked."""

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


class Voice:
    """Says what the prover finds on standard output; a storage that fails is told once, and tried again."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._complained = ""

    def say(self, ask: Callable[[], List[CheckpointSeen]]) -> None:
        """Print a line for each report of `ask`."""
        try:
            for report in ask():
                self.tell(report)
            self._complained = ""
        except OSError as error:
            why = f"{error.strerror or error} ({error.filename})"
            if why != self._complained:
                report = CheckpointSeen(UNKNOWN_STEP, self._directory, time.time(), "unknown", why)
                self.tell(report)
            self._complained = why

    def tell(self, report: CheckpointSeen) -> None:
        """Print one report's line."""
        print(line(report), flush=True)


NICENESS = 10
NO_NAN = -1
CORRUPT_AFTER_LOOKS = 4
"""A broken file that no longer changes is called broken after so many looks: until then it may still be written."""
GIVE_WAY_SECONDS = 2.0
"""A look that has proven something for so long ends: a newer checkpoint may have come, and it is worth more."""
EVERYTHING_EACH_LOOKS = 20
"""A file that is overwritten inside an untouched folder is noticed at such a look: every 10 s by default."""


@dataclass(frozen=True)
class Options:
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
    counter_restarts: bool = False
    """Steps in names start again after a resume: the last reported step counts instead."""
    poll_seconds: float = 0.5

    def argv(self) -> List[str]:
        """These options as flags."""
        return flags.to_argv(self)


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    if not 0 < options.poll_seconds <= 60:
        raise flags.UsageError(f"--poll-seconds: must be between 0 and 60, got {options.poll_seconds}")
    return options


Proofs = Sequence[Proof]


def _quiet(_report: CheckpointSeen) -> None:
    """Nobody listens."""


class Prover:
    """One watch over one folder.

    Args:
        options: what to watch.
        tell: hears at once of each checkpoint that is whole and was not read yet; looks return what was read.
    """

    def __init__(self, options: Options, tell: Callable[[CheckpointSeen], None] = _quiet) -> None:
        self.options = options
        self._tell = tell
        self._whole: Dict[str, Signature] = {}
        """What was told of so."""
        self.first_nan_step = NO_NAN
        self.behind = False
        """The last look gave way before everything was proven."""
        self._memory: Dict[str, Watched] = {}
        self._passed: Dict[int, Proof] = {}
        self._looks = 0
        self._known = Listing(options.directory)
        self._places: Dict[str, Tuple[int, int]] = {}
        self._since_ns = time.time_ns()

    def told(self, text: str) -> List[CheckpointSeen]:
        """Take in one line of standard input; what was proven too early is taken back.

        Raises:
            OSError: the storage refused.
        """
        words = text.split()
        if words == ["look"]:
            return self.look(asked=True)
        if len(words) != 2 or words[0] != "nan" or not words[1].isdigit():
            return []
        step = int(words[1])
        self.first_nan_step = step if self.first_nan_step == NO_NAN else min(step, self.first_nan_step)
        taken_back: List[CheckpointSeen] = []
        for proof in [one for at, one in self._passed.items() if at >= self.first_nan_step]:
            del self._passed[proof.step]
            why = self._after_nan()
            checkpoints_proofs.write(
                self.options.run_dir, replace(proof, verdict="fail", why=why, first_nan_step=self.first_nan_step)
            )
            size = sum(record.bytes for record in checkpoints_proofs.records_of(proof, kept=False))
            taken_back.append(CheckpointSeen(proof.step, proof.path, time.time(), "fail", why, size, proof.format))
        return taken_back

    def look(self, asked: bool = False) -> List[CheckpointSeen]:
        """One look: what is newly proven or found broken, newest first; it gives way when it takes long.

        One that was asked for proves only what needs no second look: our own format, whose folder gets its name when
        all is written and synced, and whose manifest holds the digest of every file, which is read back.

        Raises:
            OSError: the storage cannot be read.
        """
        before, give_way_at = self._known, time.monotonic() + GIVE_WAY_SECONDS
        self.behind = False
        listing = self._listing()
        if listing == before and all(one.settled for one in self._memory.values()):
            return []
        candidates = recognise(listing, self.options.format, self.options.pattern)
        tracker = read_small(os.path.join(self.options.directory, TRACKER))
        proofs = checkpoints_proofs.read_all(self.options.run_dir)
        memory = {one.path: watch(self._memory.get(one.path), one.files, not asked) for one in candidates}
        due = {one.path: Evidence(tracker=tracker, usual_names=usual_names(one, candidates))
               for one in candidates if due_now(one, memory[one.path])}  # fmt: skip
        self._tell_of_whole([(one, due[one.path]) for one in candidates if one.path in due], proofs)
        seen: List[CheckpointSeen] = []
        for candidate in candidates:
            now = memory[candidate.path]
            if seen and not now.settled and time.monotonic() > give_way_at:
                self.behind = True
            elif candidate.path in due:
                report = self._prove(candidate, due[candidate.path], now.looks, proofs)
                if report is not None:
                    memory[candidate.path] = replace(now, settled=True)
                    seen.append(report)
        self._memory = memory
        return [report for report in seen if report.path]

    def _tell_of_whole(self, due: Sequence[Tuple[Candidate, Evidence]], proofs: Proofs) -> None:
        """Say which ones of this attempt are whole, before any of them is read: that may take minutes."""
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

        fresh = formats.take(self.options.directory, skip)
        self._places = places
        self._known = fresh.with_remembered(self._known, skipped)
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
        known = checkpoints_proofs.proof_of(candidate, proofs, kept=False)
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
        checkpoints_proofs.write(self.options.run_dir, proof)
        if verdict == "pass":
            self._passed[step] = proof
        if proof.kept_path:
            prune(self.options.run_dir, self.options.keep)
        size = found.candidate.total_bytes()
        resume_from = resumable(found, self._since_ns) if verdict == "pass" else ""
        written_at = found.candidate.newest_mtime_ns() / 1e9
        seen = CheckpointSeen(step, found.path, proof.at, verdict, why, size, found.candidate.format, resume_from)
        return replace(seen, written_at=written_at)

    def _after_nan(self) -> str:
        return f"after the first NaN (step {self.first_nan_step})"

    def _step(self, candidate: Candidate) -> int:
        if candidate.step != UNKNOWN_STEP and not self.options.counter_restarts:
            return candidate.step
        return reported_step(self.options.run_dir, candidate.newest_mtime_ns())


def run(prover: Prover, source: Input, voice: Voice) -> None:
    """Look again and again until the input ends, and once more then."""
    while True:
        ended = source.ended
        voice.say(prover.look)
        if ended:
            # Formats without a manifest are believed at the second look only.
            voice.say(prover.look)
            return
        deadline = time.monotonic() + (0.01 if prover.behind else prover.options.poll_seconds)
        while not source.ended and time.monotonic() < deadline:
            for text in source.lines(max(0.0, deadline - time.monotonic())):
                voice.say(partial(prover.told, text))


def main(argv: List[str]) -> int:
    """Watch until standard input ends; the exit code."""
    try:
        options = parse(argv)
        recognise(Listing(options.directory), options.format, options.pattern)
    except ValueError as error:
        print(f"prove: {error}", file=sys.stderr)
        return 2
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    voice = Voice(options.directory)
    run(Prover(options, voice.tell), Input(sys.stdin.fileno()), voice)
    return 0
