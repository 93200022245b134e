"""A command beside a living rank: in its namespaces, folder and environment here, in its container on Kubernetes.

Not behind the seam: no flow may do it, and no account of ours has the right to. Who types it does it by his own.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from profiles.errors import NotFound, ProfileError, Refused, Unavailable
from profiles.resolve import Resolved
from profiles.values import did_you_mean
from profiles.vocabulary import FINISHED
from tasks.clusters import embedded_cluster, open_cluster
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import process_of
from tasks.runs.open import resolved_of
from tasks.settings import Settings
from workflows import labels
from workflows.model.cluster import pod_of
from workflows.programs.runtime.report_token import SECRETS, VARIABLE

READ_BYTES = 65536
LOOK_SECONDS = 0.5
Write = Callable[[bytes, int], None]
"""Takes what the command printed, and whether on 1 or 2."""


@dataclass(frozen=True)
class RankPlace:
    """Where a rank lives."""

    resolved: Resolved
    role: str
    rank: int
    pod: str


def place_of(run: str, rank: int, role: str, settings: Settings, ledger: Ledger) -> RankPlace:
    """Where a rank lives now; `role` is "" for the one that decides.

    Raises:
        NotFound: no such run, or this rank does not live; those that do are named.
        ProfileError: the run has no such role, or nothing of it runs.
        Unavailable: the cluster does not answer.
    """
    story = ledger.story(run)
    resolved = resolved_of(story.run)
    roles = {one.name: one for one in resolved.run.roles}
    name = role or resolved.run.deciding_role.name
    if name not in roles:
        raise ProfileError("--role", f"{run} has no role {name}{did_you_mean(name, roles, 'roles')}")
    if story.run.state in FINISHED or story.attempt is None:
        raise ProfileError("RUN", f"{run} is {story.run.state}: no rank of it lives")
    ours = {labels.RUN: run, labels.ATTEMPT: str(story.attempt.number), labels.ROLE: name}
    pods = [pod_of(one).ranked(roles[name]) for one in open_cluster(resolved.cluster, settings.home).list("Pod", ours)]
    living = {number: pod.name for pod in pods if pod.phase == "Running" for number in pod.ranks}
    if rank not in living:
        there = ", ".join(map(str, sorted(living)[:16])) + (", …" if len(living) > 16 else "")
        raise NotFound(f"rank {rank} of role {name} of {run} does not live; living: {there or 'none'}")
    return RankPlace(resolved, name, rank, living[rank])


def execute(place: RankPlace, command: Sequence[str], settings: Settings, seconds: float, write: Write) -> int:
    """Run a command beside the rank; its exit status, 128 and the signal where one ended it.

    Raises:
        NotFound: the rank has just ended.
        Refused: who asks may not do it.
        Unavailable: it did not end in time (here it was killed), or the cluster does not answer.
    """
    if place.resolved.cluster.engine == "kubernetes":
        from tasks.kubernetes.execute import execute_in  # noqa: PLC0415 - half a second that a laptop need not pay

        return execute_in(place.resolved.cluster, place.pod, place.role, command, seconds, write)
    cluster = embedded_cluster(place.resolved.cluster, settings.home)
    pid = process_of(cluster, [place.pod], place.rank)
    if pid is None:
        raise NotFound(f"rank {place.rank} of {place.pod} has no process just now: it is starting, or has ended")
    hidden = [item.name for role in place.resolved.run.roles for item in role.secret_environment]
    return _here(pid, command, hidden, seconds, write)


def _here(pid: int, command: Sequence[str], hidden: Sequence[str], seconds: float, write: Write) -> int:
    try:
        pairs = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
        enter = _entered(pid)
    except OSError as error:
        raise NotFound(f"the rank has just ended ({error.strerror})") from error
    known = {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs if "=" in pair}
    environment = {name: text for name, text in known.items() if name not in (*SECRETS, VARIABLE, *hidden)}
    return _watched([*enter, *command], environment, f"/proc/{pid}/cwd", seconds, write)


def _entered(pid: int) -> list[str]:
    """What enters the namespaces of a process; nothing where it has none of its own."""
    apart = {name: os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}") for name in _SPACES}
    if not apart["mnt"]:
        return []
    program = shutil.which("nsenter")
    if program is None:
        raise Refused("exec", "there is no nsenter here: install util-linux")
    user = ["--user", "--preserve-credentials"] if apart["user"] else []
    return [program, "--target", str(pid), "--mount", "--uts", *user, "--wd", "--"]


_SPACES = ("mnt", "user")


def _watched(words: Sequence[str], environment: Mapping[str, str], folder: str, seconds: float, write: Write) -> int:
    entering = len(words) > 0 and words[0].endswith("/nsenter")
    try:
        process = subprocess.Popen(
            list(words),
            env=dict(environment),
            cwd=None if entering else folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        write(f"{words[0]}: {error.strerror}\n".encode(), 2)
        return 127 if isinstance(error, FileNotFoundError) else 126
    with process:
        try:
            _relay({cast(IO[bytes], process.stdout): 1, cast(IO[bytes], process.stderr): 2}, process, seconds, write)
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _relay(streams: Mapping[IO[bytes], int], process: subprocess.Popen[bytes], seconds: float, write: Write) -> None:
    """Until the command has ended and said all; what it left behind in the background is not waited for."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for stream, number in streams.items():
            selector.register(stream, selectors.EVENT_READ, number)
        while selector.get_map():
            over = process.poll() is not None
            ready = selector.select(0 if over else min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            for key, _ in ready:
                data = os.read(key.fd, READ_BYTES)
                if data:
                    write(data, key.data)
                else:
                    selector.unregister(key.fileobj)
            if over and not ready:
                return
            if time.monotonic() > deadline:
                raise Unavailable(f"it did not end within {seconds:g} s and was killed: --timeout gives it more")
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"it did not end within {seconds:g} s and was killed: --timeout gives it more") from error
