"""The JobSet of an attempt: one test a promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiles.cluster import Pool
from profiles.errors import ProfileError
from profiles.run import Placement, Resources, Role, SecretVariable
from tests.support.builders.attempt_plans import AMD, TRAINER, a_cluster, a_gpu_plan, a_plan, a_run
from workflows import labels
from workflows.attempt.jobset import coordinator_host, jobset
from workflows.attempt.pods import NODE_LIST_LIMIT
from workflows.programs.runtime.report_token import SECRETS


def job(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    return next(item["template"]["spec"] for item in manifest["spec"]["replicatedJobs"] if item["name"] == role)


def pod(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    return job(manifest, role)["template"]["spec"]


def environment(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    return {
        item["name"]: item.get("value", item.get("valueFrom")) for item in pod(manifest, role)["containers"][0]["env"]
    }


def expressions(manifest: dict[str, Any], role: str) -> list[dict[str, Any]]:
    affinity = pod(manifest, role).get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    return [item for term in terms["nodeSelectorTerms"] for item in term["matchExpressions"]]


def test_all_pods_of_the_deciding_role_start_at_once_and_only_once() -> None:
    trainer = job(jobset(a_plan()), "trainer")
    assert (trainer["parallelism"], trainer["completions"], trainer["completionMode"]) == (2, 2, "Indexed")
    assert (trainer["backoffLimit"], trainer["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert [rule["action"] for rule in trainer["podFailurePolicy"]["rules"]] == ["FailJob", "FailJob"]


def test_the_deciding_role_alone_decides_and_nothing_restarts() -> None:
    spec = jobset(a_gpu_plan())["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["trainer"]}
    assert spec["failurePolicy"] == {"maxRestarts": 0}


def test_the_coordinator_restarts_on_its_own_without_ending_the_attempt() -> None:
    coordinator = job(jobset(a_plan()), "coordinator")
    assert coordinator["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert coordinator["backoffLimit"] > 10_000
    assert "podFailurePolicy" not in coordinator


@pytest.mark.parametrize(
    ("on_failure", "restart_policy", "actions"),
    [("fail_attempt", "Never", ["FailJob", "FailJob"]), ("restart", "OnFailure", []), ("ignore", "Never", ["Ignore"])],
)
def test_a_helping_role_ends_as_its_profile_says(on_failure: Any, restart_policy: str, actions: list[str]) -> None:
    helper = Role(name="feeder", image="f:1", command=("feed",), on_failure=on_failure)
    run = a_run(roles=(TRAINER.model_copy(update={"decides": True}), helper))
    found = job(jobset(a_plan(run)), "feeder")
    assert found["template"]["spec"]["restartPolicy"] == restart_policy
    assert [rule["action"] for rule in found.get("podFailurePolicy", {"rules": []})["rules"]] == actions


@pytest.mark.parametrize("engine", ["embedded", "kubernetes"])
def test_the_coordinator_stands_on_a_pool_of_its_own_where_there_is_one(engine: str) -> None:
    own = Pool(
        name="control", hardware="cpu", nodes=3, labels={"example.org/kind": "control"}, taints=("control:NoExecute",)
    )
    cluster = a_cluster(engine=engine)
    cluster = cluster.model_copy(update={"pools": (*cluster.pools, own), "coordinator_pool": "control"})
    made = jobset(a_plan(cluster=cluster, avoid_nodes=("bad-1",)))
    found = pod(made, "coordinator")
    ours = {labels.POOL: "control"} if engine == "embedded" else {}
    assert found["nodeSelector"] == {**ours, "example.org/kind": "control"}
    assert found["tolerations"] == [{"key": "control", "operator": "Exists", "effect": "NoExecute"}]
    assert "node-0" not in str(found["affinity"]), "the nodes of the gang are not for it"
    assert "bad-1" in str(found["affinity"])
    ranks = pod(made, "trainer")
    assert ranks["nodeSelector"] == {**({labels.POOL: "main"} if ours else {}), "example.org/kind": "cpu"}
    assert "node-0" in str(ranks["affinity"])


def test_a_pool_that_is_the_runs_own_changes_nothing() -> None:
    cluster = a_cluster()
    named = cluster.model_copy(update={"coordinator_pool": cluster.pools[0].name})
    assert pod(jobset(a_plan(cluster=named)), "coordinator") == pod(jobset(a_plan(cluster=cluster)), "coordinator")


def test_the_coordinator_is_reached_by_the_name_that_jobset_gives_it() -> None:
    plan = a_plan()
    assert coordinator_host(plan) == "demo-1-a1-coordinator-0-0.demo-1-a1"
    assert environment(jobset(plan), "trainer")["PRIMUS_COORDINATOR_URL"] == f"http://{coordinator_host(plan)}:29400"


def test_paths_are_written_by_the_variable_of_their_mount() -> None:
    found = environment(jobset(a_plan()), "trainer")
    assert found["PRIMUS_FOLDER_STORAGE_0"] == "/shared"
    assert found["PRIMUS_CHECKPOINT_DIR"] == "$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1/checkpoints"


def test_variables_stand_before_those_that_name_them() -> None:
    """Kubernetes expands `$(A)` only where A was defined earlier in the list."""
    for role in ("trainer", "coordinator"):
        seen: set[str] = set()
        for name, value in environment(jobset(a_plan()), role).items():
            for part in str(value).split("$(")[1:]:
                assert part.partition(")")[0] in seen, name
            seen.add(name)


def test_the_token_is_a_file_of_its_secret_and_stands_in_no_environment() -> None:
    gang = jobset(a_gpu_plan())
    for role in ("trainer", "feeder", "coordinator"):
        [container] = pod(gang, role)["containers"]
        assert environment(gang, role)["PRIMUS_TOKEN_FILE"] == "$(PRIMUS_FOLDER_TOKEN)/token"
        assert {"name": "token", "mountPath": "/primus/token"} in container["volumeMounts"]
        secret = {"secretName": labels.secret_name("demo-1", 1)}
        assert {"name": "token", "secret": secret} in pod(gang, role)["volumes"]
    assert "secretKeyRef" not in str(jobset(a_plan())), "only what a profile asks for by `secret_environment`"


@pytest.mark.parametrize("name", SECRETS)
def test_no_profile_names_another_token(name: str) -> None:
    with pytest.raises(ProfileError, match=f"environment.{name}: is set twice: it is ours"):
        jobset(a_plan(a_run(roles=(TRAINER.model_copy(update={"environment": {name: "x"}}),))))


def test_gpus_and_nics_are_requested_with_equal_limits() -> None:
    found = pod(jobset(a_gpu_plan()), "trainer")["containers"][0]
    devices = {"amd.com/gpu": "8", "rdma/hca": "8"}
    assert found["resources"]["limits"] == {"memory": "1Ti", **devices}
    assert found["resources"]["requests"] == {"cpu": "96", "memory": "1Ti", **devices}
    assert found["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert "resources" not in pod(jobset(a_gpu_plan()), "feeder")["containers"][0]


def test_the_grace_period_leaves_time_after_saving() -> None:
    run = a_run(save_grace_seconds=20.5)
    assert pod(jobset(a_plan(run)), "trainer")["terminationGracePeriodSeconds"] == 31


def test_shared_memory_is_a_memory_volume_of_the_asked_size() -> None:
    volumes = {item["name"]: item for item in pod(jobset(a_gpu_plan()), "trainer")["volumes"]}
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Gi"}
    mounts = {
        item["name"]: item["mountPath"]
        for item in pod(jobset(a_gpu_plan()), "trainer")["containers"][0]["volumeMounts"]
    }
    assert mounts["shared-memory"] == "/dev/shm"


def test_pods_run_on_the_chosen_nodes_and_never_on_suspects() -> None:
    manifest = jobset(a_plan(avoid_nodes=("node-9",)))
    chosen = {"key": labels.HOSTNAME, "operator": "In", "values": ["node-0", "node-1"]}
    avoided = {"key": labels.HOSTNAME, "operator": "NotIn", "values": ["node-9"]}
    assert expressions(manifest, "trainer") == [chosen, avoided]
    assert expressions(manifest, "coordinator") == [chosen, avoided]


def test_helping_roles_run_anywhere_but_on_suspects() -> None:
    avoided = {"key": labels.HOSTNAME, "operator": "NotIn", "values": ["node-9"]}
    assert expressions(jobset(a_gpu_plan(avoid_nodes=("node-9",))), "feeder") == [avoided]


def test_without_chosen_nodes_the_pool_decides() -> None:
    manifest = jobset(a_plan(nodes=()))
    assert expressions(manifest, "trainer") == []
    assert pod(manifest, "trainer")["nodeSelector"] == {labels.POOL: "main", "example.org/kind": "cpu"}


def test_on_kubernetes_only_the_pools_own_labels_select() -> None:
    assert pod(jobset(a_gpu_plan()), "trainer")["nodeSelector"] == {"example.org/kind": "mi300x"}


def test_one_pod_of_a_role_a_node() -> None:
    rules = pod(jobset(a_plan()), "trainer")["affinity"]["podAntiAffinity"]
    (term,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == labels.HOSTNAME
    assert term["labelSelector"]["matchLabels"] == {
        labels.RUN: "demo-1",
        labels.ATTEMPT: "1",
        labels.ROLE: "trainer",
    }


def test_a_gang_too_large_for_node_lists_is_placed_by_its_pool() -> None:
    manifest = jobset(a_gpu_plan(NODE_LIST_LIMIT + 1, avoid_nodes=("bad",)))
    assert [item["operator"] for item in expressions(manifest, "trainer")] == ["NotIn"]
    assert "podAntiAffinity" not in pod(manifest, "trainer")["affinity"]


def test_taints_of_the_pool_are_tolerated() -> None:
    assert pod(jobset(a_plan()), "trainer")["tolerations"] == [
        {"key": "example.org/gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "example.org/shared", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_kueue_is_told_queue_priority_and_topology() -> None:
    manifest = jobset(a_gpu_plan())
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    wish = job(manifest, "trainer")["template"]["metadata"]["annotations"]
    assert wish == {"kueue.x-k8s.io/podset-required-topology": labels.RACK}
    assert "annotations" not in job(manifest, "feeder")["template"]["metadata"]
    assert pod(manifest, "trainer")["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("named", "returns", "carried"),
    [("high", False, "high"), ("high", True, "high-returning"), ("low", True, "low"), ("", True, "returning")],
    ids=["at first", "after a failure", "a cluster without a sister", "none named"],
)
def test_an_attempt_that_answers_a_failure_waits_above_its_equals(named: str, returns: bool, carried: str) -> None:
    plan = a_gpu_plan()
    sisters = {"high": "high-returning", "": "returning"}
    cluster = plan.resolved.cluster.model_copy(update={"returning_priorities": sisters})
    run = plan.resolved.run.model_copy(update={"priority": named})
    manifest = jobset(
        replace(plan, resolved=plan.resolved.model_copy(update={"run": run, "cluster": cluster}), returns=returns)
    )
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == carried
    assert pod(manifest, "trainer").get("priorityClassName", "") == named, "the scheduler's order stays the run's own"


def test_a_wish_for_a_block_is_preferred_only() -> None:
    plan = a_plan(a_run(topology=Placement(level="block")))
    wish = job(jobset(plan), "trainer")["template"]["metadata"]["annotations"]
    assert wish == {"kueue.x-k8s.io/podset-preferred-topology": labels.BLOCK}


def test_a_lost_mount_is_no_empty_folder_on_real_nodes() -> None:
    kinds = {
        plan.resolved.cluster.engine: pod(jobset(plan), "trainer")["volumes"][0]["hostPath"]["type"]
        for plan in (a_plan(), a_gpu_plan())
    }
    assert kinds == {"embedded": "DirectoryOrCreate", "kubernetes": "Directory"}


def test_placeholders_are_filled_but_for_those_of_the_launcher() -> None:
    command = pod(jobset(a_plan()), "trainer")["containers"][0]["command"]
    assert command[command.index("--") + 1 :] == [
        *("python3", "train.py", "--out=$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1/checkpoints"),
        *("--steps=300", "--literal={other}"),
    ]
    assert "--resume-argument={resume_from}" in command


def test_the_fencing_number_changes_metadata_only() -> None:
    """So a driver that adopts the attempt may apply it again: the specification is immutable."""
    first, second = jobset(a_plan(fencing=1)), jobset(a_plan(fencing=2))
    assert first["metadata"]["annotations"] != second["metadata"]["annotations"]
    assert first["spec"] == second["spec"]


REFUSED: list[tuple[str, Any]] = [
    ("name", lambda: a_plan(run=a_run()).__class__(a_plan().resolved, "1-demo", 1)),
    ("nodes", lambda: a_plan(nodes=("node-0",))),
    ("roles[0].command[1]", lambda: a_plan(a_run(roles=(_role(command=("a", "{{ b }}")),)))),
    ("roles[0].environment.A", lambda: a_plan(a_run(roles=(_role(environment={"A": "{{b}}"}),)))),
    ("roles[0].environment.PRIMUS_RUN", lambda: a_plan(a_run(roles=(_role(environment={"PRIMUS_RUN": "x"}),)))),
    ("roles[0].environment.A", lambda: a_plan(a_run(roles=(_twice(),)))),
    ("roles[0].resources.gpus", lambda: a_plan(a_run(roles=(_role(resources=Resources(gpus=1)),)))),
    ("roles[0].resources.nics", lambda: a_plan(a_run(roles=(_role(resources=Resources(nics=9)),)), hardware=AMD)),
    ("roles[0].on_failure", lambda: a_plan(a_run(roles=(_role(on_failure="ignore"),)))),
]


def _role(**changes: Any) -> Role:
    return TRAINER.model_copy(update=changes)


def _twice() -> Role:
    return _role(environment={"A": "1"}, secret_environment=(SecretVariable(name="A", secret="s", key="k"),))


@pytest.mark.parametrize(
    ("field", "plan"), REFUSED, ids=[f"{index}-{field}" for index, (field, _) in enumerate(REFUSED)]
)
def test_what_cannot_be_written_down_is_refused_by_its_field(field: str, plan: Any) -> None:
    with pytest.raises(ProfileError) as error:
        jobset(plan())
    assert error.value.field == field


def test_pull_secrets_and_user_of_the_cluster_reach_the_pods() -> None:
    plan = a_plan(cluster=a_cluster(run_as_user=1000, image_pull_secrets=("pull",)))
    found = pod(jobset(plan), "trainer")
    assert found["imagePullSecrets"] == [{"name": "pull"}]
    assert found["securityContext"]["runAsUser"] == 1000
