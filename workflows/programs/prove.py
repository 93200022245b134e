"""The background prover: reads each checkpoint once when it is written and records what it found.

A low-priority child of one launcher. It polls the checkpoint folder, waits until a checkpoint is whole and unchanged
for two looks, says so (a CheckpointSeen line, verdict unknown), reads it back from the storage, writes
`proofs/step-<n>.json`, keeps a copy of a file that the trainer overwrites in place, and prints a CheckpointSeen line
with the verdict. Lines on its standard input: `nan <step>` (checkpoints from that step on are not good, however
complete), `look` (something was saved: look at once); their end is the end of the attempt: one last look, then it exits
with 0.

    python3 programs.pyz prove --directory=/data/runs/x/checkpoints --run-dir=/data/runs/x
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from workflows.programs import checkpoint_listing, checkpoint_proofs, flags
from workflows.programs.checkpoint_examine import NEEDED, NEVER, Finding, examine, folder_of, read_small
from workflows.programs.checkpoint_formats import TRACKER, UNKNOWN_STEP, Candidate, recognise
from workflows.programs.checkpoint_judgement import COMPLETE, CORRUPT, Evidence, usual_names
from workflows.programs.checkpoint_keep import keep_copy, prune
from workflows.programs.checkpoint_listing import Listing
from workflows.programs.checkpoint_steps import reported_step
from workflows.programs.prover_memory import Signature, Watched, due_now, resumable, watch
from workflows.programs.prover_voice import Input, Voice
from workflows.reports import CheckpointSeen, Proof

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
            checkpoint_proofs.write(
                self.options.run_dir, replace(proof, verdict="fail", why=why, first_nan_step=self.first_nan_step)
            )
            size = sum(record.bytes for record in checkpoint_proofs.records_of(proof, kept=False))
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
        proofs = checkpoint_proofs.read_all(self.options.run_dir)
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

        fresh = checkpoint_listing.take(self.options.directory, skip)
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
        known = checkpoint_proofs.proof_of(candidate, proofs, kept=False)
        if known is None:
            return None
        records = checkpoint_proofs.records_of(known, kept=False)
        return None if checkpoint_proofs.recheck(candidate.files, records).moved else known

    def _record(self, found: Finding, step: int) -> CheckpointSeen:
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
            files=checkpoint_proofs.to_records(found.candidate.files, digests),
            at=time.time(),
            first_nan_step=None if self.first_nan_step == NO_NAN else self.first_nan_step,
        )
        if verdict == "pass" and found.candidate.overwritten and self.options.keep_overwritten:
            proof = keep_copy(folder_of(found.root, found.candidate), self.options.run_dir, proof)
        checkpoint_proofs.write(self.options.run_dir, proof)
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
