"""Who begins again with a killed rank, on real processes: its replica group, its role, or everybody."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.launcher_harness import GangOnLoopback, Program, alive, until

WORLD = """
import os, time
names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PRIMUS_INCARNATION")
more = ("REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS")
print("world", *(os.environ.get(name, "-") for name in names + more), flush=True)
for step in range(1, 100000):
    print(f"step {step}/100000 | loss 1.0 | tokens/s 5 | step time 0.0100 s", flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangOnLoopback]:
    found = GangOnLoopback(tmp_path)
    found.trainer.write_text(WORLD)
    yield found
    found.close()


def launch(gang: GangOnLoopback, role: str, index: int, pods: int, address: int, *flags: str) -> Program:
    argv = ["launch", f"--role={role}", f"--pods={pods}", "--processes-per-node=1", f"--world-size={pods}",
            f"--decides={str(role == 'trainer').lower()}", "--in-place=true", "--framework=primus-demo",
            "--checkpoint-format=none", *flags, "--", sys.executable, "-S", str(gang.trainer)]  # fmt: skip
    place = {
        "PRIMUS_POD": f"{role}-{index}",
        "PRIMUS_NODE": f"node-{role}-{index}",
        "PRIMUS_POD_INDEX": str(index),
        "PRIMUS_POD_IP": f"{gang.net}.{address}",
    }
    return gang.start(argv, **place)


def coordinate(gang: GangOnLoopback, pods: int, *flags: str) -> None:
    argv = ["coordinate", f"--pods={pods}", "--port=29400", "--restarts=3", *flags]
    gang.start(argv, PRIMUS_POD_IP=f"{gang.net}.1").says("listening")


def running(gang: GangOnLoopback, members: int) -> dict[tuple[str, int], int]:
    """The process of each pod's rank, once all run."""

    def found() -> dict[tuple[str, int], int]:
        told: list[dict[str, Any]] = gang.ask("/status").get("members", [])
        pids = {(one["role"], one["pod_index"]): next(iter(one["pids"].values()), 0) for one in told}
        return pids if len(pids) == members and all(pids.values()) else {}

    return until(found, f"{members} ranks that run")


def restarted(gang: GangOnLoopback, number: int = 1) -> dict[str, Any]:
    """A restart in place, once its first step was seen or its ranks run."""
    return until(
        lambda: (found := gang.ask("/status").get("restarts", [])) and len(found) >= number and found[number - 1],
        f"restart {number}",
    )


def worlds(gang: GangOnLoopback, pod: int) -> list[list[str]]:
    """What the rank of a trainer's pod saw of its world, in one incarnation after the other."""
    path = gang.folder_of(pod) / f"rank-{pod}.log"
    said = path.read_text().splitlines() if path.exists() else []
    return [line.partition("world ")[2].split() for line in said if "world " in line]


def test_a_replica_group_begins_again_while_the_other_trains_on(gang: GangOnLoopback) -> None:
    coordinate(gang, 4, "--scope=replica", "--replica-groups=2")
    for index in range(4):
        launch(gang, "trainer", index, 4, 10 + index, "--replica-groups=2")
    before = running(gang, 4)
    until(lambda: (gang.ask("/status").get("step") or 0) > 5, "steps")
    os.kill(before["trainer", 3], signal.SIGKILL)
    restart = restarted(gang)
    after = until(lambda: (now := running(gang, 4))["trainer", 3] != before["trainer", 3] and now, "a new group")
    assert (restart["rank"], restart["pods"], restart["node"]) == (3, [2, 4], "node-trainer-3")
    assert [after["trainer", index] == before["trainer", index] for index in range(4)] == [True, True, False, False]
    assert alive(before["trainer", 0])
    first, last = worlds(gang, 0), worlds(gang, 3)
    until(lambda: len(worlds(gang, 3)) == 2, "the world of the new incarnation")
    last = worlds(gang, 3)
    assert [one[:4] + one[6:] for one in first] == [["0", "2", "0", "2", "1", "0", "2"]]
    mine = [["1", "2", "1", "2", incarnation, "1", "2"] for incarnation in ("1", "2")]
    assert [one[:4] + one[6:] for one in last] == mine
    assert last[0][4:6] == worlds(gang, 2)[0][4:6] != first[0][4:6], "each group meets by itself"
    reached = gang.ask("/status")["step"]
    until(lambda: gang.ask("/status")["step"] > reached + 5, "steps of the group that trained on")
    told = [row[0] for row in gang.ask("/v1/steps?since=0")["steps"]]
    assert told == sorted(set(told)), "a step is told by the group that completes it first"
    assert gang.steps(0) == list(range(1, gang.steps(0)[-1] + 1)), "no step of the other group was lost or repeated"


@pytest.mark.parametrize(("scope", "trainers_again"), [("role", False), ("gang", True)])
def test_another_role_begins_again_alone_or_with_all(gang: GangOnLoopback, scope: str, trainers_again: bool) -> None:
    coordinate(gang, 2, f"--scope={scope}", "--essential=data:1:1")
    for index in range(2):
        launch(gang, "trainer", index, 2, 10 + index)
    launch(gang, "data", 0, 1, 20)
    before = running(gang, 3)
    until(lambda: (gang.ask("/status").get("step") or 0) > 5, "steps")
    os.kill(before["data", 0], signal.SIGKILL)
    restart = restarted(gang)
    after = until(lambda: (now := running(gang, 3))["data", 0] != before["data", 0] and now, "data again")
    assert (restart["node"], restart["scope"]) == ("node-data-0", scope)
    assert [after["trainer", index] != before["trainer", index] for index in range(2)] == [trainers_again] * 2
    os.kill(after["trainer", 1], signal.SIGKILL)
    second = restarted(gang, 2)
    last = until(lambda: (now := running(gang, 3))["trainer", 1] != after["trainer", 1] and now, "trainers again")
    assert (second["node"], second["number"]) == ("node-trainer-1", 2)
    assert (last["data", 0] != after["data", 0]) == trainers_again


def test_the_right_that_is_withheld_is_not_used(gang: GangOnLoopback) -> None:
    coordinate(gang, 2)
    pods = [launch(gang, "trainer", index, 2, 10 + index) for index in range(2)]
    before = running(gang, 2)
    assert gang.ask("/status?right=the+run+is+paused")["right"]["withheld"] == "the run is paused"
    assert gang.ask("/status")["right"]["left"] == 0, "a look without a word changes nothing"
    assert gang.ask("/status?right=lent")["right"]["left"] == 3
    os.kill(before["trainer", 1], signal.SIGKILL)
    restarted(gang)
    after = until(lambda: (now := running(gang, 2))["trainer", 1] != before["trainer", 1] and now, "ranks again")
    gang.ask("/status?right=the+run+is+paused")
    os.kill(after["trainer", 0], signal.SIGKILL)
    assert [pod.end() for pod in pods] == [137, 143]
    assert "not restarted in place: the run is paused" in gang.ask("/status")["orders"][-1]["why"]


def test_no_two_groups_share_a_port_or_a_pod(gang: GangOnLoopback) -> None:
    coordinate(gang, 2, "--scope=replica", "--replica-groups=2")
    for index in range(2):
        launch(gang, "trainer", index, 2, 10 + index, "--replica-groups=2")
    running(gang, 2)
    found = until(lambda: (told := [worlds(gang, index) for index in range(2)]) and all(told) and told, "worlds")
    assert [one[0][:2] for one in found] == [["0", "1"], ["0", "1"]]
    assert all(left[0][4:6] != right[0][4:6] for left, right in itertools.combinations(found, 2))
