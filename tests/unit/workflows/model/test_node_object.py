"""What a Node of the API says of GPUs, NICs and kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.checks.catalogue import PROBES
from tests.support.cases.rows import rows
from workflows.model.nodes import told_by_node_object
from workflows.programs.parsers.text import ParsedOutput

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}


def node(allocatable: Any = None, *conditions: Any) -> dict[str, Any]:
    return {"kind": "Node", "status": {"allocatable": allocatable, "conditions": list(conditions or (READY,))}}


def told(parsed: ParsedOutput) -> dict[str, float | str | None]:
    return {one.quantity: one.word or one.value for one in parsed.readings}


def test_a_sound_node_tells_all_in_the_units_of_the_probe() -> None:
    found = told_by_node_object(node({"nvidia.com/gpu": "8", "rdma/hca": "9"}), "nvidia.com/gpu", "rdma/hca")
    assert found.unknown == ""
    assert told(found) == {"allocatable_gpus": 8.0, "allocatable_nics": 9.0, "kubelet_ready": "True"}
    assert {one.quantity: one.unit for one in found.readings} == PROBES["kubernetes-node"].quantities


@rows("workflows/model/node_object")
def test_gpus_are_counted_as_the_kubelet_offers_them(allocatable: dict[str, Any], figure: float, line: str) -> None:
    found = told_by_node_object(node(allocatable), "amd.com/gpu")
    assert (found.readings[0].quantity, found.readings[0].value) == ("allocatable_gpus", figure)
    assert found.readings[0].line == line


def test_hardware_without_gpus_is_not_asked_for_them() -> None:
    assert told(told_by_node_object(node({"cpu": "4"}), "")) == {"kubelet_ready": "True"}


@pytest.mark.parametrize("text", ["eight", "-1", "8k", "1.5", "", "²", True])
def test_a_count_that_is_none_is_unknown(text: object) -> None:
    found = told_by_node_object(node({"amd.com/gpu": text}), "amd.com/gpu")
    assert told(found) == {"kubelet_ready": "True"}
    assert "status.allocatable[amd.com/gpu] reads" in found.unknown


def test_a_kubelet_that_is_not_ready_is_told_and_a_silent_one_is_unknown() -> None:
    down = {**READY, "status": "False", "reason": "KubeletNotReady"}
    found = told_by_node_object(node({"amd.com/gpu": "8"}, down), "amd.com/gpu")
    assert (told(found)["kubelet_ready"], found.unknown) == ("False", "")
    silent = {**READY, "status": "Unknown", "reason": "NodeStatusUnknown"}
    found = told_by_node_object(node({"amd.com/gpu": "8"}, silent), "amd.com/gpu")
    assert "kubelet_ready" not in told(found)
    assert found.unknown == "the kubelet has been silent since 2026-01-01T00:00:00Z (NodeStatusUnknown)"


@pytest.mark.parametrize("manifest", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": "x"}}])
def test_a_node_that_has_told_nothing_is_unknown(manifest: dict[str, Any]) -> None:
    found = told_by_node_object(manifest, "amd.com/gpu")
    assert found.readings == ()
    assert "no status.allocatable" in found.unknown
    assert "no condition Ready" in found.unknown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["status", "allocatable", "conditions", "type", "amd.com/gpu"]), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["status", "metadata"]), JSON))
def test_no_object_breaks_it_and_nothing_known_is_never_silent(manifest: dict[str, Any]) -> None:
    found = told_by_node_object(manifest, "amd.com/gpu", "rdma/hca")
    assert found.readings or found.unknown
