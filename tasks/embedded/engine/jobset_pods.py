"""The pod of one index of one job of a JobSet, with the labels, names and variables that JobSet 0.12 writes. Pure."""

from __future__ import annotations

import copy
import zlib
from typing import Any

from tasks.embedded.objects import entries, section

Object = dict[str, Any]
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet of generated names."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
JOBSET = "jobset.sigs.k8s.io/"


def create_pod(jobset: Object, replicated: Object, job_index: int, index: int, earlier: int) -> Object:
    """The complete manifest.

    Args:
        jobset: the whole object, with its uid.
        replicated: the entry of `replicatedJobs`.
        job_index: which of its replicas.
        index: completion index inside the job.
        earlier: how many pods this index had before; makes the name a new one.
    """
    metadata, role = jobset["metadata"], replicated["name"]
    template = copy.deepcopy(replicated["template"]["spec"]["template"])
    host = f"{metadata['name']}-{role}-{job_index}-{index}"
    identity = f"{metadata['uid']}/{host}/{earlier}"
    own: Object = section(template, "metadata")
    marks = _marks(jobset, replicated, job_index)
    spec: Object = template["spec"]
    spec["hostname"] = host
    network: Object = section(jobset["spec"], "network")
    spec["subdomain"] = network.get("subdomain") or metadata["name"]
    for container in [*entries(spec, "initContainers"), *spec["containers"]]:
        container["env"] = _with_index(entries(container, "env"))
    annotations = {**section(own, "annotations"), **marks, INDEX_ANNOTATION: str(index)}
    if network.get("enableDNSHostnames", True):
        annotations["primus-flows.io/hosts"] = metadata["uid"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{host}-{suffix(identity)}",
            "namespace": metadata.get("namespace", "default"),
            "labels": {**section(own, "labels"), **marks, **_job_labels(metadata, role, job_index, index)},
            "annotations": annotations,
        },
        "spec": spec,
    }


def suffix(text: str) -> str:
    """Five characters that are always the same for the same text."""
    number = zlib.crc32(text.encode())
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[digit]
    return letters


def _marks(jobset: Object, replicated: Object, job_index: int) -> dict[str, str]:
    replicas = 1 if replicated.get("replicas") is None else replicated["replicas"]
    marks = {
        "jobset-name": jobset["metadata"]["name"],
        "jobset-uid": jobset["metadata"]["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": str(replicas),
        "job-index": str(job_index),
        "restart-attempt": "0",
    }
    coordinator = jobset["spec"].get("coordinator")
    if coordinator:
        name, network = jobset["metadata"]["name"], section(jobset["spec"], "network")
        which = f"{coordinator.get('jobIndex') or 0}-{coordinator.get('podIndex') or 0}"
        host = f"{name}-{coordinator['replicatedJob']}-{which}.{network.get('subdomain') or name}"
        marks["coordinator"] = host
    return {JOBSET + key: value for key, value in marks.items()}


def _job_labels(metadata: Object, role: str, job_index: int, index: int) -> dict[str, str]:
    job = f"{metadata['name']}-{role}-{job_index}"
    return {"batch.kubernetes.io/job-name": job, "job-name": job, INDEX_ANNOTATION: str(index)}


def _with_index(env: list[Object]) -> list[Object]:
    if any(entry["name"] == "JOB_COMPLETION_INDEX" for entry in env):
        return env
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    return [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
