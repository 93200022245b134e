"""One rank far off its peers, in whatever way logs tell it."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers import members, slowness
from flows.decisions.diagnosis.observers.outliers import slow
from flows.decisions.diagnosis.observers.registry import Observer
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import STEPS, ranks, seen, told
from tests.support.cases.rows import rows

MEGATRON = "0: INFO:megatron.core.utils:[2026-02-14 23:07:56] | MnRtt/Rnk: {low}ms/8 | MxRtt/Rnk: {high}ms/{rank} | "
SCORES = "\n".join(
    ["GPU relative performance:", " Worst performing 5/512 ranks:", "  Rank=76 Node=h1 Score=0.48"]
    + [f"  Rank={rank} Node=h2 Score=0.95" for rank in (1, 2, 3)]
)
OBJECTS = "Affected ranks: {StragglerId(rank=76, node='h-12'), StragglerId(rank=79, node='h-12')}"
SLOW, FINE = (3455.7, 7121.4, 21), (3453.0, 3468.2, 0)
"""Round trip times of the fastest and of the slowest rank, and the latter's number."""
DEEPSPEED = (
    "[2026-03-02 09:11:40,119] [INFO] [logging.py:96:log_dist] [Rank {rank}] time (ms) | fwd: {fwd} | bwd: 1544.02"
)
COMPOSER = (
    " Train MinRoundTripTime/Rank: 1411.20ms/1\n Train MaxRoundTripTime/Rank: 2903.77ms/5\n"
    " Train MinThroughput/Rank: 63.02TF/5\n Train MaxThroughput/Rank: 129.54TF/2"
)


def table(head: str, values: list[float], unit: str = "") -> str:
    return "\n".join([head, *(f"   rank {rank}: {value}{unit}" for rank, value in enumerate(values))])


def megatron(*reports: tuple[float, float, int]) -> str:
    return "\n".join(MEGATRON.format(low=low, high=high, rank=rank) for low, high, rank in reports)


def timers(*values: float) -> dict[str, str]:
    return {f"rank-{rank}.log": DEEPSPEED.format(rank=rank, fwd=value) for rank, value in enumerate(values)}


REPORTS: dict[str, tuple[Observer, dict[str, str], set[int]]] = {
    "rows of times": (members.rows, {"x": table("forward-compute (ms):", [812, 809, 815, 1904, 811])}, {3}),
    "rows under a heading of a heading": (
        members.rows, {"x": table("times across ranks (ms):\n forward-compute:", [812, 809, 815, 1904, 811])}, {3},
    ),
    "rows alike": (members.rows, {"x": table("forward-compute (ms):", [812, 809, 815, 804, 811])}, set()),
    "a little slower is how training is": (members.rows, {"x": table("time (ms)", [800, 801, 802, 1100])}, set()),
    "rows of rates": (members.rows, {"x": table("all", [8123, 3920, 8098, 8110], " tokens/s")}, {1}),
    "rows of scores": (members.rows, {"x": table("Scores (higher=faster):", [2.91, 2.92, 1.12, 2.91])}, {2}),
    "rows whose beginning looks like a prefix": (
        members.rows, {"x": "times\nrank 0: 12 ms\nrank 1: 12 ms\nrank 2: 40 ms\nrank 3: 12 ms"}, {2},
    ),
    "memory differs for other reasons": (members.rows, {"x": table("Memory (GB)", [61.2, 21.2, 20.9, 21.0])}, set()),
    "so do losses": (members.rows, {"x": table("losses", [0.61, 2.11, 0.60, 0.61])}, set()),
    "who waits for others longest is the fastest": (
        members.rows, {"x": table("allreduce (ms):", [4, 1181, 4.1, 4.2, 4.1])}, set(),
    ),
    "named scores": (
        members.rows, {"x": SCORES}, {76},
    ),
    "columns": (
        members.columns,
        {"x": "rank  data_time  step_time\n0  0.021  1.20\n1  0.020  1.20\n2  0.841  1.20\n3  0.022  1.20"},
        {2},
    ),
    "columns of waiting": (members.columns, {"x": "rank comm_time\n0 4.0\n1 80.0\n2 4.1\n3 4.2"}, set()),
    "a mapping": (members.mappings, {"x": "step time of ranks {0: 1.2, 1: 1.21, 2: 3.9, 3: 1.19}"}, {2}),
    "a mapping that was put right later": (
        members.mappings, {"x": "step time {0: 1.2, 1: 1.21, 2: 3.9}\nstep time {0: 1.2, 1: 1.21, 2: 1.2}"}, set(),
    ),
    "the slowest far from the fastest": (slowness.extremes, {"x": megatron(FINE, SLOW, SLOW)}, {21}),
    "the slowest near the fastest": (slowness.extremes, {"x": megatron(FINE, FINE)}, set()),
    "a slowest that recovered": (slowness.extremes, {"x": megatron(SLOW, FINE)}, set()),
    "ends on lines of their own": (slowness.extremes, {"x": COMPOSER}, {5}),
    "timers of several ranks": (slowness.timers, timers(181.3, 183.0, 561.4, 180.9), {2}),
    "timers alike": (slowness.timers, timers(181.3, 183.0, 182.4, 180.9), set()),
    "timers of two ranks": (slowness.timers, timers(181.3, 583.0), set()),
    "a detector's list": (slowness.named_ranks, {"x": "[WARNING] Straggler nodes: [5]"}, {5}),
    "a detector's sentence": (
        slowness.named_ranks,
        {"x": "INPUT_STRAGGLER: Rank r2 input wait was 199.7ms vs median rank r0 at 10.4ms."}, {2},
    ),
    "a detector's objects": (
        slowness.named_ranks, {"x": f"STRAGGLER DETECTION WARNING: Some GPUs are slow. {OBJECTS}"}, {76, 79},
    ),
    "a detector's rows": (slowness.named_ranks, {"x": "Detected stragglers:\n  rank 3 (node-15)"}, {3}),
    "a detector that finds nobody": (
        slowness.named_ranks, {"x": "=== Straggler Report at Step 10 ===\n✓ No stragglers detected."}, set(),
    ),
    "a detector's settings": (
        slowness.named_ranks, {"x": "straggler_threshold: 2\nenable_straggler_detection: 1"}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REPORTS)
def test_who_is_slow(sentence: str) -> None:
    observer, files, wanted = REPORTS[sentence]
    assert ranks(seen(observer, files)) == wanted


def test_the_node_of_a_slow_rank_is_named_where_the_table_names_it() -> None:
    found = told({"x.log": "Detected stragglers: [2]\n  - Rank 2 (node-15)\n"})
    assert (found.fault_class, found.culprits) == (FaultClass.STRAGGLER, (("node-15", 2),))


def test_nodes_of_a_mapping_are_no_ranks() -> None:
    text = "The elapsed time of nodes are {2: 20.18, 3: 18.72, 0: 19.9, 1: 143.0}"
    found = told({"x.log": text})
    assert (found.fault_class, found.culprits) == (FaultClass.STRAGGLER, ())
    assert told({"x.log": f"{text}\n{text.replace('143.0', '20.6')}\n{STEPS}"}).fault_class is FaultClass.NONE


@rows("diagnosis/observers/stragglers")
def test_far_off_is_far_off_a_majority_and_by_half_at_least(values: list[float], wanted: set[int]) -> None:
    assert set(slow(dict(enumerate(values)))) == wanted


def test_of_rates_the_low_one_is_slow() -> None:
    values = dict(enumerate([8123.0, 3920.0, 8098.0, 8110.0]))
    assert (slow(values, low_is_slow=True), slow(values)) == ({1: pytest.approx(2.067, abs=0.001)}, {})
