"""Peers, pairs and steps of which some are slow: what is named, and what is no straggler."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers import peers, resume, slowness, stalls
from flows.decisions.diagnosis.observers.registry import Observer
from tests.support.builders.told_logs import seen

HOSTS = ("hostname tflops", [("n-gpu-1", 612), ("n-gpu-2", 610), ("n-gpu-3", 611), ("n-gpu-4", 402), ("n-gpu-5", 612)])
SCALING = ((1, 100), (2, 195), (4, 390), (8, 40))
MODELS = (("A100-80GB", 100), ("H100", 100), ("H200", 101), ("L40S", 40), ("V100", 100))
PAIRS = "cn1,cn2 90.1\ncn1,cn7 44.0\ncn3,cn7 44.2\ncn3,cn4 90.0\ncn5,cn6 90.3"


def listing(words: str, *values: float) -> str:
    return "\n".join(words.format(rank=rank, value=value) for rank, value in enumerate(values))


def epochs(*values: float) -> str:
    return "\n".join(f"epoch {place // 5} iteration {place} took {value} s" for place, value in enumerate(values))


def averages(*values: float) -> str:
    return "\n".join(f'{{"step": {n}, "elapsed_time": "0:{n}", "steps_per_sec": {v}}}' for n, v in enumerate(values))


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
        (peers.peers, "\n".join(f"num_gpu={n} throughput {v}" for n, v in SCALING), []),
        (peers.peers, "\n".join(f"gpu {n} throughput {v}" for n, v in SCALING), []),
        (peers.peers, "gpu throughput\n" + "\n".join(f"{n} {v}" for n, v in MODELS), []),
        (peers.peers, listing("rank={rank} batch_size=1{rank} step_time={value}", 1.0, 1.1, 1.0, 2.4, 1.0), []),
        (peers.peers, listing("n{rank}:7:7 [0] NCCL INFO latency {value} us", 1.0, 1.1, 1.0, 2.4, 1.0), []),
        (peers.pairs, "bert1 bs32 90\nbert1 bs64 44\nvgg16 bs32 91\nvgg16 bs64 43\ngpt2 bs32 90", []),
        (peers.pairs, PAIRS, [("cn7", None)]),
        (peers.pairs, PAIRS.replace("44", "90"), []),
        (peers.listed, "Slowest nodes:\n  a-17\n  a-22", [("a-17", None), ("a-22", None)]),
        (peers.listed, "All nodes are fine:\n  a-17\n  a-22", []),
        (slowness.slowed, steps(2, 2, 2, 2, 2, 5, 5, 5), [("", None)]),
        (slowness.slowed, steps(2, 2, 2, 2, 2, 5, 2, 2), []),
        (slowness.slowed, steps(2, 2, 2, 2, 2, 5, 5, 5) + "\nTraining completed", []),
        (slowness.slowed, steps(2, 2, 2, 2, 2, 8, 7, 6, 5, 4), []),
        (slowness.slowed, epochs(2, 2, 2, 2, 2, 5, 5, 5), []),
        (slowness.slowed, averages(2, 2, 2, 2, 2, 0.5, 0.5, 0.5), []),
        (slowness.slowed, steps(2, 2, 2, 2, 2, 5, 5, 5) + " 8/8", []),
        (slowness.slowed, steps(9, 2, 2, 2, 2, 2, 2, 2), []),
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
    assert len(seen(slowness.slowed, files)) == count


@pytest.mark.parametrize(
    ("observer", "text", "rules"),
    [
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(8)), ["waits-on"]),
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(3)), []),
        (stalls.endless, "\n".join(f"1{n}:00:00 waiting for peers" for n in range(4)), ["waits-on"]),
        (stalls.endless, "\n".join(f"1{n}:00:00 waiting for pods" for n in range(4)), []),
        (stalls.endless, "\n".join(f"waiting for peers, {n} s" for n in range(8)) + "\nall are here", []),
        (resume.rewinds, "iter 500, loss 0.1\nsnapshot: 500\niter 1, loss 0.1", ["step-after-checkpoint"]),
        (resume.rewinds, "iter 500, loss 0.1\nsaved snapshot: 500\niter 1, loss 0.1", []),
        (resume.rewinds, "[pid=1], 90 s, 500 iter\n[pid=2], 99 s, 1 iter", ["trial-rewound"]),
        (resume.rewinds, "[pid=1], 90 s, 500 iter\n[pid=2], 99 s, 501 iter", []),
    ],
)
def test_waits_and_rewinds(observer: Observer, text: str, rules: list[str]) -> None:
    assert [clue.rule for clue in seen(observer, {"train.log": text})] == rules
