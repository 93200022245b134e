"""The shipped work pool's Job is one that a cluster takes, as the worker of prefect-kubernetes 0.8.0 would send it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prefect.utilities.templating import apply_values

from tests.bed.api import Manifest, RefusedError
from tests.bed.layout import ROOT
from tests.bed.up import Bed
from workflows.platform.pod_shapes import NAMESPACE

POOL = ROOT / "deployments" / "kubernetes" / "work-pool.json"


def filled(**values: Any) -> Manifest:
    """The Job that a worker sends: defaults of the schema, then what was set, then the worker's own variables."""
    pool = json.loads(POOL.read_text())
    known = pool["variables"]["properties"]
    defaults = {name: one["default"] for name, one in known.items() if "default" in one}
    job: Manifest = apply_values(pool["job_configuration"], defaults | values)["job_manifest"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "PREFECT__FLOW_RUN_ID", "value": "6c1f"}, *container["env"]]
    container["args"] = ["prefect", "flow-run", "execute"]
    return job


def dry(bed: Bed, resource: str, manifest: Manifest) -> Manifest:
    """What the API server would have made of it."""
    group = "/apis/batch/v1" if resource == "jobs" else "/api/v1"
    return bed.api.request("POST", f"{group}/namespaces/{NAMESPACE}/{resource}?dryRun=All", manifest)


def a_pod(job: Manifest) -> Manifest:
    template = job["spec"]["template"]
    about = {**template["metadata"], "name": "dry", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}


def test_the_cluster_takes_the_job_and_its_pod(bed: Bed) -> None:
    job = filled(name="train-first", image="registry.example.org/control:1", memory_limit="4Gi")
    taken = dry(bed, "jobs", job)
    assert taken["metadata"]["name"].startswith("train-first-")
    assert (taken["spec"]["backoffLimit"], taken["spec"]["ttlSecondsAfterFinished"]) == (0, 86400)
    pod = dry(bed, "pods", a_pod(job))
    assert pod["spec"]["serviceAccountName"] == "primus-runner"
    [container] = pod["spec"]["containers"]
    assert container["image"] == "registry.example.org/control:1"
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told["PRIMUS_LEDGER_URL_FILE"] == "/run/primus/ledger-url"
    assert bed.find(a_pod(job)) is None, "it was a dry run"


def test_the_namespace_would_not_take_any_pod(bed: Bed) -> None:
    """The dry run above says something: what is less than `restricted` is refused by name."""
    pod = a_pod(filled(name="train-first"))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(RefusedError, match="allowPrivilegeEscalation"):
        dry(bed, "pods", pod)
