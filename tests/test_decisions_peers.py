"""Peers, pairs and steps of which some are slow: what is named, and what is no straggler."""

from __future__ import annotations

import pytest

from flows.decisions.observe import Observer
from flows.decisions.observers import pairs, peers, rewinds, slowing, stalls
from tests.told_logs import seen

HOSTS = ("hostname tflops", [("n-gpu-1", 612), ("n-gpu-2", 610), ("n-gpu-3", 611), ("n-gpu-4", 402), ("n-gpu-5", 612)])
PAIRS = "cn1,cn2 90.1\ncn1,cn7 44.0\ncn3,cn7 44.2\ncn3,cn4 90.0\ncn5,cn6 90.3"


def listing(words: str, *values: float) -> str:
    return "\n".join(words.format(rank=rank, value=value) for rank, value in enumerate(values))


def steps(*values: float) -> str:
    return "\n".join(f"iteration {place} took {value} s" for place, value in enumerate(values))


@pytest.mark.parametrize(
    ("observer", "text", "blamed"),
    [
        (peers.peers, "\n".join([HOSTS[0], *(f"{name} {value}" for name, value in HOSTS[1])]), [("n-gpu-4", None)]),
        (peers.peers, listing("rank={rank} step_time={value}", 1.0, 1.1, 1.0, 2.4, 1.0), [("", 3)]),
        (peers.peers, listing('{{"rank": {rank}, "tokens_per_s": {value}}}', 99, 98, 60, 99), [("", 2)]),
        (peers.peers, 'step_time: {"n1": 1.0, "n2": 1.0, "n3": 2.1, "n4": 1.0, "n5": 1.0}', [("n3", None)]),
        (peers.peers, listing("rank={rank} mem_gb={value}", 40, 40, 40, 79, 40), []),
        (peers.peers, listing("rank {rank}: checkpoint loaded in {value} s", 12, 12, 48, 12, 12), []),
        (peers.peers, listing("rank={rank} step_time={value}", 1.0, 1.1, 1.0, 1.2, 1.0), []),
        (pairs.pairs, PAIRS, [("cn7", None)]),
        (pairs.pairs, PAIRS.replace("44", "90"), []),
        (pairs.listed, "Slowest nodes:\n  a-17\n  a-22", [("a-17", None), ("a-22", None)]),
        (pairs.listed, "All nodes are fine:\n  a-17\n  a-22", []),
        (slowing.slowed, steps(2, 2, 2, 2, 2, 5, 5, 5), [("", None)]),
        (slowing.slowed, steps(2, 2, 2, 2, 2, 5, 2, 2), []),
        (slowing.slowed, steps(9, 2, 2, 2, 2, 2, 2, 2), []),
    ],
)
def test_who_is_slow(observer: Observer, text: str, blamed: list[tuple[str, int | None]]) -> None:
    assert [(clue.node, clue.rank) for clue in seen(observer, {"train.log": text})] == blamed


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"node1.log": steps(2, 2, 2, 2), "node2.log": steps(5, 5, 5, 5)}, 1),
        ({"node1.log": steps(2, 2, 2, 2), "node2.log": steps(2, 5, 2, 5)}, 0),
        ({"before.log": steps(2, 2, 2, 2), "after.log": steps(5, 5, 5, 5)}, 0),
    ],
)
def test_a_file_of_one_host_beside_that_of_another(files: dict[str, str], count: int) -> None:
    assert len(seen(slowing.slowed, files)) == count


@pytest.mark.parametrize(
    ("observer", "text", "rules"),
    [
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(8)), ["waits-on"]),
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(3)), []),
        (stalls.endless, "\n".join(f"1{n}:00:00 waiting for peers" for n in range(4)), ["waits-on"]),
        (stalls.endless, "\n".join(f"1{n}:00:00 waiting for pods" for n in range(4)), []),
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(8)) + "\nall are here", []),
        (rewinds.rewinds, "iter 500, loss 0.1\nsnapshot: 500\niter 1, loss 0.1", ["step-after-checkpoint"]),
        (rewinds.rewinds, "iter 500, loss 0.1\nsaved snapshot: 500\niter 1, loss 0.1", []),
        (rewinds.rewinds, "[pid=1], 90 s, 500 iter\n[pid=2], 99 s, 1 iter", ["trial-rewound"]),
        (rewinds.rewinds, "[pid=1], 90 s, 500 iter\n[pid=2], 99 s, 501 iter", []),
    ],
)
def test_waits_and_rewinds(observer: Observer, text: str, rules: list[str]) -> None:
    assert [clue.rule for clue in seen(observer, {"train.log": text})] == rules
