"""What the coordinator makes of what launchers say that their pods use."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.coordinator.test_http import ask
from workflows.programs.coordinator.metrics import MOST_OF_EACH, parse_usage
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.store import ExpectedGang

USE: dict[str, Any] = {
    "at": 12.5,
    "memory_bytes": 100,
    "ranks": {"0": {"memory_bytes": 60, "cpu_cores": 0.5, "open_files": 7}},
    "nics": {"mlx5_0": {"received_bytes": 5, "errors": 2}},
    "gpus": {"3": {"busy_percent": 97, "uncorrected_errors": 1}},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*USE, "0", "errors"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def coordinator() -> Coordinator:
    one = Coordinator(ExpectedGang("trainer", 1, 1, 300), {"PRIMUS_TOKEN": "t"})
    ask(one, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p-0", "node": "node-7"})
    return one


def beat(coordinator: Coordinator, **more: Any) -> None:
    assert ask(coordinator, "POST", "/v1/report", {"role": "trainer", "pod_index": 0, **more}).status == 200


def test_the_newest_word_counts_and_changes_nothing_else(coordinator: Coordinator) -> None:
    assert ask(coordinator, "GET", "/v1/use").body == {"pods": []}
    before = coordinator.state
    beat(coordinator, use=USE)
    beat(coordinator, use={**USE, "at": 27.5})
    beat(coordinator)
    assert coordinator.state is before, "a heartbeat is not remembered"
    [pod] = ask(coordinator, "GET", "/v1/use").body["pods"]
    assert pod == {"role": "trainer", "pod_index": 0, "pod": "p-0", "node": "node-7", **USE, "at": 27.5}


def test_use_for_prometheus(coordinator: Coordinator) -> None:
    beat(coordinator, use=USE)
    text = ask(coordinator, "GET", "/metrics").body
    place = 'pod_index="0",node="node-7"'
    for series in (
        f"primus_gang_pod_memory_bytes{{{place}}} 100",
        f'primus_gang_rank_cpu_cores{{{place},rank="0"}} 0.5',
        f'primus_gang_device_received_bytes_total{{{place},device="mlx5_0"}} 5',
        f'primus_gang_device_errors_total{{{place},device="mlx5_0"}} 2',
        f'primus_gang_gpu_busy_percent{{{place},gpu="3"}} 97',
        f'primus_gang_gpu_uncorrected_errors_total{{{place},gpu="3"}} 1',
    ):
        assert series in text.splitlines()
    assert "# TYPE primus_gang_rank_memory_bytes gauge" in text
    assert "# TYPE primus_gang_device_errors_total counter" in text


def test_a_pod_that_has_not_joined_says_nothing(coordinator: Coordinator) -> None:
    assert ask(coordinator, "POST", "/v1/report", {"role": "x", "pod_index": 9, "use": USE}).status == 404


@given(JSON)
def test_whatever_is_told_only_figures_are_believed(told: Any) -> None:
    found = parse_usage(told)
    json.dumps(found, allow_nan=False)
    if found is not None:
        figures = [value for value in found.values() if not isinstance(value, dict)]
        for kind in ("ranks", "nics", "gpus"):
            assert len(found[kind]) <= MOST_OF_EACH
            figures += [value for one in found[kind].values() for value in one.values()]
        assert all(math.isfinite(value) and value >= 0 for value in figures)


def test_no_more_is_kept_than_a_node_can_have() -> None:
    found = parse_usage({"at": 1, "gpus": {str(index): {"power_watts": 1} for index in range(500)}})
    assert found is not None
    assert len(found["gpus"]) == MOST_OF_EACH
