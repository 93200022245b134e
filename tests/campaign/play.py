"""Playing a run of a campaign on an embedded cluster of its own: it is started, broken as planned, and looked at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from deployments.processes.driver import OwnDriver
from profiles.drill import KINDS, FaultSpec
from profiles.errors import NotFound, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, RunState
from tasks.processes import process_start
from tasks.runs.faults import FAULT_FILE, Scene, cause, rank_process, step_seen
from tests.benchmarks.scenes import command, wide_cluster
from tests.campaign.cards import Fault
from tests.campaign.expected import must_be_noticed
from tests.campaign.plan import AMOUNTS, BETWEEN_SAVES, NODE_FAULTS, NODES, SAVE_EVERY, STEPS, RunPlan, Strike
from tests.campaign.seen import Hit, Seen
from tests.support.harness.stages import Stage, stage
from tests.support.running.waiting import patience
from workflows import labels
from workflows.model.records import Story

DEADLINE_SECONDS = patience(120.0)
"""Of each wait. Generous: a loaded machine is slow, a broken run hangs for ever."""
POLL_SECONDS = 0.03
ORPHANS_SECONDS = patience(20.0)
"""For the last processes to be gone."""
INDEX = "batch.kubernetes.io/job-completion-index"
OVERRIDES = (
    f"steps={STEPS}",
    f"checkpoint.interval_steps={SAVE_EVERY}",
    "recovery.restarts.tokens=100",
    # A rank that hangs is not waited for longer than this where the flow finds it out, in a save neither.
    "recovery.hang.init_seconds=30",  # also of steps before enough were measured
    "recovery.hang.step_floor_seconds=6",
    "recovery.hang.checkpoint_seconds=6",
)
NOT_THERE = (NotFound, ProcessLookupError, FileNotFoundError)
"""What should be broken is not there, or not any more."""


class GaveUpError(Exception):
    """The plan cannot be played on."""


@contextmanager
def played(plan: RunPlan, api_url: str) -> Generator[tuple[Seen, Callable[[], str]]]:
    """Play a run: what was seen, and the whole story in words while the stage stands."""
    with stage(api_url) as made:
        yield Player(made, plan).play(), made.tell


class Player:
    """Breaks one run.

    Args:
        made: its stage.
        plan: what is to be broken.
    """

    def __init__(self, made: Stage, plan: RunPlan) -> None:
        self._stage, self._plan = made, plan
        self._hits: list[Hit] = []
        self._next_driver: OwnDriver | None = None
        """Loads what it needs while nothing is killed yet, so that the run is not over before it drives."""

    def play(self) -> Seen:
        """From its start to its end."""
        ending, error = self._plan.ending, ""
        trainer = command("--step-seconds", str(self._plan.step_seconds), "--checkpoint-mib", "4")
        self._stage.open(
            "campaign",
            in_place=self._plan.in_place,
            cluster=wide_cluster(self._stage.home, NODES),
            overrides=(*OVERRIDES, trainer, *(ending.overrides if ending else ())),
        )
        self._start()
        try:
            for number, strike in enumerate(self._plan.strikes):
                self._strike(number, strike)
            self._wait(lambda story: story.run.state in FINISHED, "the end of the run")
            self._stage.end()
        except (GaveUpError, AssertionError, *NOT_THERE, Unavailable) as problem:
            error = f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"
        if self._next_driver is not None:
            self._next_driver.dismiss()
        return self._look(error)

    def _start(self) -> None:
        if any(fault.kind == "kill-flow" for fault in self._plan.faults):
            self._stage.drive_in_process()
            self._next_driver = OwnDriver(self._stage.home, self._stage.api_url)
        else:
            self._stage.drive()

    def _strike(self, number: int, strike: Strike) -> None:
        first = strike.faults[0]
        if first.moment != "starting":
            due = strike.step - (first.moment == "saving")
            self._wait(lambda story: self._newest_step(story) >= due, f"step {strike.step}")
        if first.moment == "saving":
            self._until_saving()
        if any(fault.kind in BETWEEN_SAVES for fault in strike.faults):
            self._wait(lambda story: self._newest_step(story) % SAVE_EVERY == 1, "a step behind a save")
        began = time.time()
        for fault in strike.faults:
            if fault.moment == "recovering":
                self._wait(lambda story: _noticed(story, began), f"an incident after {first.label}")
            self._hits.append(self._fire(number, fault))
        if must_be_noticed(strike):
            self._wait(lambda story: _over(story, began), f"the recovery from {strike.label}")

    def _newest_step(self, story: Story) -> int:
        scene = self._scene(story)
        return -1 if scene is None else step_seen(scene)

    def _scene(self, story: Story) -> Scene | None:
        attempt, made = story.attempt, self._stage
        if attempt is None or attempt.submitted_at is None:
            return None
        return Scene(made.settings, made.ledger, *self._place, attempt)

    @cached_property
    def _place(self) -> tuple[Any, Resolved]:
        """The cluster and the run's profile, which do not change."""
        return self._stage.cluster, self._stage.resolved

    def _until_saving(self) -> None:
        folder, deadline = self._stage.folder / "checkpoints", time.monotonic() + DEADLINE_SECONDS
        while not any(folder.glob(".step-*.unfinished")):
            if time.monotonic() > deadline:
                raise GaveUpError("no checkpoint is written")
            time.sleep(0.002)

    def _fire(self, number: int, fault: Fault) -> Hit:
        """Cause a fault as soon as what it strikes is there."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            began = time.time()
            with suppress(*NOT_THERE):
                nodes, at = self._caused(fault)
                return Hit(number, fault, began, at, nodes)
            if time.monotonic() > deadline or self._finished():
                raise GaveUpError(f"nothing to strike by {fault.label}")
            time.sleep(0.02)

    def _finished(self) -> bool:
        with suppress(Unavailable):
            return self._stage.story.run.state in FINISHED
        return False

    def _caused(self, fault: Fault) -> tuple[tuple[str, ...], float]:
        scene = self._scene(self._stage.story)
        if scene is None:
            raise NotFound("the attempt was not submitted yet")
        if fault.kind == "corrupt-all":
            return (), self._corrupt_all()
        nodes = self._nodes(fault, scene)
        at = cause(_spec(fault, nodes), scene)
        if KINDS[fault.kind].trainer:
            self._wait(lambda _: not (self._stage.folder / FAULT_FILE).exists(), f"{fault.label} fires")
        if fault.kind == "kill-flow":
            self._drive_again()
        return nodes, at

    def _nodes(self, fault: Fault, scene: Scene) -> tuple[str, ...]:
        """What it strikes: the node of its rank; of a full disk all of them."""
        if fault.kind == "disk-full":
            return scene.attempt.nodes
        if fault.rank is None:
            return ()
        if fault.moment == "recovering" and fault.kind in NODE_FAULTS:
            return (scene.attempt.nodes[fault.rank],)
        rank_process(scene, fault.rank)  # a node without its rank is not yet, or no longer, part of the gang
        for name in scene.pods(scene.resolved.run.deciding_role.name):
            pod = self._stage.cluster.get("Pod", name)
            if pod and pod["metadata"].get("annotations", {}).get(INDEX) == str(fault.rank):
                return (pod["spec"]["nodeName"],)
        raise NotFound(f"rank {fault.rank} has no pod")

    def _corrupt_all(self) -> float:
        paths = list((self._stage.folder / "checkpoints").glob("step-*/shard-*"))
        for path in paths:
            path.write_bytes(b"\0" * 16)
        if not paths:
            raise NotFound("no checkpoint")
        return time.time()

    def _drive_again(self) -> None:
        """A driver takes the place of the killed one; while there is none nothing more is broken."""
        before = self._stage.story.lease
        if before is None:
            raise NotFound("no driver")
        killed = before.driver
        self._wait(lambda _: process_start(killed.pid) != killed.started_at, "a dead driver")
        assert self._next_driver is not None
        self._next_driver.drive(self._stage.run)
        self._next_driver = OwnDriver(self._stage.home, self._stage.api_url)
        self._wait(lambda story: story.run.state in FINISHED or _driven(story, before.fencing), "another driver")

    def _wait(self, holds: Callable[[Story], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            with suppress(Unavailable, *NOT_THERE):
                story = self._stage.story
                if holds(story):
                    return
                if story.run.state in FINISHED:
                    raise GaveUpError(f"the run ended before: {what}")
            if time.monotonic() > deadline:
                raise GaveUpError(f"did not happen: {what}")
            time.sleep(POLL_SECONDS)

    def _look(self, error: str) -> Seen:
        made, story = self._stage, self._stage.story
        (kept,) = [item.summary for item in made.ledger.window("", 0.0, time.time()).runs]
        nodes = made.cluster.list("Node")
        return Seen(
            plan=self._plan,
            story=story,
            steps={item.number: made.ledger.steps(made.run, item.number) for item in story.attempts},
            hits=tuple(self._hits),
            gpus=made.resolved.gpus,
            kept=None if kept is None else {str(state): value for state, value in kept.by_state.items()},
            tainted=tuple(item["metadata"]["name"] for item in nodes if _quarantined(item)),
            orphans=left_over(str(made.home)) if story.run.state in FINISHED else (),
            weights=made.weights() if story.run.state is RunState.SUCCEEDED else "",
            error=error,
        )


def _spec(fault: Fault, nodes: tuple[str, ...]) -> FaultSpec:
    amount = AMOUNTS.get(fault.kind, 0.0)
    return FaultSpec(
        fault.kind,
        rank=fault.rank if KINDS[fault.kind].target == "rank" else None,
        node=nodes[0] if KINDS[fault.kind].target == "node" else "",
        silent=fault.silent,
        seconds=amount,
        factor=amount,
        notice_seconds=amount,
    )


def _driven(story: Story, fencing: int) -> bool:
    return story.lease is not None and story.lease.fencing > fencing


def _noticed(story: Story, began: float) -> bool:
    return any(item.detected_at >= began for item in story.troubles)


def _over(story: Story, began: float) -> bool:
    """The run trains again after what was noticed last, or has ended."""
    last = story.troubles[-1] if _noticed(story, began) else None
    return story.run.state in FINISHED or (last is not None and last.resumed_at is not None)


def _quarantined(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(item["key"] == labels.QUARANTINE_TAINT for item in node["spec"].get("taints", []))


def left_over(home: str) -> tuple[str, ...]:
    """Processes that carry the home in their environment and do not end, found without the cluster's help."""
    deadline = time.monotonic() + ORPHANS_SECONDS
    while (found := _carrying(home.encode())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return tuple(found)


def _carrying(word: bytes) -> list[str]:
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            if word in (folder / "environ").read_bytes():
                said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{folder.name} {said.strip()[:120]}")
    return found
