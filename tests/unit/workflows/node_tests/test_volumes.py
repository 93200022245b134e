"""Claims of volumes: what is asked for, what the looks at them say, and who is to blame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from profiles.checks.catalogue import PROBES
from profiles.errors import Refused
from profiles.loading.load import load_cluster, load_hardware, load_suite
from tasks.cluster import using
from tasks.node_tests.preflight import Wanted, plan_of, told_by, with_volumes
from tasks.node_tests.volumes import GONE_SECONDS, Claims
from workflows import labels
from workflows.lint.lint import lint
from workflows.node_tests.preflight import PreflightPlan, deadline_seconds, left_out, node_checks, preflight_workflow
from workflows.node_tests.volumes import VOLUME, NodeClaim, claim_readings
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.run import pack_answers

GOOD = ParsedOutput((Reading("volume_faults", 0.0, "count", line="64 MiB written"),))
BAD = ParsedOutput((Reading("volume_faults", 1.0, "count", line="it is full"),))
NAMES = ("volume-lifecycle", "volume-claim", "volume-time")
TOLD = "volume_faults", "volume_claims_stuck", "volume_seconds"


def plan(storage_class: str, cluster: str = "kubernetes-example") -> PreflightPlan:
    profile = load_cluster(cluster, [f"admission.storage_class={storage_class}"] if storage_class else ())
    suite = load_suite("storage", cluster=profile)
    return plan_of(Wanted(profile, suite, "storage", {"node-a": profile.pools[0].name}), 7)


@pytest.mark.parametrize("cluster", ["kubernetes-example", "bed", "local"])
def test_each_node_has_a_pod_with_a_claim_that_goes_with_it(cluster: str) -> None:
    made = preflight_workflow(plan("fast-ssd", cluster)).to_dict()
    assert lint(made) == []
    [template] = [item for item in made["spec"]["templates"] if item["name"].startswith(VOLUME)]
    [volume] = template["volumes"]
    claim = volume["ephemeral"]["volumeClaimTemplate"]
    assert claim["spec"]["storageClassName"] == "fast-ssd"
    assert claim["metadata"]["labels"] == {labels.TEST: made["metadata"]["name"]}
    assert template["timeout"] == "120s", "a pod that waits for its volume is ended too"
    assert {mount["name"] for mount in template["container"]["volumeMounts"]} == {"outputs", "claimed"}
    [steps] = [item["steps"] for item in made["spec"]["templates"] if "steps" in item]
    assert [step[0]["template"] for step in steps] == ["probe-0", "volume-0"]


def test_there_is_time_for_the_volumes_and_none_is_taken_where_there_are_none() -> None:
    with_class, without = plan("fast-ssd"), plan("")
    assert deadline_seconds(with_class) == deadline_seconds(without) + 120
    made = preflight_workflow(without).to_dict()
    assert not [item for item in made["spec"]["templates"] if item["name"].startswith(VOLUME)]


def test_it_is_left_out_without_a_storage_class_and_not_made_without_kubernetes() -> None:
    kind = load_hardware("cpu")
    suites = {word: plan(word).suite for word in ("", "fast-ssd")}
    why = left_out(suites[""], "storage", kind)
    assert {name for name, said in why.items() if "admission.storage_class" in said} == set(NAMES)
    assert not set(NAMES) & set(left_out(suites["fast-ssd"], "storage", kind))
    for launcher in ("ansible", "slurm"):
        assert not set(NAMES) & {one.name for one in node_checks(suites["fast-ssd"], "storage", kind, launcher)}
    assert set(NAMES) <= {one.name for one in node_checks(suites["fast-ssd"], "storage", kind)}


@pytest.mark.parametrize(
    ("sight", "figures", "unknown"),
    [
        (NodeClaim(GOOD, True, True, 2.0, 0.5, 0.25), (0.0, 0.0, 2.75), ""),
        (NodeClaim(BAD, True, True, 2.0, 0.5, 0.25), (1.0, 0.0, 2.75), ""),
        (NodeClaim(GOOD, True, True, 2.0, 0.5, None), (0.0, 1.0, None), ""),
        (
            NodeClaim(said="no provisioner"),
            (None, 1.0, None),
            "bound within 120 s: no provisioner; this is the storage",
        ),
        (NodeClaim(bound=True, said="it hangs"), (None, None, None), "its pod did not start within 120 s: it hangs"),
        (NodeClaim(bound=True, ran=True, said="OOMKilled"), (None, None, None), "ended without a report: OOMKilled"),
        (NodeClaim(ParsedOutput(unknown="no answer"), True, True, 1.0, 9.0, 0.0), (None, 0.0, 10.0), "no answer"),
    ],
)
def test_what_was_seen_says_who_failed(sight: NodeClaim, figures: tuple[float | None, ...], unknown: str) -> None:
    found = claim_readings(sight, "fast-ssd", 120)
    told = {one.quantity: one.value for one in found.readings}
    assert tuple(told.get(name) for name in TOLD) == figures
    assert unknown in found.unknown
    assert bool(found.unknown) == bool(unknown)
    assert {one.quantity: one.unit for one in found.readings}.items() <= PROBES["volume"].quantities.items()


class Storage:
    """A cluster that has nothing but claims: those of one look after the other, the last ones for ever."""

    name = "made-up"

    def __init__(self, *looks: Sequence[str] | Exception) -> None:
        self.looks = list(looks)
        self.at = 100.0

    def list(self, kind: str, marks: dict[str, str]) -> list[dict[str, Any]]:
        assert (kind, marks) == ("PersistentVolumeClaim", {labels.TEST: "test-7"})
        phases = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(phases, Exception):
            raise phases
        metadata = {"annotations": {labels.NODE: "node-a"}}
        return [{"metadata": metadata, "status": {"phase": phase}} for phase in phases]

    def wait(self, seconds: float) -> None:
        self.at += seconds


def workflow(phase: str, message: str = "", parsed: ParsedOutput | None = None) -> dict[str, Any]:
    """One in which a pod with a volume is in that phase; it took 3 s, of which it worked 1 s."""
    node: dict[str, Any] = {"type": "Pod", "templateName": "volume-0", "phase": phase, "message": message}
    node["inputs"] = {"parameters": [{"name": "node", "value": "node-a"}]}
    if parsed is not None:
        report = json.dumps({"node": "node-a", "at": 5.0, "seconds": 1.0, "answers": pack_answers({4: [parsed]})})
        node["outputs"] = {"parameters": [{"name": "report", "value": report}]}
        node |= {"startedAt": "2025-11-23T00:00:00Z", "finishedAt": "2025-11-23T00:00:03Z"}
    probe: dict[str, Any] = {**node, "templateName": "probe-0", "message": "a probe's", "outputs": {}}
    return {"status": {"nodes": {"a": node, "b": probe}}}


def seen(storage: Storage, *looks: dict[str, Any]) -> NodeClaim:
    claims = Claims("test-7", lambda: storage.at, storage.wait)
    with using(storage):  # type: ignore[arg-type]
        for manifest in looks:
            claims.look(manifest)
        claims.await_gone()
    return claims.sight("node-a", 4)


def test_a_claim_is_seen_from_its_creation_until_it_is_gone() -> None:
    storage = Storage(["Pending"], ["Bound"], ["Bound"], ["Bound"], [])
    pending = workflow("Pending", "unbound immediate PersistentVolumeClaims")
    found = seen(storage, pending, workflow("Running"), workflow("Succeeded", "", GOOD))
    assert found == NodeClaim(GOOD, True, True, 2.0, 1.0, 0.25, "unbound immediate PersistentVolumeClaims")


def test_a_claim_that_does_not_go_is_not_waited_for_for_ever() -> None:
    storage = Storage(["Bound"])
    found = seen(storage, workflow("Succeeded", "", GOOD))
    assert found.gone_seconds is None
    assert storage.at == 100.0 + GONE_SECONDS


def test_a_claim_that_was_never_bound_is_not_waited_for_and_the_last_word_is_kept() -> None:
    storage = Storage(["Pending"])
    found = seen(storage, workflow("Pending", "no provisioner"), workflow("Failed", "timeout"))
    assert found == NodeClaim(said="no provisioner")
    assert storage.at == 100.0


def test_what_may_not_be_looked_at_is_not_taken_for_gone() -> None:
    storage = Storage(Refused("persistentvolumeclaims", "forbidden"))
    found = seen(storage, workflow("Succeeded", "", GOOD))
    assert (found.bound, found.gone_seconds, found.report) == (False, None, GOOD)


def test_a_node_whose_own_pod_told_nothing_stays_silent_and_others_have_both_answers() -> None:
    wanted = plan("fast-ssd")
    claims = Claims("test-7", lambda: 0.0)
    silent = told_by({}, wanted.nodes)
    assert with_volumes(wanted, silent, claims) == silent
    [told] = with_volumes(wanted, [silent[0].__class__("node-a", 5.0)], claims)
    assert {parsed.unknown[:9] for [parsed] in told.answers.values()} == {"no volume"}
