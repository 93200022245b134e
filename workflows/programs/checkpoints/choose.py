"""Before an attempt: which checkpoint to resume from, proven from where the storage is mounted.

Files are compared with the records of earlier proofs, and read again only where they changed or were never proven.
Where our own copy of a file is chosen that the trainer overwrites, it is put back under the trainer's name, since many
trainers load that name by themselves; one that looks for its newest checkpoint by itself finds the chosen one, since
those that it must not open are put aside. The result is the verdict, not the exit code, which is 0 for pass, fail and
unknown, and 3 only where the program itself broke.

    python3 programs.pyz verify --directory=/data/runs/x/checkpoints --run-dir=/data/runs/x --out-dir=/tmp/out
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Sequence, Tuple

from workflows.programs.checkpoints import aside, kept_copies, proofs
from workflows.programs.checkpoints.candidate import UNKNOWN_STEP
from workflows.programs.checkpoints.examine import ALL, NEEDED, NEVER, CheckpointFinding, examine, read_small
from workflows.programs.checkpoints.formats import TRACKERS
from workflows.programs.checkpoints.inventory import Survey, SurveyRequest, look_into, to_states
from workflows.programs.checkpoints.judge import BAD, CORRUPT, PARTIAL, STALE, Evidence, Judgement, tracked_iteration
from workflows.programs.checkpoints.kept_copies import NO_LIMIT, ResumeLimits
from workflows.programs.checkpoints.listing import storage_is_there
from workflows.programs.runtime import flags
from workflows.programs.runtime.files import write_atomically, write_outputs
from workflows.wire import ResumeChoice, to_json

MOST_LISTED = 50
"""Most candidates named in the answer, which is a parameter of a workflow step."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """Folders, limits and outputs."""

    directory: str
    """The trainer's checkpoint folder."""
    run_dir: str
    """The run's own folder."""
    format: str = "auto"
    pattern: str = ""
    max_step: int = NO_LIMIT
    """Highest step, for a roll-back; -1: any."""
    excluded: Tuple[str, ...] = ()
    """Steps or paths of checkpoints that failed."""
    deep: bool = False
    """Read everything again, also proven files."""
    counter_restarts: bool = False
    """Steps in names start again after a resume."""
    out_dir: str = ""
    """Folder for the outputs `resume-from`, `resume-step`, `choice`, `verdict`; empty: standard output only."""
    chooses_itself: bool = False
    """The program is not told which one to open: what it must not take for its newest is put aside."""
    ledger: str = ""
    """Identity of the run's ledger, for which the folder is claimed; empty: no owner is checked."""


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or an unreadable value.
    """
    return flags.from_argv(Options, argv)


def choose(options: Options) -> ResumeChoice:
    """The newest usable checkpoint, or why there is none."""
    began = time.monotonic()
    try:
        choice = _choose(options)
    except OSError as error:
        why = f"the storage could not be read: {error.strerror or error} ({error.filename or options.directory})"
        choice = ResumeChoice("", None, [], "unknown", why)
    except ValueError as error:
        choice = ResumeChoice("", None, [], "unknown", str(error))
    return replace(choice, seconds=round(time.monotonic() - began, 4))


def _choose(options: Options) -> ResumeChoice:
    if not storage_is_there(options.run_dir):
        return ResumeChoice("", None, [], "unknown", f"the storage of {options.run_dir} is not there")
    if owner := proofs.claim_folder(options.run_dir, options.ledger):
        return ResumeChoice("", None, [], "fail", proofs.refusal(options.run_dir, owner), owner=owner)
    if options.max_step == 0:
        return _rolled_back_to_the_beginning(options)
    limits = ResumeLimits(options.max_step, options.excluded)
    reading = ALL if options.deep else NEEDED
    found = look_into(
        SurveyRequest(
            options.directory,
            options.run_dir,
            options.format,
            options.pattern,
            limits,
            reading,
            options.counter_restarts,
        )
    )
    findings = found.findings
    chosen = next((finding for finding in findings if finding.usable), None)
    looked_at = to_states(findings)[:MOST_LISTED]
    count = sum(finding.bytes_read for finding in findings)
    also = _left_out(found.left_out)
    if chosen is not None:
        gone = _put_aside(options, findings, chosen)
        path, why = resume_path(options, chosen)
        step = None if chosen.step == UNKNOWN_STEP else chosen.step
        return ResumeChoice(path, step, looked_at, "pass", why + also, bytes_read=count, put_aside=gone)
    verdict, why = _why_none_usable(options, found)
    gone = _put_aside(options, findings, None) if verdict == "pass" else []
    return ResumeChoice("", None, looked_at, verdict, why + also, bytes_read=count, put_aside=gone)


def _rolled_back_to_the_beginning(options: Options) -> ResumeChoice:
    """Nothing is resumed, whatever there is."""
    gone: List[str] = []
    if options.chooses_itself:
        survey = SurveyRequest(options.directory, options.run_dir, options.format, options.pattern, reading=NEVER)
        why = "the run was rolled back to the beginning"
        seen = [replace(one, usable=False, judgement=Judgement(STALE, why)) for one in look_into(survey).findings]
        gone = _put_aside(options, seen, None)
    return ResumeChoice("", None, [], "pass", "rolled back to the beginning: nothing is resumed", put_aside=gone)


def _put_aside(
    options: Options, findings: Sequence[CheckpointFinding], chosen: Optional[CheckpointFinding]
) -> List[str]:
    if not options.chooses_itself:
        return []
    return aside.put_aside(aside.in_the_way(findings, chosen), options.run_dir, chosen)


def _left_out(left_out: Sequence[Tuple[str, str]]) -> str:
    """What could not be looked into, for people; "": nothing."""
    if not left_out:
        return ""
    named = ", ".join(f"{path} ({why})" for path, why in left_out[:3])
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"; could not look into {named}{more}"


def resume_path(options: Options, chosen: CheckpointFinding) -> Tuple[str, str]:
    """Value of the trainer's resume argument, and why.

    The path of the checkpoint itself, except for our own copy, which is put back under the trainer's name, and for
    Megatron: its `--load` wants the folder whose tracker file names the iteration. Where the tracker names another one,
    a folder of our own is made that holds a link to the chosen iteration and a tracker naming it; the trainer's own
    files are never edited.

    Raises:
        OSError: the folder of our own could not be made, or the copy not put back.
    """
    why = chosen.judgement.why
    if chosen.kept:
        path = kept_copies.put_back(options.directory, options.run_dir, chosen.path)
        return path, f"{why}; our copy of it was put back as {path}"
    if chosen.candidate.format != "megatron":
        return chosen.path, why
    folder = os.path.dirname(chosen.path)
    tracker = read_small(os.path.join(folder, TRACKERS["megatron"]))
    if tracker is not None and tracked_iteration(tracker) == chosen.candidate.step:
        return folder, why
    view = os.path.join(options.run_dir, proofs.COPIES_FOLDER, f"megatron-{chosen.candidate.step}")
    os.makedirs(view, exist_ok=True)
    link = os.path.join(view, os.path.basename(chosen.path))
    if not os.path.islink(link):
        os.symlink(os.path.abspath(chosen.path), link)
    write_atomically(os.path.join(view, TRACKERS["megatron"]), f"{chosen.candidate.step}\n".encode())
    return view, f"{why}; the tracker file names another iteration, so {view} points to this one"


def _why_none_usable(options: Options, found: Survey) -> Tuple[str, str]:
    first = _first_save(options, found)
    if first is not None:
        named, why = first.candidate.path or ".", first.judgement.why
        return "pass", f"the only save is not whole ({named}: {why}), none was ever proven: training begins anew"
    if found.findings:
        reasons = "; ".join(f"{one.candidate.path or '.'}: {one.judgement.why}" for one in found.findings[:3])
        return "fail", f"{len(found.findings)} found, none usable: {reasons}"
    if found.unseen:
        path, why = found.unseen[0]
        return "fail", f"{path} may be a checkpoint and cannot be read: {why}; give the run's user the right to read it"
    gone = [proof.path for proof in proofs.read_proofs(options.run_dir) if proof.verdict == "pass"]
    if gone:
        return "fail", f"{len(gone)} checkpoints were proven and all are gone, e.g. {gone[-1]}"
    return "pass", "there is no checkpoint: training starts from the beginning"


def _first_save(options: Options, found: Survey) -> Optional[CheckpointFinding]:
    """The only save there is, not whole, where none was ever proven: nothing can be resumed or is lost by that."""
    if len(found.findings) != 1 or found.unseen or options.max_step != NO_LIMIT or options.excluded:
        return None
    only = found.findings[0]
    if only.kept or only.judgement.word not in (PARTIAL, CORRUPT):
        return None
    anew = examine(only.root, only.candidate, None, Evidence(), NEEDED).judgement
    if anew.word not in (PARTIAL, CORRUPT) or anew.digest == BAD:
        return None  # what was all there and is damaged now was saved whole
    proven = any(proof.verdict == "pass" for proof in proofs.read_proofs(options.run_dir))
    return None if proven else only


def outputs_of(choice: ResumeChoice) -> Dict[str, str]:
    """The output parameters of the step, by name."""
    return {
        "resume-from": choice.resume_from,
        "resume-step": "" if choice.resume_step is None else str(choice.resume_step),
        "choice": to_json(choice),
        "verdict": choice.verdict,
    }


@flags.program("verify")
def main(argv: List[str]) -> int:
    """Choose and answer; the exit code."""
    options = parse(argv)
    options = replace(options, ledger=options.ledger or os.environ.get(proofs.VARIABLE, ""))
    choice = choose(options)
    print(to_json(choice), flush=True)
    return write_outputs("verify", options.out_dir, outputs_of(choice))
