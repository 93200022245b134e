"""Slurm's commands, asked: every one ends within its time, and what it says becomes an error of ours.

They run with a small environment: sbatch stores what it is given with the job, and a token must not lie there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from profiles.errors import NotFound, ProfileError, Refused, Unavailable
from tasks import slurm_answers
from tasks.slurm_answers import Job, NodeLine

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


def ask(words: Sequence[str], limit_seconds: float = LIMIT_SECONDS) -> str:
    """What a command of Slurm prints.

    Args:
        words: the program and its arguments; no shell sees them.
        limit_seconds: after so long it is killed.

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
    text = ask(["squeue", "--noheader", *chosen, f"--format={slurm_answers.JOB_FORMAT}"])
    wanted = frozenset(names)
    return slurm_answers.by_name(job for job in slurm_answers.jobs_in(text) if job.name in wanted)


def list_nodes(nodes: Sequence[str]) -> dict[str, NodeLine]:
    """What Slurm says of these nodes, by name; those that it does not know are missing.

    Raises:
        Unavailable, ProfileError, Refused: as `ask`.
    """
    if not nodes:
        return {}
    chosen = ["--noheader", "--Node", "--all", f"--nodes={','.join(nodes)}"]
    return slurm_answers.nodes_in(ask(["sinfo", *chosen, f"--format={slurm_answers.NODE_FORMAT}"]))


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
            return slurm_answers.state_in(text), slurm_answers.exit_in_words(told)
    return slurm_answers.GONE, ""
