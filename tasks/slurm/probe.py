"""A preflight through Slurm: one job a node, sent or taken over, followed, and read from a folder that all nodes see.

Decides nothing about nodes: a report is judged as a pod's is. A process that is killed leaves jobs that end by
themselves, and the next one with the same plan takes them over; slurmctld may be away meanwhile, since reports come by
the folder. The folder is readable by us alone, and removed once it was read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiles.admission import Slurm
from profiles.errors import NotFound, ProfileError, Refused, Transient, Unavailable
from tasks.programs_archive import programs_archive
from tasks.slurm import commands
from tasks.slurm.commands import GONE, Job, NodeLine
from workflows.model.node_results import NodeResult
from workflows.node_tests import slurm_job
from workflows.node_tests.preflight import PreflightPlan
from workflows.node_tests.slurm_job import ARCHIVE, OUTPUT, REPORT, SENT
from workflows.programs.probes.run import unpack_answers

Tell = Callable[[str, int], None]

PREFIX = ".primus-preflight-"
"""Beginning of the folders' names; a test's name follows, which begins so itself."""
LEFT_OVER_SECONDS = 2 * 86400.0
"""After so long nobody reads a test: whoever followed it was killed."""
MOST_BYTES = 1 << 20
"""No report is larger: they are packed, some KB each."""
LAST_CHARACTERS = 300
"""Of what a job printed, for a reason."""

REFUSALS = (
    ("account", "slurm.account", "name one of yours that may use the partition"),
    ("partition", "slurm.partition", "name one that you may use (`sinfo` lists them)"),
    ("reservation", "slurm.reservation", "name one that you may use, or none"),
    ("qos", "slurm.arguments", "name a QOS that you may use"),
    ("option", "slurm.arguments", "remove what sbatch does not know"),
    ("(gres)", "slurm.gpus_per_node", "this Slurm counts no GPUs: set it to 0"),
)
"""Words of sbatch's refusals that concern all nodes, the field at fault, and what to do."""
ONE_NODE = ("node name", "node configuration", "not in this partition")
"""Words of those that concern one node."""


def made(shared: Path, test: str, home: Path) -> Path:
    """The test's own folder in `shared`, with the programs in it; made where it is not there.

    Raises:
        Unavailable: it cannot be made or written.
        Refused: something of that name is there, and not ours.
    """
    folder = shared / f".{test}"
    archive = programs_archive(home).read_bytes()
    try:
        shared.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(shared)
        _own(folder)
        if not (folder / ARCHIVE).is_file() or (folder / ARCHIVE).read_bytes() != archive:
            write(folder / ARCHIVE, archive)
    except OSError as error:
        raise Unavailable(f"{folder} cannot be used ({error.strerror}): it must be writable for you", 5.0) from error
    return folder


def write(path: Path, content: bytes) -> None:
    """A complete file or none, in a folder of ours that is made where it is missing.

    Raises:
        Unavailable: it cannot be written.
    """
    try:
        _own(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be written ({error.strerror}): free space or check the rights", 5.0
        ) from error


def sent_job(own: Path) -> int:
    """Number of the job that was sent for the node of this folder; 0: none that we know of."""
    text = _read(own / SENT).strip()
    return int(text) if text.isdigit() else 0


def report(own: Path, node: str) -> NodeResult | None:
    """What the node of this folder reported; None: nothing yet. A report that cannot be read becomes its reason."""
    try:
        (own / REPORT).lstat()
    except OSError:
        return None  # not there, or the storage does not answer just now
    try:
        told: dict[str, Any] = json.loads(_read(own / REPORT))
        at, seconds = float(told["at"]), float(told["seconds"])
        if not (math.isfinite(at) and at > 0):
            raise ValueError("it says no time")
        return NodeResult(node, at, seconds, unpack_answers(str(told["answers"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return NodeResult(node, why=f"its report cannot be read: {type(error).__name__}: {str(error)[:200]}")


def last_output(own: Path) -> str:
    """The end of what the job printed, in one line; "" where it printed nothing that can be seen here."""
    said = "".join(mark if mark.isprintable() else " " for mark in _read(own / OUTPUT, from_end=True))
    return " ".join(said.split())[-LAST_CHARACTERS:]


def forget(folder: Path) -> None:
    """It was read: remove it. What cannot be removed now is removed by a later test."""
    shutil.rmtree(folder, ignore_errors=True)


def _own(folder: Path) -> None:
    """Make a folder for ourselves, or find it.

    Raises:
        Refused: it is a link, a file, or somebody else's: our programs must not be changed by others.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise Refused("slurm.folder", f"{folder} is there and not ours alone: remove it") from None


def _remove_left_overs(shared: Path) -> None:
    """Folders of tests whose callers were killed."""
    now = time.time()
    for folder in shared.glob(f"{PREFIX}*"):
        try:
            found = folder.lstat()
        except OSError:
            continue  # somebody else was quicker
        old = now - found.st_mtime > LEFT_OVER_SECONDS
        if old and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and (folder / ARCHIVE).exists():
            forget(folder)


def _read(path: Path, *, from_end: bool = False) -> str:
    """Text of a plain file, at most `MOST_BYTES` of it; "" where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return ""
        if from_end and found.st_size > MOST_BYTES:
            file.seek(-MOST_BYTES, os.SEEK_END)
        try:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""


@dataclass(frozen=True)
class Pace:
    """How long it is looked and waited, in seconds."""

    look_seconds: float = 2.0
    """Between two looks: a squeue a look, less than a person at `watch squeue` costs."""
    settle_seconds: float = 60.0
    """For a report to be seen here after its job ended: an NFS client believes in a missing name so long (acdirmax)."""
    kept_out_seconds: float = 30.0
    """A node that a person took out is not waited for longer; `wait_seconds` where that is less."""
    end_seconds: float = 120.0
    """For Slurm to end a job that is over its time (KillWait and an epilog); a job that stays is left to it."""


OUR_PACE = Pace()


def run_by_slurm(
    plan: PreflightPlan, settings: Slurm, storage: Path, home: Path, tell: Tell, *, pace: Pace = OUR_PACE
) -> list[NodeResult]:
    """Test the plan's nodes by jobs, follow these to their end, and read what every node reported.

    Args:
        plan: what is tested.
        settings: how Slurm is asked.
        storage: folder that all nodes see; tested, and used for reports where `settings` name none.
        home: PRIMUS_HOME.
        tell: gets how many jobs wait and run, in words, and how many nodes have told, after each change.
        pace: of looking and waiting.

    Returns:
        What each node told, in the plan's order; one that told nothing says why.

    Raises:
        ProfileError: Slurm's commands are not here, or do not take what the section `slurm` says; nothing is left.
        Unavailable: slurmctld or the folder does not answer. What was sent goes on: the same call takes it over.
        Refused: the folder is somebody else's, or Slurm does not talk to this user.
        NotFound: somebody else who followed the same test has read and removed it.
    """
    slurm_job.check_settings(settings)
    test = slurm_job.name_of(plan, str(home))
    shared, tested = _folders(settings, storage)
    folder = made(shared, test, home)
    following = Following(plan, settings, folder, test, str(tested), pace)
    try:
        following.send()
        following.follow(tell)
    except Transient:
        raise
    except BaseException:  # refused, or a person ended it: nodes are not held for a test that nobody reads
        following.give_back()
        forget(folder)
        raise
    following.give_back()
    forget(folder)
    return [following.told[node] for node in plan.nodes]


class Following:
    """One test on its way."""

    def __init__(self, plan: PreflightPlan, settings: Slurm, folder: Path, test: str, storage: str, pace: Pace) -> None:
        self.told: dict[str, NodeResult] = {}
        """By node."""
        self._plan, self._settings, self._folder, self._storage, self._pace = plan, settings, folder, storage, pace
        self._test = test
        self._names = {node: slurm_job.job_name(test, node) for node in plan.nodes}
        self._last: dict[str, Job] = {}
        """By node: as it was listed last."""
        self._ended_at: dict[str, float] = {}
        """By node: when its job was first seen to have ended."""
        self._began = time.monotonic()
        self._limit = settings.wait_seconds + slurm_job.limit_seconds(plan) + pace.end_seconds
        self._said: tuple[str, int] | None = None

    def send(self) -> None:
        """See to it that every node has a job: taken over where there is one, else sent."""
        for node in self._plan.nodes:
            if not slurm_job.NODE_NAME.fullmatch(node):
                self.told[node] = NodeResult(node, why=f"{node!r} can be no node's name in Slurm")
        known = commands.list_jobs([self._names[node] for node in self._left()])
        for node in self._left():
            job, sent = known.get(self._names[node]), sent_job(self._folder / node)
            # One that ended before this folder was made belongs to a test that was read, and not written down.
            lives = job is not None and (bool(sent) or not job.ended)
            if not lives and not sent and report(self._folder / node, node) is None:
                job, sent = None, self._send(node)
            if job is not None or sent:
                self._last[node] = job or Job(sent, "PENDING", "", "", self._names[node])

    def follow(self, tell: Tell) -> None:
        """Return when every node has reported, or it is known why it does not."""
        quiet = threading.Event()
        while True:
            self._read()
            away = ""
            if self._left():
                try:
                    self._look()
                except (Unavailable, Refused) as error:
                    away = str(error)
                    if self._waited() > self._limit:
                        raise
            self._tell(tell, away)
            if not self._left():
                return
            quiet.wait(self._pace.look_seconds)

    def give_back(self) -> None:
        """End whatever of the test still waits or runs; where Slurm does not answer, it drops the jobs by itself."""
        with contextlib.suppress(Transient, Refused, ProfileError):
            known = commands.list_jobs(list(self._names.values()))
            commands.cancel([job.number for job in known.values() if not job.ended])

    def _left(self) -> list[str]:
        return [node for node in self._plan.nodes if node not in self.told]

    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _send(self, node: str) -> int:
        """The number of the job that was sent; 0 where Slurm takes none for this node."""
        own = self._folder / node
        script = slurm_job.job_script(self._plan, node, self._settings, self._storage, str(self._folder))
        write(own / slurm_job.SCRIPT, script.encode())
        words = slurm_job.sbatch_words(self._plan, node, self._settings, self._test, str(self._folder))
        try:
            said = commands.ask(["sbatch", *words])
        except Refused as error:
            _blame_settings(error)
            self.told[node] = NodeResult(node, why=f"Slurm takes no job for it: {error.reason}")
            return 0
        number = commands.number_in(said) or 0
        write(own / slurm_job.SENT, str(number).encode())
        return number

    def _read(self) -> None:
        """Read the reports that arrived meanwhile."""
        for node in self._left():
            found = report(self._folder / node, node)
            if found is not None:
                self.told[node] = found
        if self._left() and not self._folder.is_dir():
            raise NotFound(f"{self._folder} is gone: somebody else has read this test, or removed it; test again")

    def _look(self) -> None:
        """Ask Slurm about the nodes without a report, and give up where none will come."""
        jobs = commands.list_jobs([self._names[node] for node in self._left()])
        for node in self._left():
            before = self._last.get(node) or Job(0, "PENDING", "", "", self._names[node])
            self._last[node] = jobs.get(self._names[node]) or replace(before, state=GONE, reason="")
        waiting = [node for node in self._left() if self._last[node].waits]
        lines = commands.list_nodes(waiting) if self._is_late() else {}
        for node in self._left():
            job = self._last[node]
            if job.waits:
                self._wait(node, job, lines.get(node))
            elif job.ended or job.state == GONE:
                self._end(node, job)
            elif self._waited() > self._limit:
                why = f"its job {job.number} is {job.state.lower()} long after its time limit; Slurm was told to end it"
                self._give_up(node, job, why)

    def _is_late(self) -> bool:
        return self._waited() > min(self._pace.kept_out_seconds, self._settings.wait_seconds)

    def _wait(self, node: str, job: Job, line: NodeLine | None) -> None:
        if self._waited() > self._settings.wait_seconds or (self._is_late() and line is not None and line.kept_out):
            self._give_up(node, job, commands.waited_in_words(job, line, self._waited()))

    def _give_up(self, node: str, job: Job, why: str) -> None:
        with contextlib.suppress(Refused):  # then it ends at its time limit
            commands.cancel([job.number] if job.number else [])
        # It may have ended between two looks.
        self.told[node] = report(self._folder / node, node) or NodeResult(node, why=why)

    def _end(self, node: str, job: Job) -> None:
        """A job has ended; a report that is on its way here is waited for."""
        ended_at = self._ended_at.setdefault(node, self._waited())
        state, exit_words = commands.end_of(job.number) if job.number else (GONE, "")
        job = replace(job, state=state) if job.state == GONE else job
        if job.state in ("COMPLETED", GONE) and self._waited() - ended_at < self._pace.settle_seconds:
            return
        found = report(self._folder / node, node)
        output = last_output(self._folder / node)
        self.told[node] = found or NodeResult(node, why=commands.ended_in_words(job, exit_words, output))

    def _tell(self, tell: Tell, away: str) -> None:
        left = [self._last[node] for node in self._left() if node in self._last]
        waits = sum(job.waits for job in left)
        phase = away or ", ".join(
            f"{count} {word}" for count, word in ((waits, "waiting"), (len(left) - waits, "running")) if count
        )
        now = (phase or "done", sum(bool(item.at) for item in self.told.values()))
        if now != self._said:
            self._said = now
            tell(*now)


def _folders(settings: Slurm, storage: Path) -> tuple[Path, Path]:
    """Where reports go, and what checks of storage write to: each stands in where the other is not known.

    Raises:
        ProfileError: neither is a folder of the nodes.
    """
    folder = Path(settings.folder) if settings.folder else storage
    if not folder.is_absolute():
        said = f"the cluster's first storage is no folder of the nodes ({storage}): name one that all nodes see"
        raise ProfileError("slurm.folder", said)
    return folder, storage if storage.is_absolute() else folder


def node_names(settings: Slurm) -> tuple[str, ...]:
    """The nodes of the partition (none named: of all that this user sees), by name in Slurm's order.

    Raises:
        ProfileError: there are none, or Slurm's commands are not on this machine.
        Unavailable, Refused: slurmctld does not answer, or not to this user.
    """
    slurm_job.check_settings(settings)
    names = commands.list_names(settings.partition)
    if not names:
        where = f"the partition {settings.partition!r}" if settings.partition else "any partition"
        raise ProfileError("slurm.partition", f"Slurm shows no node in {where}; `sinfo` lists what there is")
    return names


def _blame_settings(error: Refused) -> None:
    """Raise where sbatch says no to all nodes alike.

    Raises:
        ProfileError: names the field and what to do.
    """
    said = error.reason.lower()
    if any(part in said for part in ONE_NODE):
        return
    for part, field, advice in REFUSALS:
        if part in said:
            raise ProfileError(field, f"Slurm says: {error.reason}; {advice}") from error
