"""The PyTorchJob of an attempt with its coordinator: one test a promise."""

from __future__ import annotations

from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.run import Placement, Resources, Role, RunBudget, RunProfile
from tests.support.builders.attempt_plans import AMD, TRAINER, a_cluster, a_gpu_plan, a_plan, a_run
from workflows import labels
from workflows.attempt.jobset import jobset
from workflows.attempt.kubeflow import PYTORCHJOB_CONTAINER, coordinator_name, pytorchjob
from workflows.attempt.plan import AttemptPlan
from workflows.lint.lint import lint


def whole_nodes(replicas: int = 2, **changes: Any) -> AttemptPlan:
    """Whole nodes of AMD GPUs under Kueue, one role."""
    role = a_gpu_plan(replicas).role
    run = a_run(roles=(role,), priority="high", topology=Placement(level="rack", required=True), **changes)
    return a_plan(run, a_cluster(AMD, engine="kubernetes", queue="team", namespace="training"), AMD)


PLANS = {"cpu": a_plan(), "gpu": whole_nodes(), "large": whole_nodes(600), "any-node": a_plan(nodes=())}


def job(plan: AttemptPlan) -> dict[str, Any]:
    return pytorchjob(plan)[-1]


def worker(plan: AttemptPlan) -> dict[str, Any]:
    return job(plan)["spec"]["pytorchReplicaSpecs"]["Worker"]


def pod(plan: AttemptPlan) -> dict[str, Any]:
    return worker(plan)["template"]["spec"]


def environment(spec: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in spec["containers"][0]["env"]}


def in_jobset(plan: AttemptPlan, role: str) -> dict[str, Any]:
    jobs = jobset(plan)["spec"]["replicatedJobs"]
    return next(item["template"]["spec"]["template"] for item in jobs if item["name"] == role)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_all_three_pass_the_definitions_and_every_rule(plan: AttemptPlan) -> None:
    assert [one["kind"] for one in pytorchjob(plan)] == ["Service", "Job", "PyTorchJob"]
    assert [finding for one in pytorchjob(plan) for finding in lint(one, plan)] == []


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_pods_are_those_of_the_jobset(plan: AttemptPlan) -> None:
    """But for the names that the operator wants, the number that it gives, and where the coordinator is."""
    ours, theirs = in_jobset(plan, "trainer"), worker(plan)["template"]
    assert theirs["metadata"] == ours["metadata"]
    assert ours["spec"].pop("restartPolicy") == worker(plan)["restartPolicy"]
    differs = {"PRIMUS_POD_INDEX", "PRIMUS_COORDINATOR_URL"}
    found, wanted = ({**environment(one["spec"])} for one in (theirs, ours))
    assert {name for name in wanted if found[name] != wanted[name]} == differs
    theirs["spec"]["containers"][0] |= {key: ours["spec"]["containers"][0][key] for key in ("name", "env")}
    assert theirs == ours


def test_the_coordinator_is_that_of_the_jobset() -> None:
    _, own, _ = pytorchjob(a_plan())
    assert own["spec"]["template"] == in_jobset(a_plan(), "coordinator")
    assert (own["spec"]["completions"], own["spec"]["backoffLimit"]) == (1, 1_000_000)
    assert own["metadata"]["name"] == "demo-1-a1-coordinator"


def test_the_coordinator_is_reached_by_its_service() -> None:
    service, own, _ = pytorchjob(a_plan())
    assert environment(pod(a_plan()))["PRIMUS_COORDINATOR_URL"] == "http://demo-1-a1-coordinator:29400"
    assert service["metadata"]["name"] == coordinator_name(a_plan())
    assert service["spec"]["selector"] == own["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"][labels.ROLE] == "coordinator"
    assert service["spec"]["ports"] == [{"name": "primus", "port": 29400}]
    assert service["spec"]["publishNotReadyAddresses"]


def test_the_operator_numbers_the_pods() -> None:
    field = environment(pod(a_plan()))["PRIMUS_POD_INDEX"]
    assert field == {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}


FIELDS: list[tuple[str, AttemptPlan, dict[str, Any]]] = [
    ("nodes", a_plan(), {"replicas": 2, "minAvailable": 2}),
    ("more nodes", whole_nodes(5), {"replicas": 5, "minAvailable": 5}),
    ("ranks", whole_nodes(), {"nprocPerNode": "8"}),
    ("one rank", a_plan(), {"nprocPerNode": "1"}),
    ("priority", whole_nodes(), {"priorityClass": "high"}),
    ("no priority", a_plan(), {"priorityClass": None}),
    ("budget", a_plan(a_run(budget=RunBudget(wall_seconds=90.5))), {"activeDeadlineSeconds": 91}),
    ("no budget", a_plan(), {"activeDeadlineSeconds": None}),
    ("an end", a_plan(), {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 7 * 24 * 3600}),
    ("failures", a_plan(), {"restartPolicy": "Never", "backoffLimit": None, "elasticPolicy": None}),
]


@pytest.mark.parametrize(("plan", "wanted"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
def test_fields_of_the_pytorchjob(plan: AttemptPlan, wanted: dict[str, Any]) -> None:
    spec = job(plan)["spec"]
    known = {**spec, **spec["runPolicy"], **spec["runPolicy"]["schedulingPolicy"], **worker(plan)}
    assert {key: known.get(key) for key in wanted} == wanted


def test_there_is_no_master() -> None:
    """One would decide alone, count as a rank and bring an init container of somebody else's image."""
    assert set(job(a_plan())["spec"]["pytorchReplicaSpecs"]) == {"Worker"}


def test_the_launcher_is_the_command_of_the_container_that_the_operator_looks_for() -> None:
    inner = pod(whole_nodes())["containers"][0]
    assert inner["name"] == PYTORCHJOB_CONTAINER
    assert inner["command"][:3] == ["python3", "-I", "-S"]
    assert inner["resources"]["limits"] == {"memory": "1Ti", "amd.com/gpu": "8", "rdma/hca": "8"}


def test_kueue_queues_the_gang_by_its_label_and_not_the_coordinator() -> None:
    service, own, gang = pytorchjob(whole_nodes())
    assert gang["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert gang["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert not [key for one in (service, own) for key in one["metadata"]["labels"] if key.startswith("kueue")]
    wish = worker(whole_nodes())["template"]["metadata"]["annotations"]
    assert wish == {"kueue.x-k8s.io/podset-required-topology": labels.RACK}


def test_applying_it_again_does_not_suspend_a_gang_that_runs() -> None:
    """Whoever sets `suspend` owns it: Kueue's false would be overwritten."""
    assert "suspend" not in job(whole_nodes())["spec"]["runPolicy"]


def test_all_is_found_by_the_labels_of_the_attempt() -> None:
    """Nobody owns the coordinator, so whoever deletes the gang deletes it by these."""
    wanted = labels.labels("demo-1", 1, "train").items()
    assert all(wanted <= one["metadata"]["labels"].items() for one in pytorchjob(whole_nodes()))


def _role(**changes: Any) -> Role:
    return TRAINER.model_copy(update=changes)


def _two_roles() -> RunProfile:
    helper = Role(name="feeder", image="f:1", command=("feed",), on_failure="restart")
    return a_run(roles=(helper, _role(decides=True)))


REFUSED: list[tuple[str, str, AttemptPlan]] = [
    ("roles[0]", "'feeder' is a second role.*--as trainjob", a_plan(_two_roles())),
    ("roles[1]", "'feeder' is a second role.*leave it out", a_gpu_plan()),
    ("roles[0].environment.A", "Argo", a_plan(a_run(roles=(_role(environment={"A": "{{b}}"}),)))),
    ("roles[0].resources.gpus", "offers 0", a_plan(a_run(roles=(_role(resources=Resources(gpus=1)),)))),
    ("roles[0].on_failure", "fail_attempt", a_plan(a_run(roles=(_role(on_failure="ignore"),)))),
    ("nodes", "2 pods", a_plan(nodes=("node-0",))),
]


@pytest.mark.parametrize(("field", "advice", "plan"), REFUSED, ids=[f"{i}-{row[0]}" for i, row in enumerate(REFUSED)])
def test_what_a_pytorchjob_cannot_hold_is_refused_by_its_field(field: str, advice: str, plan: AttemptPlan) -> None:
    with pytest.raises(ProfileError, match=advice) as error:
        pytorchjob(plan)
    assert error.value.field == field
