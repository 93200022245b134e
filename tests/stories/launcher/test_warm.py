"""Ranks that begin again from a parked process: real launchers, a real coordinator, processes killed from outside."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from tests.benchmarks.in_place import PRELOAD, THREADS
from tests.stories.launcher.test_in_place import (
    IN_PLACE,
    STEPS,
    again,
    holding,
    kill,
    let_go,
    restarts,
    stand_still,
    train,
    weights,
)
from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import GangOnLoopback, Program, alive, terminate, until
from workflows.programs.launcher import prefork
from workflows.programs.launcher.options import Options, Rendezvous, parse_place
from workflows.programs.launcher.rank_set import rank_environment
from workflows.programs.prefork.parent import RANK_NAMES
from workflows.programs.runtime import processes
from workflows.programs.runtime.report_token import VARIABLE

MARK = """
import os
with open({marks!r}, "a") as file:
    file.write("%s\\n" % os.environ.get("RANK", "parked"))
"""
"""Imported by the trainer, and beforehand by the parked process: who imported it stands in a file."""


class Marked:
    """Two pods of one rank each, which stands still at step 3 and has imported `mark`.

    Args:
        gang: theirs.
        flags: of the launchers.
        pods: so many.
    """

    def __init__(self, gang: GangOnLoopback, *flags: str, pods: int = 2) -> None:
        self.gang, self.marks = gang, gang.folder / "marks"
        (gang.folder / "mark.py").write_text(MARK.format(marks=str(self.marks)))
        gang.trainer.write_text(f"import mark\n{gang.trainer.read_text()}")
        gang.coordinate(pods, 1, restarts=3)
        words = [IN_PLACE, "--preload=mark", *flags]
        self.pods = [gang.launch(index, *words, pods=pods, HOLD="3") for index in range(pods)]
        self.pods[0].says("step 3/")

    def who(self) -> list[str]:
        """Who imported it so far."""
        return sorted(self.marks.read_text().split()) if self.marks.exists() else []

    def parked(self) -> list[int]:
        """The parked process of each pod, once it is ready."""
        return [parked_of(pod) for pod in self.pods]

    def stop(self) -> None:
        """End it as the coordinator would; nothing stays."""
        below = [pid for pod in self.pods for pid in processes.descendants(pod.process.pid)]
        assert self.gang.tell("/v1/stop", {"why": "enough", "save": False}) == 200
        assert [pod.end() for pod in self.pods] == [143] * len(self.pods)
        assert not any(map(alive, below))


def parked_of(pod: Program) -> int:
    """The parked process of a pod, once it is ready."""
    return int(pod.says("are forked from process").rpartition(" ")[2])


@pytest.mark.story
def test_ranks_are_forked_and_the_weights_are_those_of_a_calm_run(tmp_path: Path, gang: GangOnLoopback) -> None:
    (tmp_path / "calm").mkdir()
    calm = GangOnLoopback(tmp_path / "calm")
    calm.coordinate(1, 2)
    let_go(calm)
    (undisturbed,) = train(calm, pods=1, processes=2)
    assert undisturbed.end() == 0
    calm.close()
    gang.environment.update(THREADS)
    gang.coordinate(2, 1, restarts=3)
    pods = train(gang, IN_PLACE, f"--preload={','.join(PRELOAD)}", processes=1)
    holding(gang)
    for pod in pods:
        assert alive(parked_of(pod))
    kill(gang, 1)
    let_go(gang)
    assert [pod.end() for pod in pods] == [0, 0]
    assert weights(gang) == weights(calm)
    (restart,) = restarts(gang)
    assert restart["first_step"] == restart["resume_step"] + 1
    assert gang.steps()[-1] == STEPS
    assert not any("started plainly" in pod.text for pod in pods)


@pytest.mark.story
@pytest.mark.parametrize("terminal", ["false", "true"])
def test_nobody_imports_twice_what_the_parked_process_has(gang: GangOnLoopback, terminal: str) -> None:
    marked = Marked(gang, f"--pseudo-terminal={terminal}")
    parked = marked.parked()
    assert marked.who() == ["0", "1", "parked", "parked"]
    first = gang.ranks()
    kill(gang, 1)
    second = again(gang, 1)
    os.kill(second[0], signal.SIGKILL)
    third = again(gang, 2)
    assert marked.who() == ["0", "1", "parked", "parked"]
    assert not any(map(alive, {*first.values(), *second.values()} - {*third.values()}))
    assert not any("started plainly" in pod.text for pod in marked.pods)
    for rank, pid in third.items():
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {b"RANK=%d" % rank, b"PRIMUS_INCARNATION=3"} <= set(environment)
    marked.stop()
    assert not any(map(alive, parked))


@pytest.mark.story
def test_without_the_parked_process_ranks_are_started_plainly(gang: GangOnLoopback) -> None:
    marked = Marked(gang)
    os.kill(marked.parked()[1], signal.SIGKILL)
    marked.pods[1].says("ranks are started plainly: the parked process has ended")
    kill(gang, 1)
    again(gang, 1)
    until(lambda: marked.who() == ["0", "1", "1", "parked", "parked"], "rank 1 alone imports again")
    assert marked.pods[1].text.count("started plainly") == 1
    assert "started plainly" not in marked.pods[0].text
    marked.stop()


@pytest.mark.story
def test_a_parked_process_that_does_not_answer_starts_no_second_rank(gang: GangOnLoopback) -> None:
    marked = Marked(gang)
    parked = marked.parked()[0]
    os.kill(parked, signal.SIGSTOP)
    kill(gang, 1)
    again(gang, 1)
    assert "ranks from 0 are started plainly: it does not answer in time" in marked.pods[0].text
    os.kill(parked, signal.SIGCONT)
    assert marked.who() == ["0", "0", "1", "parked", "parked"]
    ranks_now = gang.ranks()
    kill(gang, 0)
    last = again(gang, 2)
    assert marked.who() == ["0", "0", "1", "parked", "parked"]  # it serves again
    assert not alive(ranks_now[0])
    running = [pid for pid in processes.descendants(marked.pods[0].process.pid) if pid != parked]
    assert running == [last[0]]
    marked.stop()


@pytest.mark.story
@rows("stories/launcher/warm")
def test_what_cannot_be_forked_begins_again_plainly(
    gang: GangOnLoopback, flags: list[str], command: list[str] | None, why: str
) -> None:
    (gang.folder / "threads_of_its_own.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    words = [word.format(python=sys.executable, trainer=gang.trainer) for word in command or []]
    gang.coordinate(1, 1, restarts=3)
    pod = gang.launch(0, IN_PLACE, *flags, command=words or None, HOLD="3")
    pod.says("step 3/")
    if why:
        assert "started plainly: " in pod.says(why)
    kill(gang, 0)
    again(gang, 1)
    assert "are forked from process" not in pod.text
    terminate(pod)
    assert pod.end() == 143


CHILDREN = """
import os, time
def child():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(os.path.join({folder!r}, "child-%d" % os.getpid()), "w").close()
            time.sleep(600)
        os._exit(0)
child()
"""


@pytest.mark.story
def test_children_that_fork_twice_are_found_in_every_incarnation(gang: GangOnLoopback) -> None:
    gang.trainer.write_text(CHILDREN.format(folder=str(gang.folder)) + gang.trainer.read_text())
    _, pods = stand_still(gang, 3)

    def children(count: int) -> list[int]:
        found = until(lambda: len(all_of := list(gang.folder.glob("child-*"))) >= count and all_of, "the children")
        return [int(path.name.rpartition("-")[2]) for path in found]

    first = children(2)
    parked = [parked_of(pod) for pod in pods]
    assert all(map(alive, first))
    kill(gang, 1)
    again(gang, 1)
    assert not any(map(alive, first))
    second = set(children(4)) - set(first)
    assert all(map(alive, second))
    for pod in pods:
        terminate(pod)
    assert [pod.end() for pod in pods] == [143, 143]
    assert not any(map(alive, {*second, *parked}))


@pytest.mark.story
def test_sigterm_during_a_restart_ends_the_pod_and_all_below_it(gang: GangOnLoopback) -> None:
    marked = Marked(gang)
    parked = marked.parked()
    first = gang.ranks()
    os.kill(marked.pods[0].process.pid, signal.SIGSTOP)
    os.kill(first[1], signal.SIGKILL)
    marked.pods[1].says("joining: rank 1 of pod-1 ended with signal 9")
    terminate(marked.pods[1])
    assert marked.pods[1].end() == 143
    assert gang.message(1).reason == "signalled"
    os.kill(marked.pods[0].process.pid, signal.SIGCONT)
    assert marked.pods[0].end() == 143
    assert not any(map(alive, {*first.values(), *parked}))


def test_one_is_parked_once_where_it_is_wanted(tmp_path: Path) -> None:
    said: list[str] = []
    heard: list[int] = []
    example = processes.Start(0, 0, ("true",), {}, str(tmp_path))
    unwanted = prefork.RankStarter(False, (), said.append, heard.append)
    unwanted.after_start(example, 0.0)
    assert unwanted.due is None
    wanted = prefork.RankStarter(True, (), said.append, heard.append)
    wanted.after_start(example, 10.0)
    assert wanted.due == 10.0 + prefork.PARK_AFTER_SECONDS
    wanted.note_step(10.2)
    wanted.note_step(10.5)
    assert wanted.due == 10.2
    wanted.tick(10.1)
    assert (said, wanted.due) == ([], 10.2)
    wanted.tick(10.2)
    assert said == ["ranks that begin again are started plainly: true: not a Python program"]
    wanted.after_start(example, 20.0)
    assert (wanted.due, wanted.pid, wanted.fd, heard) == (None, 0, -1, [])


def test_nothing_in_the_parked_process_names_a_rank() -> None:
    options = Options("trainer", pods=4, processes_per_node=2, world_size=8, replica_groups=2, command=("x",))
    place = replace(parse_place({}), token="t", coordinator_url="http://c:1", pod_index=3)
    both = [
        rank_environment({VARIABLE: "/run/token"}, options, place, Rendezvous(2, "127.0.0.1", 1, 6), local)
        for local in (0, 1)
    ]
    differ = {name for one, other in permutations(both, 2) for name in one if one[name] != other.get(name)}
    assert differ <= RANK_NAMES, "who looks for a rank would take the parked process for one"
    assert {"RANK", "PRIMUS_RANK"} <= differ
