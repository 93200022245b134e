"""What the field tables cannot say about pods and JobSets: names that match, one source a volume, limits of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from profiles.errors import Refused
from tasks.embedded.objects import Object, entries, section

NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")


def check_pod_spec(spec: Object, path: str) -> None:
    """Check a pod's specification whose fields are known to have the right types.

    Raises:
        Refused: by the path of what is wrong.
    """
    if not entries(spec, "containers"):
        raise Refused(f"{path}.containers", "at least one container is needed")
    _one_of(spec, "restartPolicy", ("Always", "OnFailure", "Never"), path)
    volumes = _volumes(spec, path)
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(entries(spec, group)):
            where = f"{path}.{group}[{index}]"
            if container["name"] in names or not NAME.match(container["name"]):
                raise Refused(f"{where}.name", f"{container['name']!r} stands twice or is no name")
            names.add(container["name"])
            _container(container, volumes, where)


def _one_of(value: Object, field: str, allowed: Sequence[str], path: str) -> None:
    found = value.get(field)
    if found is not None and found not in allowed:
        raise Refused(f"{path}.{field}", f"{found!r} is none of {', '.join(allowed)}")


def _volumes(spec: Object, path: str) -> Mapping[str, Object]:
    volumes: dict[str, Object] = {}
    for index, volume in enumerate(entries(spec, "volumes")):
        where = f"{path}.volumes[{index}]"
        if len(volume) != 2:
            raise Refused(where, f"one source is needed beside the name, found {len(volume) - 1}")
        if volume["name"] in volumes:
            raise Refused(f"{where}.name", f"{volume['name']!r} stands twice")
        volumes[volume["name"]] = volume
    return volumes


def _container(container: Object, volumes: Mapping[str, Object], path: str) -> None:
    for index, mount in enumerate(entries(container, "volumeMounts")):
        if mount["name"] not in volumes:
            raise Refused(f"{path}.volumeMounts[{index}].name", f"the pod has no volume {mount['name']!r}")
    for index, entry in enumerate(entries(container, "env")):
        where = f"{path}.env[{index}]"
        if "valueFrom" in entry and (entry.get("value") or len(section(entry, "valueFrom")) != 1):
            raise Refused(where, "either value or one source in valueFrom")
        if "=" in entry["name"] or "\0" in entry["name"]:
            raise Refused(f"{where}.name", f"{entry['name']!r} is no name of a variable")
    for index, source in enumerate(entries(container, "envFrom")):
        if len(source.keys() - {"prefix"}) != 1:
            raise Refused(f"{path}.envFrom[{index}]", "one of secretRef and configMapRef is needed")


def check_jobset(manifest: Object) -> None:
    """Check a JobSet whose fields are known to have the right types.

    Raises:
        Refused: by the path of what is wrong.
    """
    spec = section(manifest, "spec")
    jobs = entries(spec, "replicatedJobs")
    if not jobs:
        raise Refused("spec.replicatedJobs", "at least one replicated job is needed")
    names: list[str] = [job["name"] for job in jobs]
    for index, job in enumerate(jobs):
        path = f"spec.replicatedJobs[{index}]"
        if names.count(job["name"]) > 1:
            raise Refused(f"{path}.name", f"{job['name']!r} stands twice")
        _job(manifest["metadata"].get("name") or "", job, f"{path}.template.spec")
    _policies(spec, names)


def _policies(spec: Object, names: Sequence[str]) -> None:
    if section(spec, "failurePolicy").get("maxRestarts"):
        reason = "only 0: every attempt is a new JobSet, so that old and new ranks never overlap"
        raise Refused("spec.failurePolicy.maxRestarts", reason)
    _one_of(section(spec, "startupPolicy"), "startupPolicyOrder", ("AnyOrder",), "spec.startupPolicy")
    _one_of(section(spec, "successPolicy"), "operator", ("All", "Any"), "spec.successPolicy")
    for index, name in enumerate(section(spec, "successPolicy").get("targetReplicatedJobs") or []):
        if name not in names:
            raise Refused(f"spec.successPolicy.targetReplicatedJobs[{index}]", f"there is no replicated job {name!r}")
    _one_of(section(spec, "coordinator"), "replicatedJob", names, "spec.coordinator")


def _job(jobset: str, job: Object, path: str) -> None:
    spec = section(job, "template", "spec")
    template = section(spec, "template", "spec")
    _one_of(spec, "completionMode", ("Indexed",), path)
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        if (spec.get(field) or 0) < 0:
            raise Refused(f"{path}.{field}", "must not be negative")
    if template.get("restartPolicy") not in ("OnFailure", "Never"):
        raise Refused(f"{path}.template.spec.restartPolicy", "must be OnFailure or Never")
    count = max(spec.get("completions") or spec.get("parallelism") or 1, 1)
    longest = f"{jobset}-{job['name']}-{(job.get('replicas') or 1) - 1}-{count - 1}-xxxxx"
    if len(longest) > 63:
        raise Refused("metadata.name", f"pods would be named {longest}, longer than 63 characters; shorten the name")
    _pod_failure_policy(spec, template, path)
    check_pod_spec(template, f"{path}.template.spec")


def _pod_failure_policy(spec: Object, template: Object, path: str) -> None:
    for index, rule in enumerate(entries(spec, "podFailurePolicy", "rules")):
        where = f"{path}.podFailurePolicy.rules[{index}]"
        _one_of(rule, "action", ("FailJob", "Ignore", "Count"), where)
        if ("onExitCodes" in rule) == bool(rule.get("onPodConditions")):
            raise Refused(where, "one of onExitCodes and onPodConditions is needed")
        _one_of(section(rule, "onExitCodes"), "operator", ("In", "NotIn"), f"{where}.onExitCodes")
    if spec.get("podFailurePolicy") and template.get("restartPolicy") != "Never":
        raise Refused(f"{path}.podFailurePolicy", "needs restartPolicy Never, as Kubernetes says")
