"""Stories of tests between nodes on the embedded cluster: real processes that meet by sockets, faults from outside."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.preflight import links_text
from flows.decisions.node_tests.fabric.model import FabricFault
from flows.testing.links import LinksOutcome, try_links
from profiles.loading.load import load_suite
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.settings import Settings, localised
from tests.support.faults.node_faults import local
from tests.support.harness.embedded_stage import gone

pytestmark = [pytest.mark.story, pytest.mark.alone]  # it measures speed

LOOK_SECONDS = 0.005
STOPPED_SECONDS, RUNS_SECONDS = 0.1, 0.004
"""A process that runs a twenty-fifth of the time: slow to everybody, dead to nobody."""


class Scene:
    """A home with an embedded cluster of six nodes, and the suite for any machine with shorter deadlines."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(), home)
        self.cluster: Any = embedded_cluster(self.profile, home)
        self.cards = home / "shared" / "preflight" / "links"

    def test(self, seed: int = 3) -> LinksOutcome:
        suite = load_suite("any-machine")
        checks = [
            check.model_copy(update={"deadline_seconds": 12.0}) for check in suite.checks if check.spans == "gang"
        ]
        pools = {f"node-{number}": "cpu" for number in range(6)}
        with at_hand(self.settings), using(self.cluster):
            return try_links(
                self.profile, suite.model_copy(update={"checks": tuple(checks)}), pools, lambda _: None, seed=seed
            )

    def met(self) -> bool:
        """Whether members of some group have laid their cards."""
        with suppress(OSError):  # folders go while they are looked at
            return any(self.cards.glob("*/group-*/*.card"))
        return False

    def members(self, node: str) -> list[int]:
        """Processes of `probe-gang` on a node."""
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit() and b"probe-gang" in (folder / "cmdline").read_bytes().split(b"\0"):
                    variables = (folder / "environ").read_bytes().split(b"\0")
                    ours = any(str(self.home).encode() in one for one in variables)
                    if ours and f"PRIMUS_NODE={node}".encode() in variables:
                        found.append(int(folder.name))
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()


@contextmanager
def meanwhile(act: Callable[[threading.Event], object]) -> Generator[None]:
    """Run `act` again and again beside the block, until it ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            act(ended)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)
        assert not thread.is_alive()


def words(outcome: LinksOutcome) -> dict[str, str]:
    return {node: str(grade.verdict) for node, grade in outcome.grades.items()}


def bad(outcome: LinksOutcome) -> set[tuple[FabricFault, tuple[str, ...]]]:
    return {(one.kind, one.members) for fabric in outcome.fabrics for one in fabric.tested.answer.findings}


def test_good_nodes_are_proven_with_each_other(scene: Scene) -> None:
    outcome = scene.test()
    assert (words(outcome), bad(outcome)) == ({f"node-{number}": "pass" for number in range(6)}, set())
    [fabric] = outcome.fabrics
    assert fabric.by == "sockets"
    assert all(one.wrong == 0 for one in fabric.tested.reads)
    largest = max(fabric.tested.reads, key=lambda one: len(one.measurement.group))
    assert len(largest.measurement.group) == 6
    for workflow in scene.cluster.list("Workflow"):  # what was read is deleted
        gone(scene.cluster, "Workflow", workflow["metadata"]["name"])
    assert "nothing bad was found" in links_text(outcome, 120)


def test_a_node_whose_processes_are_killed_is_named_and_all_others_are_proven(scene: Scene) -> None:
    killed: set[int] = set()

    def kill(ended: threading.Event) -> None:
        for pid in scene.members("node-4"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        ended.wait(LOOK_SECONDS)

    with meanwhile(kill):
        outcome = scene.test()
    assert len(killed) >= 3, "it was killed in every round"
    assert bad(outcome) == {(FabricFault.NODE, ("node-4",))}
    assert words(outcome) == {f"node-{n}": "fail" if n == 4 else "pass" for n in range(6)}
    assert "gave no answer" in outcome.grades["node-4"].reasons[0]["evidence"]


def test_a_node_that_is_stopped_again_and_again_is_slow_with_everybody(scene: Scene) -> None:
    stopped: set[int] = set()

    def slow_down(ended: threading.Event) -> None:
        found = scene.members("node-1") if scene.met() else []  # only its measurements are meant, not its start
        with suppress(ProcessLookupError):
            while found and not ended.is_set():
                os.kill(found[0], signal.SIGSTOP)
                stopped.add(found[0])
                ended.wait(STOPPED_SECONDS)
                os.kill(found[0], signal.SIGCONT)
                ended.wait(RUNS_SECONDS)
        ended.wait(LOOK_SECONDS)

    with meanwhile(slow_down):
        outcome = scene.test()
    assert len(stopped) >= 3, "it was slow in every round"
    assert bad(outcome) == {(FabricFault.NODE, ("node-1",))}
    assert words(outcome) == {f"node-{n}": "fail" if n == 1 else "pass" for n in range(6)}
    reason = outcome.grades["node-1"].reasons[0]
    assert reason["measured"] < reason["limit"]
    assert "partners" in reason["evidence"]
