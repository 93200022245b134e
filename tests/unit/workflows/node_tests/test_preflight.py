"""The workflow of a test of nodes: shared calls, small enough for every status, and by all our rules."""

from __future__ import annotations

import base64
import json
import random

import pytest

from profiles.checks.catalogue import Depth
from profiles.loading.load import load_cluster, load_hardware, load_suite
from tasks.node_tests.preflight import Wanted, plan_of, told_by
from tests.support.cases.rows import rows
from workflows.lint.lint import lint
from workflows.node_tests.preflight import (
    MOST,
    PreflightPlan,
    calls_of,
    deadline_seconds,
    pod_seconds,
    preflight_workflow,
)
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.call import from_json
from workflows.programs.probes.run import pack_answers

WORST_STATUS_BYTES = 8192
"""Of one node: its entry in the status with the packed answers of a smoke test of eight GPUs."""


def plan(cluster: str = "local", suite: str = "any-machine", depth: Depth = "device", nodes: int = 6) -> PreflightPlan:
    profile = load_cluster(cluster)
    names = {f"a-node-with-a-rather-long-name-of-some-cloud-{index}": profile.pools[0].name for index in range(nodes)}
    return plan_of(Wanted(profile, load_suite(suite), depth, names), 7)


@rows("workflows/node_tests/preflight")
def test_it_passes_every_rule(cluster: str, suite: str, depth: Depth) -> None:
    assert lint(preflight_workflow(plan(cluster, suite, depth, 3)).to_dict()) == []
    assert lint(preflight_workflow(plan(cluster, suite, depth, MOST)).to_dict()) == []


def test_the_largest_one_fits_with_its_status() -> None:
    size = len(json.dumps(preflight_workflow(plan("kubernetes-example", "smoke", "smoke", MOST)).to_dict()))
    assert size + MOST * WORST_STATUS_BYTES < 1 << 20
    with pytest.raises(ValueError, match=f"1 to {MOST} nodes"):
        preflight_workflow(plan(nodes=MOST + 1))
    with pytest.raises(ValueError, match="got 0"):
        preflight_workflow(plan(nodes=0))


def test_answers_of_a_smoke_test_of_eight_gpus_are_small() -> None:
    dice = random.Random(7)
    readings = [
        Reading(
            "hbm_temperature", dice.random() * 90, "degC", f"gpu {gpu}", line=f"GPU {gpu}: {dice.random()} C of 110"
        )
        for gpu in range(8)
    ]
    calls = {number: [ParsedOutput(tuple(readings))] for number in range(40)}
    assert len(pack_answers(calls)) < WORST_STATUS_BYTES


def test_checks_with_the_same_call_share_it() -> None:
    checks = load_suite("any-machine").checks_of("device", load_hardware("cpu"))
    found = calls_of(checks)
    assert found.number_of["cpu-gemm"] == found.number_of["cpu-gemm-correct"] != found.number_of["memory-bandwidth"]
    assert len(found.calls) < len(checks)
    shared = found.calls[found.number_of["cpu-gemm"]]
    assert (shared.attempts, shared.needs) == (3, ("node",))
    longer = [
        check.model_copy(update={"deadline_seconds": 99.0}) if check.name == "cpu-gemm" else check for check in checks
    ]
    assert calls_of(longer).calls[shared.number].deadline_seconds == 99.0


def test_what_is_executed_stands_in_the_manifest() -> None:
    wanted = plan("local", "any-machine", "storage")
    made = preflight_workflow(wanted).to_dict()
    [template] = [item for item in made["spec"]["templates"] if "container" in item]
    [calls] = [word.partition("=")[2] for word in template["container"]["command"] if word.startswith("--calls=")]
    assert from_json(calls) == wanted.calls(wanted.pools[0]).calls
    assert template["activeDeadlineSeconds"] == pod_seconds(wanted)
    assert made["spec"]["activeDeadlineSeconds"] == deadline_seconds(wanted)
    assert made["metadata"]["labels"]["primus-flows.io/suite"] == "any-machine"
    assert set(template["container"]["resources"]["limits"]) == {"cpu", "memory"}


def pod(node: str, report: str | None, phase: str = "Succeeded", **more: str) -> dict[str, object]:
    outputs = {"parameters": [{"name": "report", "value": report}]} if report is not None else {}
    inputs = {"parameters": [{"name": "node", "value": node}]}
    return {"type": "Pod", "templateName": "probe-0", "phase": phase, "inputs": inputs, "outputs": outputs, **more}


def report(**more: object) -> str:
    answers = pack_answers({0: [ParsedOutput((Reading("q", 1.0),))]})
    return json.dumps({"node": "x", "at": 5.0, "seconds": 1.0, "answers": answers, **more})


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], "its pod was never started"),
        ([pod("a", None, "Failed", message="OOMKilled")], "its pod failed: OOMKilled"),
        ([pod("a", "{}", "Error")], "its pod error: it left no report"),
        ([pod("a", "{broken")], "its pod succeeded: it left no report"),
        ([pod("a", report(answers="zz"))], "its pod succeeded: it left no report"),
        ([pod("a", report(answers=base64.b85encode(b"x").decode()))], "its pod succeeded: it left no report"),
        ([pod("a", report(at=None))], "its pod succeeded: it left no report"),
        ([pod("a", "[]")], "its pod succeeded: it left no report"),
    ],
)
def test_a_pod_without_a_readable_report_told_nothing(pods: list[dict[str, object]], why: str) -> None:
    manifest = {"status": {"nodes": {str(index): item for index, item in enumerate(pods)}}}
    [found] = told_by(manifest, ["a"])
    assert (found.at, found.answers, found.why) == (0.0, {}, why)


def test_a_pod_that_was_lost_and_started_again_told_what_it_told_last() -> None:
    pods = [pod("a", None, "Error", message="node lost"), pod("a", report()), pod("b", report(seconds=2.0))]
    manifest = {"status": {"nodes": {str(index): item for index, item in enumerate(pods)}}}
    found = {item.node: item for item in told_by(manifest, ["b", "a"])}
    assert list(found) == ["b", "a"]
    assert (found["a"].at, found["a"].why, found["b"].seconds) == (5.0, "", 2.0)
    assert found["a"].answers[0][0].readings == (Reading("q", 1.0),)
