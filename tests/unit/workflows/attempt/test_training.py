"""The Workflows of an attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.errors import ProfileError
from tasks.embedded.engine.argo.state import PodFacts
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.support.builders.attempt_plans import a_cluster, a_gpu_plan, a_plan
from tests.support.fakes.workflow_simulator import World, container, workflow
from workflows import labels
from workflows.attempt.examination import examination_workflow, post_flight_workflow
from workflows.attempt.jobset import jobset
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.templates import REFUSED_SECONDS, REFUSED_TRIES, REFUSED_WAIT_SECONDS
from workflows.attempt.training import (
    APPLY_SECONDS,
    GATE_WORKFLOW_NODES,
    VERIFY_SECONDS,
    gang,
    manifests,
    training_workflow,
)
from workflows.lint.lint import lint
from workflows.programs.probes import gate
from workflows.wire import GateReport, ResumeChoice, from_json

ONE_MIB = 1024 * 1024


def template(workflow: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in workflow["spec"]["templates"] if item["name"] == name)


def refusal(message: str) -> PodFacts:
    """A pod of Argo's that could not apply its manifest, as the engine tells of it."""
    return PodFacts("Failed", exit_code=64, message=message, reason="Error")


def groups(workflow: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return template(workflow, "main")["steps"]


def outputs(workflow: dict[str, Any], name: str) -> dict[str, Any]:
    return {item["name"]: item["valueFrom"] for item in template(workflow, name)["outputs"]["parameters"]}


def gated(sent: list[dict[str, Any]]) -> list[str]:
    return [node for one in sent for step in groups(one)[0] for node in step.get("withItems", [])]


def test_gate_and_check_run_side_by_side_and_then_the_jobset_is_applied() -> None:
    (main,) = manifests(a_plan())
    assert [[step["name"] for step in group] for group in groups(main)] == [["gate", "verify"], ["apply"]]
    assert groups(main)[0][0]["withItems"] == ["node-0", "node-1"]
    assert template(main, "gate")["nodeSelector"] == {labels.HOSTNAME: "{{inputs.parameters.node}}"}


def test_the_jobset_is_applied_only_after_a_pass() -> None:
    (main,) = manifests(a_plan())
    (apply,) = groups(main)[1]
    assert apply["when"] == "{{steps.verify.outputs.parameters.verdict}} == pass"
    assert outputs(main, "verify")["verdict"]["default"] == "unknown"
    assert outputs(main, "gate")["verdict"]["default"] == "unknown"


def test_a_probe_pod_is_tried_again_only_when_it_was_lost() -> None:
    (main,) = manifests(a_plan())
    assert template(main, "gate")["retryStrategy"] == {"limit": 2, "retryPolicy": "OnError"}


NO_WORD = 'Internal error occurred: failed calling webhook "mjobset.kb.io": failed to call webhook: Post "https://j"'
ENDS: dict[str, tuple[PodFacts, int]] = {
    "a webhook that does not answer": (refusal(f"{NO_WORD}: context deadline exceeded"), 13),
    "a webhook whose host is gone": (refusal(f"{NO_WORD}: dial tcp 192.0.2.7:9443: connect: no route to host"), 13),
    "webhooks that take longer than the request may": (
        refusal("Timeout: request did not complete within requested timeout - context deadline exceeded"),
        13,
    ),
    "a webhook that answered": (refusal('admission webhook "vjobset.kb.io" denied the request: spec: Invalid'), 1),
    "a webhook that answered what it waited for": (
        refusal('admission webhook "v.made.io" denied the request: context deadline exceeded'),
        1,
    ),
    "no such right": (refusal("jobsets.jobset.x-k8s.io is forbidden"), 1),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_jobset_is_applied_again_while_a_webhook_does_not_answer_and_never_once_one_refused(case: str) -> None:
    end, tries = ENDS[case]
    (main,) = manifests(a_plan())
    strategy = template(main, "apply")["retryStrategy"]
    world = World(workflow("apply", templates=[container("apply", retryStrategy=strategy)]), lambda pod: end)
    began = world.now
    world.run()
    said = [node["message"] for name, node in world.nodes.items() if name != "wf"]
    assert len(said) == tries
    assert all(end.message in one for one in said), "the API server's own words stay with each try"
    assert world.phase == "Failed"
    assert world.now - began >= REFUSED_WAIT_SECONDS * (tries - 1)
    assert REFUSED_TRIES * (REFUSED_WAIT_SECONDS + 5) >= 60, "5 s a pod on the real engine"
    assert main["spec"]["activeDeadlineSeconds"] >= APPLY_SECONDS + REFUSED_SECONDS + VERIFY_SECONDS


def test_a_pod_that_vanished_before_it_applied_the_jobset_is_made_again_twice() -> None:
    (main,) = manifests(a_plan())
    world = World(
        workflow("apply", templates=[container("apply", retryStrategy=template(main, "apply")["retryStrategy"])])
    )
    for _ in range(50):
        world.step()
        world.now = max(world.now, world.wake_at or 0.0)
        for name in world.living():
            world.pods[name] = PodFacts("Running", node="n0")
            world.step()
            del world.pods[name]
    assert (world.phase, len(world.manifests)) == ("Error", 3)


def test_a_jobset_that_a_webhook_took_at_last_is_applied() -> None:
    (main,) = manifests(a_plan())
    strategy = template(main, "apply")["retryStrategy"]
    ends = iter([refusal(NO_WORD), refusal(NO_WORD), 0])
    world = World(workflow("apply", templates=[container("apply", retryStrategy=strategy)]), lambda pod: next(ends))
    world.run()
    assert (world.phase, len(world.manifests)) == ("Succeeded", 3)


def test_the_apply_step_has_no_condition_and_no_owner() -> None:
    (main,) = manifests(a_plan())
    resource = template(main, "apply")["resource"]
    assert resource.keys() == {"action", "flags", "manifest"}
    assert resource["flags"] == ["--server-side", "--field-manager=primus-flows"]


def test_the_applied_jobset_is_the_plans_own_with_the_checkpoint_filled_in_by_the_engine() -> None:
    (main,) = manifests(a_plan())
    text = template(main, "apply")["resource"]["manifest"]
    for tag, value in (("resume-from", "/a b/c"), ("resume-step", "20")):
        text = text.replace(f"{{{{inputs.parameters.{tag}}}}}", value)
    assert yaml.safe_load(text) == jobset(a_plan(), "/a b/c", "20")


def test_values_of_pods_that_left_nothing_are_reports_that_say_unknown() -> None:
    (main,) = manifests(a_plan())
    report = from_json(GateReport, outputs(main, "gate")["report"]["default"])
    choice = from_json(ResumeChoice, outputs(main, "verify")["choice"]["default"])
    assert (report.verdict, choice.verdict) == ("unknown", "unknown")
    assert choice.resume_from == ""
    assert choice.why


def test_without_chosen_nodes_there_is_no_gate() -> None:
    (main,) = manifests(a_plan(nodes=()))
    assert [[step["name"] for step in group] for group in groups(main)] == [["verify"], ["apply"]]


def test_the_gate_takes_the_gpus_that_the_ranks_will_take() -> None:
    (main,) = manifests(a_gpu_plan())
    assert template(main, "gate")["container"]["resources"]["limits"]["amd.com/gpu"] == "8"


def test_a_roll_back_reaches_the_check() -> None:
    plan = a_plan(max_resume_step=40, excluded_checkpoints=("/shared/a", "/shared/b"), deep_verify=True)
    (main,) = manifests(plan)
    command = template(main, "verify")["container"]["command"]
    assert {"--max-step=40", "--excluded=/shared/a", "--excluded=/shared/b", "--deep=true"} <= set(command)


@pytest.mark.parametrize("replicas", [GATE_WORKFLOW_NODES, GATE_WORKFLOW_NODES + 1, 1500])
def test_every_node_is_gated_exactly_once_before_the_main_workflow(replicas: int) -> None:
    plan = a_gpu_plan(replicas)
    sent = manifests(plan)
    assert gated(sent) == list(plan.nodes)
    assert sent[-1]["metadata"]["name"] == plan.name
    assert len(sent) == (1 if replicas <= GATE_WORKFLOW_NODES else 1 + -(-replicas // GATE_WORKFLOW_NODES))


def test_racks_stay_together() -> None:
    for one in manifests(a_gpu_plan(1500)):
        for step in groups(one)[0]:
            assert int(step.get("withItems", ["node-0"])[0].removeprefix("node-")) % 16 == 0


def test_a_render_for_12500_nodes_is_split_into_objects_below_one_mebibyte() -> None:
    plan = a_gpu_plan(12_500)
    sent = manifests(plan)
    assert max(len(json.dumps(one)) for one in sent) < ONE_MIB
    assert len({one["metadata"]["name"] for one in sent}) == len(sent) == 26
    assert gated(sent) == list(plan.nodes)
    assert [finding for one in sent for finding in lint(one, plan)] == []


@settings(max_examples=20, deadline=None)
@given(replicas=st.integers(1, 700), attempt=st.integers(1, 999), fencing=st.integers(0, 10**9))
def test_equal_plans_give_equal_manifests(replicas: int, attempt: int, fencing: int) -> None:
    one, other = (a_gpu_plan(replicas, attempt=attempt, fencing=fencing) for _ in range(2))
    assert json.dumps(manifests(one)) == json.dumps(manifests(other))


@pytest.mark.parametrize(
    "plan", [a_plan(), a_plan(nodes=()), a_gpu_plan(), a_gpu_plan(600)], ids=["cpu", "no-nodes", "gpu", "large"]
)
def test_all_that_is_built_passes_every_rule_and_the_embedded_engine(plan: AttemptPlan) -> None:
    built = [*manifests(plan), *gang(plan), post_flight_workflow(plan).to_dict()]
    built.append(examination_workflow(plan, ["node-1"], 3).to_dict())
    assert [finding for one in built for finding in lint(one, plan)] == []
    for one in built:
        if one["kind"] == "Workflow":
            validate_workflow(one)


def test_post_flight_says_what_it_found_or_nothing() -> None:
    workflow = post_flight_workflow(a_plan()).to_dict()
    assert workflow["metadata"]["name"] == "demo-1-a1-post"
    assert outputs(workflow, "collect")["collected"]["default"] == "{}"


def test_an_examination_reaches_cordoned_and_quarantined_suspects() -> None:
    workflow = examination_workflow(a_plan(), ["node-1", "node-7"], 3).to_dict()
    assert workflow["metadata"]["name"] == "demo-1-a1-x3"
    assert groups(workflow)[0][0]["withItems"] == ["node-1", "node-7"]
    tolerated = {item["key"] for item in template(workflow, "examine")["tolerations"]}
    assert {labels.QUARANTINE_TAINT, labels.HOLD_TAINT, "node.kubernetes.io/unschedulable"} <= tolerated
    assert "example.org/gpu" in tolerated


@pytest.mark.parametrize("allowed", [True, False])
def test_only_an_examination_reads_the_kernel_s_log_and_only_where_the_cluster_says_so(allowed: bool) -> None:
    plan = a_plan(cluster=a_cluster(engine="kubernetes", read_kernel_log=allowed))
    built = [
        *manifests(plan),
        examination_workflow(plan, ["node-1"], 1).to_dict(),
        post_flight_workflow(plan).to_dict(),
    ]
    granted = {
        item["name"]: item["container"]["securityContext"]["capabilities"].get("add", [])
        for one in built
        if one["kind"] == "Workflow"
        for item in one["spec"]["templates"]
        if "container" in item
    }
    assert {name for name, added in granted.items() if "SYSLOG" in added} == ({"examine"} if allowed else set())
    assert not any(
        word.startswith("--kernel-folder") for word in template(built[-2], "examine")["container"]["command"]
    )


def test_an_examination_looks_at_the_kernel_since_the_attempt_began() -> None:
    workflow = examination_workflow(a_plan(), ["node-1"], 1, since=1234.5).to_dict()
    options = gate.parse(template(workflow, "examine")["container"]["command"][2:])
    assert (options.examination, options.kernel_since, options.expected_gpus) == (True, 1234.5, 0)
    assert options.kernel_folder == "$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1/kernel"


def test_an_examination_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="suspects"):
        examination_workflow(a_plan(), [], 1)


def test_an_unknown_form_of_a_gang_is_refused_in_one_line() -> None:
    with pytest.raises(ProfileError, match="jobset, trainjob, pytorchjob") as error:
        gang(a_plan(), "helm")
    assert error.value.field == "as"


def test_no_workflow_outlives_a_day_nor_its_deadline() -> None:
    spec = training_workflow(a_plan()).to_dict()["spec"]
    assert spec["ttlStrategy"]["secondsAfterCompletion"] == 24 * 3600
    longest = max(item.get("activeDeadlineSeconds", 0) for item in spec["templates"])
    assert spec["activeDeadlineSeconds"] > longest
