"""Slurm's commands and what they print, read: jobs, nodes, and why there is no answer, in words.

Every command ends within its time, and a failure becomes an error of ours. They run with a small environment: sbatch
stores what it is given with the job, and a token must not lie there. Versions before 23 print JSON only where a plug-in
is installed; all print lines of fields with a bar between them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiles.errors import NotFound, ProfileError, Refused, Unavailable

JOB_FORMAT = "%i|%T|%N|%r|%j"
"""Of squeue: number, state, nodes, reason, name."""
NODE_FORMAT = "%N|%T|%E"
"""Of sinfo: name, state, reason; the reason is people's own text and comes last."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
"""The script has not begun."""
ENDED: dict[str, str] = {
    "BOOT_FAIL": "the node did not boot for its job",
    "CANCELLED": "its job was cancelled by somebody",
    "COMPLETED": "its job ended without a report",
    "DEADLINE": "Slurm dropped its job, which could no longer end in time",
    "FAILED": "its job failed",
    "NODE_FAIL": "Slurm lost the node while its job was there",
    "OUT_OF_MEMORY": "its job ran out of memory",
    "PREEMPTED": "its job was preempted by another",
    "REVOKED": "its job was taken back by a federation",
    "TIMEOUT": "its job was ended at its time limit",
}
"""States without a return, in words."""
GONE = "GONE"
"""Our own word for a job that Slurm does not list any more."""
NOT_OPENED = 53
"""Slurm's own word, in place of a signal, for an output file or a folder that slurmd could not open."""
NO_REASONS = frozenset({"", "NONZEROEXITCODE", "JOBLAUNCHFAILURE", "DEADLINE", "TIMELIMIT", "OUTOFMEMORY", "NODEDOWN"})
"""Reasons of jobs that say no more than state and exit code do."""
NOT_HANDED_OUT = ("drain", "fail", "down", "maint", "reserved", "inval", "power", "reboot")
"""Beginnings of states of nodes that get no job."""
KEPT_OUT = ("drain", "fail", "inval")
"""Beginnings of those that only a person ends."""
_MARKS = "*~#!%$@^+-"
"""Slurm hangs them to a node's state: not responding, powering, rebooting, planned."""
_EXIT = re.compile(r"(?<!\S)ExitCode=(\d+):(\d+)(?!\S)")
_STATE = re.compile(r"(?<!\S)JobState=(\S+)")

LIMIT_SECONDS = 90.0
"""For one command: they try again by themselves, 9 s by default where slurmctld is away, longer where it is busy."""
RETRY_SECONDS = 5.0
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SLURM_CONF")
KEPT_CHOICES = ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION")
"""What a command sees of our environment; everything else could change what it prints, or be a secret."""
AWAY = (
    "unable to contact slurm controller",
    "connect failure",
    "connection failure",
    "connection refused",
    "socket timed out",
    "send/recv",
    "zero bytes were transmitted",
    "temporarily un",
    "controller is not responding",
    "in standby mode",
    "authentication error",
    "munge",
)
"""Parts of what is said where slurmctld, the way to it, or munged is away."""
_SHOWN_CHARACTERS = 400


@dataclass(frozen=True)
class Job:
    """One job as squeue lists it."""

    number: int
    state: str
    """`PENDING`, `RUNNING`, …"""
    node: str
    """"": none yet."""
    reason: str
    """Why it waits or ended; "": Slurm gives none."""
    name: str

    @property
    def waits(self) -> bool:
        """It was not begun."""
        return self.state in WAITING

    @property
    def ended(self) -> bool:
        """It will not go on."""
        return self.state in ENDED


@dataclass(frozen=True)
class NodeLine:
    """One node as sinfo lists it."""

    node: str
    state: str
    """In lower case without its marks: `idle`, `drained`, `down`, …"""
    silent: bool
    """It does not answer slurmctld."""
    reason: str
    """Who took it out says why; "": nobody did."""

    @property
    def kept_out(self) -> bool:
        """It gets no job until a person says so."""
        return self.state.startswith(KEPT_OUT)

    @property
    def in_words(self) -> str:
        """State and reason."""
        silent = ", does not answer" if self.silent else ""
        return f"the node is {self.state}{silent}" + (f" ({self.reason})" if self.reason else "")


def ask(words: Sequence[str], limit_seconds: float = LIMIT_SECONDS) -> str:
    """What a command of Slurm prints.

    No shell sees the words; after `limit_seconds` the command is killed.

    Raises:
        Unavailable: slurmctld does not answer.
        ProfileError: Slurm's commands are not on this machine.
        Refused: it said no; the path is the program's name, the reason what it said.
    """
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit_seconds,
            env=environment(os.environ),
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} did not answer within {limit_seconds:g} s", RETRY_SECONDS) from error
    except OSError as error:
        raise ProfileError(
            "launcher", f"{words[0]} cannot be started here ({error.strerror}): run this where Slurm's commands are"
        ) from error
    if done.returncode == 0:
        return done.stdout
    said = in_one_line(done.stderr or done.stdout) or f"ended with {done.returncode}"
    if any(part in said.lower() for part in AWAY):
        raise Unavailable(f"Slurm does not answer: {said}", RETRY_SECONDS)
    raise Refused(words[0], said)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command sees of `environ`."""
    return {name: environ[name] for name in (*KEPT, *KEPT_CHOICES) if environ.get(name)}


def in_one_line(text: str) -> str:
    """What was said, without the programs' own heads."""
    lines = [line.split("error: ", 1)[-1].strip() for line in text.splitlines() if line.strip()]
    return " ".join(" ".join(dict.fromkeys(lines)).split())[:_SHOWN_CHARACTERS]


def list_jobs(names: Sequence[str]) -> dict[str, Job]:
    """Our own jobs of these names, by name, those that ended in the last minutes (MinJobAge) too.

    Raises:
        Unavailable, ProfileError, Refused: as `ask`.
    """
    chosen = ["--states=all", f"--user={os.geteuid()}", f"--name={','.join(names)}"]
    text = ask(["squeue", "--noheader", *chosen, f"--format={JOB_FORMAT}"])
    wanted = frozenset(names)
    return by_name(job for job in jobs_in(text) if job.name in wanted)


def list_nodes(nodes: Sequence[str]) -> dict[str, NodeLine]:
    """What Slurm says of these nodes, by name; those that it does not know are missing.

    Raises:
        Unavailable, ProfileError, Refused: as `ask`.
    """
    if not nodes:
        return {}
    chosen = ["--noheader", "--Node", "--all", f"--nodes={','.join(nodes)}"]
    return nodes_in(ask(["sinfo", *chosen, f"--format={NODE_FORMAT}"]))


def list_names(partition: str) -> tuple[str, ...]:
    """Names of the nodes of a partition; "": of all.

    Raises:
        Unavailable, ProfileError, Refused: as `ask`.
    """
    chosen = [f"--partition={partition}"] if partition else []
    lines = ask(["sinfo", "--noheader", "--Node", "--format=%N", *chosen]).splitlines()
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def node_line(node: str) -> NodeLine:
    """What Slurm says of a node.

    Raises:
        NotFound: Slurm knows none of that name.
        Unavailable, ProfileError, Refused: as `ask`.
    """
    found = list_nodes([node]).get(node)
    if found is None:
        raise NotFound(f"{node}: Slurm has no such node; `sinfo --Node` lists them")
    return found


def cancel(numbers: Sequence[int]) -> None:
    """End jobs; those that ended already are fine.

    Raises:
        Unavailable, ProfileError, Refused: as `ask`.
    """
    if numbers:
        ask(["scancel", "--quiet", *map(str, numbers)])


def end_of(number: int) -> tuple[str, str]:
    """State and exit of a job that ended, in words: what slurmctld remembers, else what was accounted.

    Raises:
        Unavailable: slurmctld does not answer.
    """
    for words in (
        ["scontrol", "--oneliner", "show", "job", str(number)],
        ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}", "--format=State,ExitCode"],
    ):
        try:
            text = ask(words)
        except (Refused, ProfileError):
            continue  # forgotten, or nobody keeps accounts here
        if text.strip():
            told = text if words[0] == "scontrol" else f"ExitCode={text.strip().split('|')[-1]}"
            return state_in(text), exit_in_words(told)
    return GONE, ""


def jobs_in(text: str) -> list[Job]:
    """Jobs as `squeue --format=<JOB_FORMAT>` prints them; lines that are none are left out."""
    found: list[Job] = []
    for line in text.splitlines():
        number, *fields = line.strip().split("|", 4)
        if len(fields) == 4 and number.isdecimal() and number.isascii():
            state, node, reason, name = (field.strip() for field in fields)
            found.append(Job(int(number), state.upper(), node, _said(reason), name))
    return found


def by_name(jobs: Iterable[Job]) -> dict[str, Job]:
    """One job a name: of several the one that goes on, the first of these; where all ended, the last."""
    found: dict[str, Job] = {}
    for job in sorted(jobs, key=lambda job: (job.ended, job.waits, -job.number if job.ended else job.number)):
        found.setdefault(job.name, job)
    return found


def nodes_in(text: str) -> dict[str, NodeLine]:
    """Nodes as `sinfo --Node --format=<NODE_FORMAT>` prints them, by name."""
    found: dict[str, NodeLine] = {}
    for line in text.splitlines():
        name, *fields = line.strip().split("|", 2)
        if name and len(fields) == 2:
            state = fields[0].strip().lower()
            found[name] = NodeLine(name, state.rstrip(_MARKS), "*" in state, _said(fields[1]))
    return found


def number_in(text: str) -> int | None:
    """The number that `sbatch --parsable` prints: `123` or `123;cluster`; None where it is something else."""
    last = text.strip().splitlines()[-1:] or [""]
    number = last[0].partition(";")[0].strip()
    return int(number) if number.isdecimal() and number.isascii() else None


def exit_in_words(text: str) -> str:
    """How a job ended by `scontrol --oneliner show job`; "" where that does not say."""
    found = _EXIT.search(text)
    if not found:
        return ""
    code, signal = int(found[1]), int(found[2])
    if signal == NOT_OPENED:
        return "Slurm could not open its folder or output file there; does the node see the folder, and is it yours?"
    return f"ended by signal {signal}" if signal else f"exit code {code}" if code else ""


def state_in(text: str) -> str:
    """State of the job by `scontrol --oneliner show job` or `sacct`; `GONE` where there is none of ours."""
    found = _STATE.search(text)
    word = found[1] if found else next(iter(text.split("|", maxsplit=1)[0].split()), "")
    return word if word in ENDED else GONE


def ended_in_words(job: Job, exit_words: str, output: str) -> str:
    """Why a job that ended has left no report.

    `exit_words` are those of `exit_in_words`, `output` is the end of what it printed.
    """
    if job.state == GONE:
        head = f"Slurm does not know its job {job.number or job.name} any more, and it left no report"
    else:
        head = f"{ENDED.get(job.state, f'its job is {job.state}')} (job {job.number})"
    reason = "" if job.reason.upper() in (*NO_REASONS, job.state) else job.reason
    told = [part for part in (exit_words, reason, f"it said: {output}" if output else "") if part]
    return "; ".join([head, *told])


def waited_in_words(job: Job, node: NodeLine | None, waited_seconds: float) -> str:
    """Why a node was not handed out.

    The node is None where Slurm does not list it.
    """
    told: list[str] = []
    if node is not None and (node.silent or node.reason or node.state.startswith(NOT_HANDED_OUT)):
        told.append(node.in_words)
    if job.reason:
        told.append(f"its job waits for {job.reason}")
    why = (
        "; ".join(told) or "the node is in use" if node is not None else "; ".join([*told, "Slurm lists no such node"])
    )
    return f"Slurm did not hand it out within {waited_seconds:.0f} s: {why}"


def _said(text: str) -> str:
    """One line; what Slurm prints where there is nothing becomes nothing."""
    line = " ".join(text.split())
    return "" if line.lower() in ("none", "(null)", "n/a") else line
