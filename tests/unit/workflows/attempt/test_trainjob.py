"""The TrainJob of an attempt and its TrainingRuntime: one test a promise."""

from __future__ import annotations

import copy
from operator import itemgetter
from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.run import Placement, Resources, Role, RunBudget, SecretVariable
from tests.support.builders.attempt_plans import TRAINER, a_cluster, a_gpu_plan, a_plan, a_run
from workflows import labels
from workflows.attempt.jobset import jobset
from workflows.attempt.kubeflow import ANCESTOR, MOST_ITEMS, TRAINJOB_CONTAINER, trainjob
from workflows.attempt.plan import AttemptPlan
from workflows.lint.lint import lint

PLANS = {"cpu": a_plan(), "gpu": a_gpu_plan(), "large": a_gpu_plan(600), "any-node": a_plan(nodes=())}


def ranks(runtime: dict[str, Any]) -> dict[str, Any]:
    """The replicated job that the TrainJob describes."""
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (found,) = [job for job in jobs if ANCESTOR.items() <= job["template"]["metadata"]["labels"].items()]
    return found


def container(job: dict[str, Any]) -> dict[str, Any]:
    return job["template"]["spec"]["template"]["spec"]["containers"][0]


def controller(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Specification of the JobSet that the controller makes of them.

    As `pkg/runtime` of Trainer 2.2.1 does it: the number of nodes, image, command and arguments of the TrainJob take
    the place of the runtime's, its variables replace those of the same name in their place or are appended.
    """
    runtime, job = copy.deepcopy(manifests)
    trainer = job["spec"]["trainer"]
    spec = ranks(runtime)["template"]["spec"]
    spec["parallelism"] = spec["completions"] = trainer["numNodes"]
    inner = container(ranks(runtime))
    inner |= {key: trainer[key] for key in ("image", "command", "args")}
    for item in trainer["env"]:
        places = [index for index, old in enumerate(inner["env"]) if old["name"] == item["name"]]
        inner["env"][slice(places[0], places[0] + 1) if places else slice(len(inner["env"]), None)] = [item]
    return runtime["spec"]["template"]["spec"]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_controller_makes_our_own_jobset_of_it(plan: AttemptPlan) -> None:
    """So every promise of the JobSet holds here too; what differs is named."""
    made, ours = controller(trainjob(plan, "/ckpt/step-5", "5")), jobset(plan, "/ckpt/step-5", "5")["spec"]
    del ours["ttlSecondsAfterFinished"]
    job = next(job for job in made["replicatedJobs"] if job["name"] == plan.role.name)
    for key in ANCESTOR:
        del job["template"]["metadata"]["labels"][key]
    inner = container(job)
    inner["name"] = plan.role.name
    inner["command"] += inner.pop("args")
    for spec in (made, ours):
        for item in spec["replicatedJobs"]:
            container(item)["env"].sort(key=itemgetter("name"))
    assert made == ours


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_both_pass_the_definitions_and_every_rule(plan: AttemptPlan) -> None:
    assert [finding for one in trainjob(plan) for finding in lint(one, plan)] == []


def test_variables_stand_before_those_that_name_them() -> None:
    """Kubernetes expands `$(A)` only where A was defined earlier in the list, and the controller appends."""
    trainer = TRAINER.model_copy(update={"environment": {"OUT": "$(PRIMUS_FOLDER_STORAGE_0)/out"}})
    made = controller(trainjob(a_plan(a_run(roles=(trainer,))), "$(PRIMUS_FOLDER_STORAGE_0)/step-5", "5"))
    seen: set[str] = set()
    for item in container(made["replicatedJobs"][1])["env"]:
        for part in item.get("value", "").split("$(")[1:]:
            assert part.partition(")")[0] in seen, item["name"]
        seen.add(item["name"])
    assert {"OUT", "PRIMUS_RESUME_FROM", "PRIMUS_COORDINATOR_URL"} <= seen


def test_the_runtime_comes_first_and_is_named_in_full() -> None:
    """The TrainJob is refused where its runtime is not there; an empty kind would mean one of the whole cluster."""
    runtime, job = trainjob(a_plan())
    assert (runtime["kind"], job["kind"]) == ("TrainingRuntime", "TrainJob")
    assert runtime["metadata"]["name"] == job["metadata"]["name"] == "demo-1-a1"
    assert job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "demo-1-a1",
    }


FIELDS: list[tuple[str, AttemptPlan, dict[str, Any]]] = [
    ("nodes", a_plan(), {"trainer.numNodes": 2, "suspend": None, "activeDeadlineSeconds": None}),
    ("more nodes", a_gpu_plan(5), {"trainer.numNodes": 5}),
    ("image", a_plan(), {"trainer.image": "example.org/trainer:1"}),
    ("resources stay in the runtime", a_gpu_plan(), {"trainer.resourcesPerNode": None}),
    ("budget", a_plan(a_run(budget=RunBudget(wall_seconds=90.5))), {"activeDeadlineSeconds": 91}),
    (
        "program",
        a_plan(),
        {
            "trainer.args": [
                *("python3", "train.py", "--out=$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1/checkpoints"),
                *("--steps=300", "--literal={other}"),
            ]
        },
    ),
]


@pytest.mark.parametrize(("plan", "wanted"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
def test_fields_of_the_trainjob(plan: AttemptPlan, wanted: dict[str, Any]) -> None:
    spec = trainjob(plan)[1]["spec"]
    found = {path: spec.get(path) or spec["trainer"].get(path.partition(".")[2]) for path in wanted}
    assert found == wanted


def test_the_launcher_is_the_command_and_the_program_its_arguments() -> None:
    trainer = trainjob(a_plan())[1]["spec"]["trainer"]
    assert trainer["command"][:3] == ["python3", "-I", "-S"]
    assert trainer["command"].count("--") == 1
    assert trainer["command"][-1] == "--"


def test_variables_of_the_profile_stand_in_the_trainjob_and_ours_in_the_runtime() -> None:
    runtime, job = trainjob(a_gpu_plan(), "/ckpt/step-5", "5")
    assert job["spec"]["trainer"]["env"] == [
        {"name": "PRIMUS_RESUME_FROM", "value": "/ckpt/step-5"},
        {"name": "PRIMUS_RESUME_STEP", "value": "5"},
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
    ]
    assert "--secret-environment=HF_TOKEN" in job["spec"]["trainer"]["command"]
    names = [item["name"] for item in container(ranks(runtime))["env"]]
    assert "PRIMUS_COORDINATOR_URL" in names
    assert not {"OMP_NUM_THREADS", "HF_TOKEN", "PRIMUS_RESUME_FROM"} & set(names)


def test_devices_and_nearness_stand_in_the_runtime() -> None:
    job = ranks(trainjob(a_gpu_plan())[0])
    inner = container(job)
    assert inner["name"] == TRAINJOB_CONTAINER
    assert inner["resources"]["limits"] == {"memory": "1Ti", "amd.com/gpu": "8", "rdma/hca": "8"}
    wish = job["template"]["spec"]["template"]["metadata"]["annotations"]
    assert wish == {"kueue.x-k8s.io/podset-required-topology": labels.RACK}


def test_kueue_queues_the_trainjob_and_nothing_else() -> None:
    """A queue on the JobSet as well would make Kueue and the controller suspend and resume it against each other."""
    runtime, job = trainjob(a_gpu_plan())
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    template = runtime["spec"]["template"]
    for marks in (runtime["metadata"]["labels"], template["metadata"]["labels"]):
        assert not [key for key in marks if key.startswith("kueue")]


def test_an_ended_jobset_is_kept() -> None:
    """The controller would make that of a failed TrainJob anew as soon as it is gone."""
    assert "ttlSecondsAfterFinished" not in trainjob(a_plan())[0]["spec"]["template"]["spec"]


def test_no_framework_of_kubeflow_starts_the_ranks() -> None:
    assert trainjob(a_gpu_plan(5))[0]["spec"]["mlPolicy"] == {"numNodes": 5}


def test_helping_roles_stay_in_the_runtime_as_they_are() -> None:
    jobs = trainjob(a_gpu_plan())[0]["spec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["coordinator", "trainer", "feeder"]
    assert container(jobs[2])["name"] == "feeder"
    assert container(jobs[2])["image"] == "example.org/feeder:1"


def _role(**changes: Any) -> Role:
    return TRAINER.model_copy(update=changes)


def _secrets(count: int) -> tuple[SecretVariable, ...]:
    return tuple(SecretVariable(name=f"S{number}", secret="s", key="k") for number in range(count))


REFUSED: list[tuple[str, str, AttemptPlan]] = [
    ("roles[0].command", "into a file", a_plan(a_run(roles=(_role(command=("a",) * (MOST_ITEMS + 1)),)))),
    ("roles[0].environment", "image", a_plan(a_run(roles=(_role(secret_environment=_secrets(MOST_ITEMS - 2)),)))),
    ("roles[0].environment.A", "Argo", a_plan(a_run(roles=(_role(environment={"A": "{{b}}"}),)))),
    ("roles[0].resources.gpus", "offers 0", a_plan(a_run(roles=(_role(resources=Resources(gpus=1)),)))),
    ("roles[0].on_failure", "fail_attempt", a_plan(a_run(roles=(_role(on_failure="ignore"),)))),
    ("nodes", "2 pods", a_plan(nodes=("node-0",))),
]


@pytest.mark.parametrize(("field", "advice", "plan"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_a_trainjob_cannot_hold_is_refused_by_its_field(field: str, advice: str, plan: AttemptPlan) -> None:
    with pytest.raises(ProfileError, match=advice) as error:
        trainjob(plan)
    assert error.value.field == field


def test_as_much_as_the_definition_takes_is_not_refused() -> None:
    role = _role(command=("a",) * MOST_ITEMS, environment={}, secret_environment=_secrets(MOST_ITEMS - 2))
    plan = a_plan(a_run(roles=(role,), topology=Placement(level="block")), a_cluster(queue="team"))
    assert [finding for one in trainjob(plan) for finding in lint(one, plan)] == []
