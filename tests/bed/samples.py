"""Small things to run on the bed, and questions about what became of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from profiles.workspace import Flavor, Quota, WorkspaceProfile
from tests.bed import artifacts, tenancy
from tests.bed.api import Manifest, path_of
from tests.bed.commands import until
from tests.bed.kwok import ANNOTATION
from tests.bed.manifests import SECONDS_ANNOTATION
from tests.bed.options import REAL_LABEL
from tests.bed.up import Bed
from tests.support.running.waiting import patience
from workflows.platform.workspace import PIPELINES, workspace

QUEUE = "tests"
BUSYBOX, PYTHON = "bed.local/busybox:1", "bed.local/python:1"
LIMIT_S = patience(90.0)


def played(cpus: int, memory: str = "64Gi", **cpu_limits: str) -> Flavor:
    """The nodes that KWOK plays, as the bed's own workspace names them, with a quota of so many CPUs."""
    return Flavor(
        name="played",
        node_labels={REAL_LABEL: "kwok"},
        taints=(f"{ANNOTATION}=fake:NoSchedule",),
        quotas={"cpu": Quota(nominal=str(cpus), **cpu_limits), "memory": Quota(nominal=memory)},
    )


@contextmanager
def workspaces(bed: Bed, *profiles: WorkspaceProfile) -> Generator[None]:
    """Workspaces for a while."""
    for profile in profiles:
        until(f"{profile.name} free", lambda name=profile.name: bed.find(namespace(name)) is None, LIMIT_S, 0.3)
        tenancy.apply(bed.api, [*workspace(profile), artifacts.keys(profile.name)])
    try:
        yield
    finally:
        for profile in profiles:
            for item in bed.api.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{profile.name}/jobsets")["items"]:
                bed.api.delete(jobset_named(item["metadata"]["name"], profile.name))
            bed.api.delete(namespace(profile.name))
        for profile in profiles:
            queue = {"apiVersion": tenancy.workspace.KUEUE, "kind": "ClusterQueue"}
            bed.api.delete({**queue, "metadata": {"name": profile.name}})


def namespace(name: str) -> Manifest:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod_spec(image: str, command: Sequence[str], **requests: str) -> dict[str, Any]:
    """What a pod runs, with its requests by resource; extended resources are limits as well."""
    resources = {"requests": requests, "limits": {key: value for key, value in requests.items() if "/" in key}}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": image, "command": list(command), "resources": resources}],
    }


def pod(name: str, space: str, spec: dict[str, Any], node: str = "") -> Manifest:
    """A pod, on one node or on any."""
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    about = {"name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {**spec, **where}}


def jobset_named(name: str, space: str) -> Manifest:
    """Enough of a JobSet to find it."""
    about = {"name": name, "namespace": space}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about}


def jobset(name: str, space: str, pods: int, spec: dict[str, Any], queued: str = "", seconds: int = 600) -> Manifest:
    """A JobSet of one group `w` of so many pods.

    Args:
        queued: name of a priority; "": not Kueue's business.
        seconds: how long KWOK plays its pods.
    """
    wanted = jobset_named(name, space)
    if queued:
        wanted["metadata"]["labels"] = {
            "kueue.x-k8s.io/queue-name": QUEUE,
            "kueue.x-k8s.io/priority-class": queued,
        }
    template = {"metadata": {"annotations": {SECONDS_ANNOTATION: f"{seconds}s"}}, "spec": spec}
    job = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    group = {"name": "w", "replicas": 1, "template": {"spec": job}}
    wanted["spec"] = {"suspend": bool(queued), "replicatedJobs": [group]}
    return wanted


def two_steps(name: str, space: str) -> Manifest:
    """A workflow whose first step says a word that its second one must be given."""
    said = {"parameters": [{"name": "word", "valueFrom": {"path": "/tmp/word"}}]}
    passed = {"parameters": [{"name": "word", "value": "{{steps.say.outputs.parameters.word}}"}]}
    steps = [[{"name": "say", "template": "say"}], [{"name": "hear", "template": "hear", "arguments": passed}]]
    shell = {"image": BUSYBOX, "command": ["sh", "-c"]}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "entrypoint": "both",
            "serviceAccountName": PIPELINES,
            "templates": [
                {"name": "both", "steps": steps},
                {"name": "say", "container": {**shell, "args": ["echo -n heard >/tmp/word"]}, "outputs": said},
                {
                    "name": "hear",
                    "inputs": {"parameters": [{"name": "word"}]},
                    "container": {**shell, "args": ["echo -n {{inputs.parameters.word}} | tee /tmp/word"]},
                    "outputs": said,
                },
            ],
        },
    }


def conditions(found: Manifest | None) -> dict[str, str]:
    """Reasons of the conditions that are true, by type."""
    listed: list[Manifest] = (found or {}).get("status", {}).get("conditions") or []
    return {one["type"]: one.get("reason", "") for one in listed if one["status"] == "True"}


def workloads(bed: Bed, space: str) -> dict[str, Manifest]:
    """Kueue's workloads of a namespace, by their JobSet's name."""
    found = bed.api.get(f"/apis/{tenancy.workspace.KUEUE}/namespaces/{space}/workloads")["items"]
    return {owner["name"]: item for item in found for owner in item["metadata"].get("ownerReferences", [])}


def log(bed: Bed, space: str, name: str) -> str:
    """What a pod printed."""
    return bed.api.get(f"/api/v1/namespaces/{space}/pods/{name}/log")


def pods(bed: Bed, space: str, selector: str = "") -> list[Manifest]:
    """Pods of a namespace."""
    return bed.api.get(f"/api/v1/namespaces/{space}/pods{f'?labelSelector={selector}' if selector else ''}")["items"]


def wait_phase(bed: Bed, wanted: Manifest, phase: str) -> Manifest:
    """Wait for a phase of a pod or workflow; the object then."""
    name = wanted["metadata"]["name"]
    path = path_of(wanted)
    until(f"{name} {phase}", lambda: bed.api.get(path).get("status", {}).get("phase") == phase, LIMIT_S, 0.2)
    return bed.api.get(path)
