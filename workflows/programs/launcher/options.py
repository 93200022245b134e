"""The launcher's inputs: flags from the builder of the JobSet, and its place from the pod's environment."""

from __future__ import annotations

import errno
import operator
import os
import re
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

from workflows.programs.launcher.lifecycle import SIGNALS, TERM, LauncherFailed, SaveWay
from workflows.programs.progress.reader import StepCounting
from workflows.programs.runtime import files, flags
from workflows.programs.runtime.report_token import token_from
from workflows.wire import Termination

STEPLESS = ("file", "none", "")
"""Progress sources that never report a step."""
"""Variables that ranks never get: a training program must not control the coordinator."""
SAVE_MARGIN_SECONDS = 1.0
ATTEMPT_FOLDER = "attempt_checkpoint_dir"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?:([-+*/])(\d{1,15}))?\}")
TELL_THE_CHECKPOINT = ("resume_from", "resume_dir", "resume_step")
"""Placeholders that tell a program which checkpoint to open."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """How one pod's ranks are run. Made by the builder of the JobSet."""

    role: str
    pods: int = 1
    """Pods of this role."""
    processes_per_node: int = 1
    world_size: int = 1
    """Ranks of this role over all its pods."""
    decides: bool = True
    """The role whose success is the run's success."""
    replica_groups: int = 1
    """Equal parts of the role's pods, in order, each with a rendezvous and ranks of its own."""
    working_directory: str = ""
    """Made where it does not exist; "": `<run folder>/work`."""
    framework: str = "none"
    pattern: str = ""
    """For the framework `regex`."""
    progress_file: str = ""
    """For the framework `file`."""
    first_counter: int = 1
    counter_restarts: bool = False
    steps: int = 0
    """Planned steps; 0: not known."""
    resume_argument: Tuple[str, ...] = ()
    """Added to the command when there is something to resume."""
    save_grace_seconds: float = 30.0
    """Between the request to save and SIGKILL, including a margin for the launcher's own end."""
    save_signal: str = TERM
    """Signal that asks the ranks to save: `TERM`, `USR1`, `USR2`, `HUP`, `INT`. After any other than TERM they go on,
    and get SIGTERM when the save is complete."""
    save_file: str = ""
    """File made to ask for a save, and removed when the save is complete and when ranks start; with it SIGTERM only
    ends the ranks. "": none."""
    checkpoint_format: str = "auto"
    checkpoint_pattern: str = ""
    keep: int = 3
    keep_overwritten: bool = True
    remove_surplus: bool = False
    """Checkpoints beyond those to keep are deleted while the ranks train, whenever the coordinator says that they may
    go."""
    keep_every_steps: int = 0
    """Of each so many steps one checkpoint stays for good; 0: none does."""
    log_limit_bytes: int = 64 * 1024 * 1024
    """Size at which a rank's log is rotated; two older generations are kept."""
    pseudo_terminal: bool = False
    """Ranks write to pseudo terminals: C++ programs buffer lines for minutes when they write to a pipe."""
    join_seconds: float = 900.0
    """How long the coordinator may be away at the start, while its image is pulled."""
    rendezvous_seconds: float = 3600.0
    """How long the other pods may take to join."""
    in_place: bool = False
    """Ranks may restart inside the pod: a failed rank ends the pod only where the coordinator orders no restart within
    seconds."""
    forkable: bool = True
    """Restarted ranks may be forked from a parked process; False: the program is always started anew."""
    torchrun_variables: bool = True
    """Ranks get torchrun's variables; False: what the pod's environment says stands."""
    secret_environment: str = ""
    """Variables, separated by commas, whose values are hidden in what ranks print."""
    preload: Tuple[str, ...] = ()
    """Modules that the parked process imports, separated by commas or repeated."""
    command: Tuple[str, ...] = field(default=(), metadata=flags.REST)
    """The program and its arguments, after `--`."""

    @property
    def pods_together(self) -> int:
        """Pods of one replica group, whose ranks share a rendezvous."""
        return self.pods // self.replica_groups

    def first_pod(self, pod_index: int) -> int:
        """Index of the first pod of the replica group to which a pod belongs."""
        return pod_index - pod_index % self.pods_together

    @property
    def kill_after_seconds(self) -> float:
        """Seconds from the request to save to SIGKILL: the grace less the time for the launcher's own end."""
        return self.save_grace_seconds - min(SAVE_MARGIN_SECONDS, self.save_grace_seconds / 10)

    @property
    def save_way(self) -> SaveWay:
        """How the ranks are asked to save; those of a helping role have nothing to save and get SIGTERM."""
        return SaveWay(self.save_signal, self.save_file) if self.decides else SaveWay()


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`.

    Raises:
        flags.UsageError: names the flag, what is wrong and what would be right.
    """
    options = flags.from_argv(Options, argv)
    if not options.command:
        raise flags.UsageError("--: the command to run is missing; write it after --")
    for name in ("pods", "processes_per_node"):
        if getattr(options, name) < 1:
            raise flags.UsageError(f"{flags.flag(name)}: must be at least 1, got {getattr(options, name)}")
    if options.replica_groups < 1 or options.pods % options.replica_groups:
        raise flags.UsageError(
            f"--replica-groups: must divide {options.pods} pods into equal parts, got {options.replica_groups}"
        )
    if options.save_signal not in SIGNALS:
        raise flags.UsageError(f"--save-signal: must be one of {', '.join(SIGNALS)}, got {options.save_signal!r}")
    if options.save_file and not os.path.isabs(options.save_file):
        raise flags.UsageError(f"--save-file: must be an absolute path, got {options.save_file!r}")
    if options.world_size != options.pods * options.processes_per_node:
        raise flags.UsageError(
            f"--world-size: must be pods times processes per node, {options.pods * options.processes_per_node}, "
            f"got {options.world_size}"
        )
    return options


@dataclass(frozen=True)
class Place:
    """This launcher's place in the run and the gang."""

    run: str
    attempt: int
    pod_index: int
    node: str
    pod: str
    pod_ip: str
    run_dir: str
    checkpoint_dir: str
    resume_from: str
    resume_step: Optional[int]
    coordinator_url: str
    token: str
    hosts_file: str
    termination_log: str
    """Path of the termination message; "": nobody reads one."""

    def record(self, role: str, reason: str, detail: str) -> Termination:
        """A record of this pod's end now, still without the ends of its ranks."""
        return Termination(
            run=self.run,
            attempt=self.attempt,
            role=role,
            node=self.node,
            pod=self.pod,
            reason=reason,
            ranks=[],
            at=time.time(),
            detail=detail,
        )

    def folder(self, role: str) -> str:
        """This pod's folder below the run's folder; "" where there is none."""
        if not self.run_dir:
            return ""
        return os.path.join(self.run_dir, f"a{self.attempt}", f"{role}-{self.pod_index}")


def parse_place(environment: Mapping[str, str]) -> Place:
    """The place in a pod's environment; raises UsageError where a variable is not what it must be."""
    say = environment.get
    step = say("PRIMUS_RESUME_STEP", "")
    return Place(
        run=say("PRIMUS_RUN", "run"),
        attempt=_number("PRIMUS_ATTEMPT", say("PRIMUS_ATTEMPT", "") or "1"),
        pod_index=_number("PRIMUS_POD_INDEX", say("PRIMUS_POD_INDEX", "") or say("JOB_COMPLETION_INDEX", "") or "0"),
        node=say("PRIMUS_NODE", ""),
        pod=say("PRIMUS_POD", ""),
        pod_ip=say("PRIMUS_POD_IP", "") or "127.0.0.1",
        run_dir=say("PRIMUS_RUN_DIR", ""),
        checkpoint_dir=say("PRIMUS_CHECKPOINT_DIR", ""),
        resume_from=say("PRIMUS_RESUME_FROM", ""),
        resume_step=_number("PRIMUS_RESUME_STEP", step) if step else None,
        coordinator_url=say("PRIMUS_COORDINATOR_URL", ""),
        token=token_from(environment),
        hosts_file=say("PRIMUS_HOSTS_FILE", ""),
        termination_log=files.termination_log(environment),
    )


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise flags.UsageError(f"{name}: expected a whole number, got {text!r}") from error


def counting(options: Options, place: Place) -> StepCounting:
    """How the program's step numbers are counted."""
    return StepCounting(
        first_counter=options.first_counter,
        counter_restarts=options.counter_restarts,
        resume_step=place.resume_step or 0,
        steps=options.steps,
        world_size=options.world_size,
    )


def fill(text: str, known: Mapping[str, str]) -> str:
    """`text` with the placeholders in `known` filled; everything else in braces is left as it is.

    A number may be calculated with: `{steps-1}`, `{resume_step+1}`, `{steps/10}` (rounded down); one that is not there,
    as the step of a resume in the first attempt, counts as 0 then.
    """

    def value(match: "re.Match[str]") -> str:
        name, sign, operand = match.groups()
        found = known.get(name)
        if found is None or sign is None:
            return match[0] if found is None else found
        if not (found == "" or _WHOLE.match(found)) or (sign == "/" and int(operand) == 0):
            return match[0]
        return str(_CALCULATE[sign](int(found or 0), int(operand)))

    return _PLACEHOLDER.sub(value, text)


_WHOLE = re.compile(r"-?[0-9]+$")
_CALCULATE: Dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda number, by: number // by,
}


def rank_command(options: Options, place: Place, incarnation: int = 1) -> Tuple[str, ...]:
    """The ranks' command: placeholders filled, the resume argument added where there is something to resume."""
    remaining = str(max(0, options.steps - (place.resume_step or 0)))
    resume_dir = place.resume_from if os.path.isdir(place.resume_from) else os.path.dirname(place.resume_from)
    known = {
        "resume_from": place.resume_from,
        "resume_dir": resume_dir,
        "resume_step": "" if place.resume_step is None else str(place.resume_step),
        "remaining_steps": remaining,
        "steps_left": remaining,
        ATTEMPT_FOLDER: attempt_folder(place, incarnation),
    }
    words = (*options.command, *options.resume_argument) if place.resume_from else options.command
    return tuple(fill(word, known) for word in words)


def attempt_folder(place: Place, incarnation: int) -> str:
    """A folder for the checkpoints of this start alone, below that of all checkpoints.

    Its name must not look like that of a checkpoint, which would be told by a number that stands alone.
    """
    again = f"i{incarnation}" if incarnation > 1 else ""
    return os.path.join(place.checkpoint_dir, f"a{place.attempt}{again}")


def working_directory(options: Options, place: Place) -> str:
    """Where the ranks start: the same folder in every attempt, since many trainers write to relative paths."""
    if options.working_directory:
        return options.working_directory
    return os.path.join(place.run_dir, "work") if place.run_dir else os.getcwd()


NEVER = (errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL,
         errno.ENOENT)  # fmt: skip
"""Why a folder cannot be made however often it is tried; everything else a storage may get over."""


def make_folders(options: Options, place: Place, incarnation: int = 1) -> Optional[LauncherFailed]:
    """Make the folders that the ranks write into, since many trainers expect them; None: they are there."""
    checkpoints = place.checkpoint_dir if options.checkpoint_format != "none" else ""
    if any(f"{{{ATTEMPT_FOLDER}}}" in word for word in options.command):
        checkpoints = attempt_folder(place, incarnation)
    for folder in filter(None, (working_directory(options, place), checkpoints)):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            why = f"the folder {folder} cannot be made: {error.strerror}{_in_the_way(folder)}"
            return LauncherFailed(why, "folder" if error.errno in NEVER else "storage", unstarted=True)
    return None


def _in_the_way(folder: str) -> str:
    """What stands where the folder should be, for people; "": nothing that is known."""
    if os.path.islink(folder):
        return f" (it is a symbolic link to {os.readlink(folder)}, where no folder is)"
    return " (it is a file)" if os.path.isfile(folder) else ""


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of a gang."""

    incarnation: int
    master_address: str
    master_port: int
    first_rank: int
    """First rank of this pod."""
