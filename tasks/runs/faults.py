"""Causing faults, for drills and tests: from outside, on real processes, files and locks of this machine.

Never a branch in the trainer: signals, power cuts, flipped bytes, full file systems and held locks. Only exception, NaN
and lack of memory are asked of a trainer, through the fault file it polls.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from profiles.drill import KINDS, FaultSpec
from profiles.errors import NotFound, ProfileError, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, NodeAction, RunState
from tasks.cluster import Cluster
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start
from tasks.runs.open import checkpoint_folder, resolved_of, run_folder, survey_request
from tasks.settings import Settings
from workflows import labels
from workflows.model.cluster import pod_of
from workflows.model.nodes import people_of
from workflows.model.records import ActionRecord, Actor, AttemptRecord, MarkRecord, Story
from workflows.programs.checkpoints.inventory import largest_file_of_the_newest

FAULT_FILE = "fault.json"
"""Name of the fault file in the run's folder; the demo profile tells its trainer."""
STEP_SECONDS = 600.0
"""A fault that waits for a step waits no longer than this."""
LOOK_SECONDS = 0.005
"""Between two looks at the step file while waiting for a step."""
ATTEMPT_SECONDS = 1.0
"""Between two questions whether the attempt whose step is waited for still lives."""
CHANGE_SECONDS = 0.02
"""Between two questions whether the ledger has changed."""
DRILL_CORDON = "a drill drains it, as before a preemption"
"""Why a cordon of a drill stands: it alone is taken back with the drill."""

Tell = Callable[[str], None]
"""Says a line to whoever waits."""


class Breakable(Cluster, Protocol):
    """A cluster whose processes run on this machine, so that they can be broken: the embedded one, or a test's."""

    def pod_processes(self, pod: str) -> list[int]:
        """Pids of the pod's containers, oldest first."""
        ...

    def lose_node(self, name: str, *, silent: bool = False) -> None:
        """A power cut; unless `silent` the node's condition says so at once."""
        ...

    def hold(self, seconds: float) -> None:
        """Block all changes for so long, as an API server that hangs does."""
        ...


@dataclass(frozen=True)
class Scene:
    """Where a fault is caused."""

    settings: Settings
    ledger: Ledger
    cluster: Breakable
    resolved: Resolved
    attempt: AttemptRecord

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return run_folder(self.resolved, self.attempt.run)

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints, wherever the profile says that it lies."""
        return checkpoint_folder(self.resolved, self.attempt.run)

    def pods(self, role: str = "", node: str = "") -> list[str]:
        """Names of the attempt's pods, of one role or all, on one node or all."""
        marks = {labels.RUN: self.attempt.run, labels.ATTEMPT: str(self.attempt.number)}
        if role:
            marks[labels.ROLE] = role
        found = map(pod_of, self.cluster.list("Pod", marks))
        return [pod.name for pod in found if node in ("", pod.node)]


def scene_of(run: str, settings: Settings, ledger: Ledger) -> Scene:
    """The living attempt of a run on an embedded cluster.

    Raises:
        ProfileError: there is nothing to break.
    """
    story = ledger.story(run)
    if story.run.state in FINISHED or story.attempt is None:
        raise ProfileError("RUN", f"{run} is {story.run.state}: nothing runs that could be broken")
    resolved = resolved_of(story.run)
    if resolved.cluster.engine != "embedded":
        raise ProfileError("RUN", "drills break things of the embedded cluster only")
    return Scene(settings, ledger, embedded_cluster(resolved.cluster, settings.home), resolved, story.attempt)


def wait_for(ledger: Ledger, run: str, until: Callable[[Story], bool], timeout_seconds: float) -> Story:
    """The story as soon as `until(story)` holds.

    Raises:
        Unavailable: it did not hold within `timeout_seconds`.
    """
    deadline, version = time.monotonic() + timeout_seconds, -1
    while True:
        changed = ledger.changes(run)
        if changed != version:
            version = changed
            story = ledger.story(run)
            if until(story):
                return story
            if story.run.state in FINISHED:
                raise Unavailable(f"{run} ended before what was waited for: {story.run.state}, {story.run.why}")
        if time.monotonic() > deadline:
            raise Unavailable(f"{run}: what was waited for did not come within {timeout_seconds:g} s")
        time.sleep(CHANGE_SECONDS)


def break_at(
    run: str,
    spec: FaultSpec,
    settings: Settings,
    ledger: Ledger,
    by: Actor | None = None,
    tell: Tell = lambda _: None,
) -> float:
    """Cause the fault as soon as its step was seen; returns when (Unix seconds).

    `by` wants it, as is written down before; None: that was written down. `tell` hears what is waited for.

    Raises:
        ProfileError: there is nothing to break, or this trainer cannot be asked for it.
        NotFound: what should be broken is not there.
        Unavailable: its step was not seen within `STEP_SECONDS`, or cannot come any more.
    """

    def training(story: Story) -> bool:
        _refuse_to_wait(story)
        attempt = story.attempt
        if attempt is not None and attempt.ended_at is None and attempt.first_step is not None:
            return True
        tell(f"waiting until {run} trains, at most {STEP_SECONDS:g} s; it is {story.run.state}: {story.run.reason}")
        return False

    wait_for(ledger, run, training, STEP_SECONDS)
    scene = scene_of(run, settings, ledger)
    if by is not None:
        ledger.act(run, f"drill {spec}", "asked for one fault, for real", by)
    if spec.step is not None:
        _await_step(spec.step, scene, tell)
    return cause(spec, scene)


def _refuse_to_wait(story: Story) -> None:
    """Raises ProfileError: the run cannot train before a person has said or done something."""
    name = story.run.name
    if story.run.state is RunState.WAITING_FOR_APPROVAL:
        raise ProfileError("RUN", f"{name} waits for a person's answer, nothing trains: see `primus approvals`")
    attempt = story.attempt
    over = attempt is None or attempt.ended_at is not None
    over = over or any(item.attempt == attempt.number and not item.went_on for item in story.troubles if attempt)
    if story.paused and over:
        raise ProfileError("RUN", f"{name} is paused and nothing of it trains: `primus unpause {name}` first")


def _await_step(step: int, scene: Scene, tell: Tell) -> None:
    run, number = scene.attempt.run, scene.attempt.number
    began = asked = time.monotonic()
    if (seen := step_seen(scene)) < step:
        tell(f"waiting for step {step} of {run}, at most {STEP_SECONDS:g} s; it is at {max(seen, 0)}")
    while step_seen(scene) < step:
        now = time.monotonic()
        if now - asked > ATTEMPT_SECONDS:
            asked, story = now, scene.ledger.story(run)
            over = story.run.state in FINISHED or story.attempt is None or story.attempt.ended_at is not None
            if over or (story.attempt and story.attempt.number != number):
                raise Unavailable(f"step {step} of {run} was not seen: attempt {number} is over")
        if now - began > STEP_SECONDS:
            raise Unavailable(f"step {step} of {run} was not seen within {STEP_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def cause(spec: FaultSpec, scene: Scene) -> float:
    """Cause the fault now and write it into the ledger.

    Returns:
        When it happened, Unix seconds.

    Raises:
        NotFound: what should be broken is not there.
        ProfileError: this trainer cannot be asked for it.
    """
    if KINDS[spec.kind].trainer and not _polls_fault_file(scene.resolved):
        raise ProfileError("--fault", f"{spec.kind} is asked through a fault file, which this trainer does not poll")
    begun = time.time()
    at = _CAUSES[spec.kind](spec, scene) or begun
    where = f"{spec.kind}:{spec.node or spec.rank or ''}".rstrip(":")
    scene.ledger.add_marks(None, [MarkRecord(scene.attempt.run, scene.attempt.number, "fault", at, where)])
    return at


def _polls_fault_file(resolved: Resolved) -> bool:
    return any(word.endswith(FAULT_FILE) for word in resolved.run.deciding_role.command)


def step_seen(scene: Scene) -> int:
    """Highest step that the attempt's launchers saw so far, read from the run's folder; -1: none."""
    highest = -1
    for path in scene.folder.glob(f"a{scene.attempt.number}/*/steps.jsonl"):
        lines = path.read_bytes().rstrip(b"\n").splitlines()[-2:]
        for line in lines:
            try:
                highest = max(highest, int(json.loads(line)["step"]))
            except (ValueError, KeyError, TypeError):
                continue  # the line is being written
    return highest


def rank_process(scene: Scene, rank: int) -> int:
    """Pid of a rank: the oldest process of its pod that carries the rank's number in its environment.

    Raises:
        NotFound: no such process lives.
    """
    pid = process_of(scene.cluster, scene.pods(scene.resolved.run.deciding_role.name), rank)
    if pid is None:
        raise NotFound(f"rank {rank} of {scene.attempt.run} is not running")
    return pid


def process_of(cluster: Breakable, pods: Sequence[str], rank: int) -> int | None:
    """Pid of a rank in one of these pods; None where it is not running."""
    found = [
        (_age_key(pid), pid)
        for pod in pods
        for pid in cluster.pod_processes(pod)
        if (_variable(pid, b"PRIMUS_RANK") or _variable(pid, b"RANK")) == str(rank)
    ]
    return min(found)[1] if found else None


def _variable(pid: int, name: bytes) -> str:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((pair[len(name) + 1 :].decode() for pair in pairs if pair.startswith(name + b"=")), "")


def _age_key(pid: int) -> float:
    started = process_start(pid)
    return float("inf") if started is None else started


def words_of(pid: int) -> list[str]:
    """Command line of a process; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _program(scene: Scene, pods: list[str], subcommand: str) -> int:
    for pod in pods:
        found = [pid for pid in scene.cluster.pod_processes(pod) if subcommand in words_of(pid)[:6]]
        if found:
            return min(found, key=_age_key)
    raise NotFound(f"no living `{subcommand}` in {', '.join(pods) or 'any pod'}")


def _strike(pid: int, number: signal.Signals) -> float:
    """Send a signal; returns when (Unix seconds), since to look for whom took its time."""
    at = time.time()
    os.kill(pid, number)
    return at


def _signal_rank(number: signal.Signals) -> Callable[[FaultSpec, Scene], float]:
    return lambda spec, scene: _strike(rank_process(scene, spec.rank or 0), number)


def _stop_rank(spec: FaultSpec, scene: Scene) -> float:
    pid = rank_process(scene, spec.rank or 0)
    at = _strike(pid, signal.SIGSTOP)
    _detached(f"sleep {spec.seconds}; kill -CONT {pid}")
    return at


def _slow_rank(spec: FaultSpec, scene: Scene) -> None:
    # Of every 50 ms the process may run one factor-th: from outside, whatever it computes.
    pid = rank_process(scene, spec.rank or 0)
    loop = slowing_loop(pid, spec.factor)
    _detached(f"({loop}) & sleep {spec.seconds}; kill -KILL $!; kill -CONT {pid}" if spec.seconds else loop)


def slowing_loop(pid: int, factor: float) -> str:
    """Holds a process down until it ends."""
    run = 0.05 / max(1.0, factor)
    return f"while kill -STOP {pid} 2>/dev/null; do sleep {0.05 - run:.4f}; kill -CONT {pid}; sleep {run:.4f}; done"


def _detached(script: str) -> None:
    process = subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    process.returncode = 0  # it ends by itself


def _ask_trainer(spec: FaultSpec, scene: Scene) -> None:
    fault = {"rank": spec.rank, "fault": spec.kind.removesuffix("-rank")}
    path = scene.folder / FAULT_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(fault))
    temporary.replace(path)


def _lose_node(spec: FaultSpec, scene: Scene) -> None:
    scene.cluster.lose_node(spec.node, silent=spec.silent)


def _preempt_node(spec: FaultSpec, scene: Scene) -> None:
    _cordon(spec.node, scene)
    for name in scene.pods(node=spec.node):
        scene.cluster.delete("Pod", name, grace_seconds=max(1, round(spec.notice_seconds)))


def _cordon(node: str, scene: Scene) -> None:
    """Written down before it is done, so that whoever comes later knows whose cordon it is."""
    found, now, name = scene.cluster.get("Node", node), time.time(), scene.resolved.cluster.name
    if found is None:
        raise NotFound(f"there is no Node {node}")
    if not found.get("spec", {}).get("unschedulable"):
        people = people_of(name)
        plan = ActionRecord(f"{people}/{node}/{now:.6f}", people, "", NodeAction.DRAIN, node, "done", DRILL_CORDON, now)
        scene.ledger.plan_action(None, plan)
        scene.cluster.patch("Node", node, {"spec": {"unschedulable": True}})


def corrupted_file(scene: Scene) -> Path:
    """Where it stands which byte a drill flipped."""
    return scene.folder / "drill-corrupted.json"


def _corrupt_checkpoint(_: FaultSpec, scene: Scene) -> None:
    request = survey_request(scene.resolved, scene.attempt.run)
    found = largest_file_of_the_newest(request)
    if not found:
        raise NotFound(f"no checkpoint to corrupt in {request.directory}")
    largest = Path(found)
    offset = largest.stat().st_size // 2
    with largest.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        corrupted_file(scene).write_text(json.dumps({"path": str(largest), "offset": offset, "byte": byte}))
        handle.seek(offset)
        handle.write(bytes([byte ^ 0xFF]))


def _kill_coordinator(_: FaultSpec, scene: Scene) -> float:
    return _strike(_program(scene, scene.pods(labels.COORDINATOR_ROLE), "coordinate"), signal.SIGKILL)


def _kill_launcher(spec: FaultSpec, scene: Scene) -> float:
    there = scene.pods(scene.resolved.run.deciding_role.name, spec.node)
    return _strike(_program(scene, there, "launch"), signal.SIGKILL)


def _kill_flow(_: FaultSpec, scene: Scene) -> None:
    lease = scene.ledger.story(scene.attempt.run).lease
    if lease is None or process_start(lease.driver.pid) != lease.driver.started_at:
        raise NotFound(f"no driver of {scene.attempt.run} lives on this machine")
    os.kill(lease.driver.pid, signal.SIGKILL)


def _disk_full(_: FaultSpec, scene: Scene) -> None:
    # A file system of one page over the checkpoints, inside the pods' own mount namespaces: real ENOSPC, only there.
    target = str(scene.checkpoints)
    for rank in range(scene.resolved.world_size):
        full = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", target]
        done = in_mounts_of(rank_process(scene, rank), full)
        if done.returncode != 0:
            raise NotFound(f"disk-full needs pods with a mount namespace of their own here: {done.stderr.strip()}")


def in_mounts_of(pid: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that sees the mounts of a process."""
    enter = ["nsenter", "--target", str(pid), "--mount"]
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        enter += ["--user", "--preserve-credentials"]
    return subprocess.run([*enter, *command], capture_output=True, text=True, check=False)


def _api_away(spec: FaultSpec, scene: Scene) -> None:
    scene.cluster.hold(spec.seconds)


def _ledger_away(spec: FaultSpec, scene: Scene) -> None:
    path = scene.settings.ledger_url.removeprefix("sqlite:///")
    if path == scene.settings.ledger_url:
        raise NotFound("ledger-away holds the lock of an SQLite file; this ledger is a server")
    connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(spec.seconds)
        connection.execute("ROLLBACK")
    finally:
        connection.close()


_CAUSES: dict[str, Callable[[FaultSpec, Scene], float | None]] = {
    "kill-rank": _signal_rank(signal.SIGKILL),
    "hang-rank": _signal_rank(signal.SIGSTOP),
    "slow-rank": _slow_rank,
    "stop-rank": _stop_rank,
    "exception-rank": _ask_trainer,
    "nan-rank": _ask_trainer,
    "oom-rank": _ask_trainer,
    "lose-node": _lose_node,
    "preempt-node": _preempt_node,
    "corrupt-checkpoint": _corrupt_checkpoint,
    "kill-coordinator": _kill_coordinator,
    "kill-launcher": _kill_launcher,
    "kill-flow": _kill_flow,
    "disk-full": _disk_full,
    "api-away": _api_away,
    "ledger-away": _ledger_away,
}
