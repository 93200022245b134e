"""What a Prefect work pool makes of a flow run: a Job in our namespace that drives one run. Pure.

For sites whose runs shall each have a driver in a pod of its own: a worker of type `kubernetes` (prefect-kubernetes)
fills the template in. Only what its schema names can be set by whoever asks for runs.
"""

from __future__ import annotations

from typing import Any

from workflows.installation import CONTROL_IMAGE, DRIVER, HOME, SITE, USER, driver_environment
from workflows.installation_pods import (
    NAMESPACE,
    PART,
    Manifest,
    container_of,
    empty_volume,
    mounts_of,
    restricted_pod,
)
from workflows.workspace import RUNNER

KEEP_S = 86400
"""A Job that ended can be looked at for a day."""
CONTAINER = "prefect-job"
"""The worker refuses any other name (prefect-kubernetes 0.8.0)."""
POD_START_S = 300
"""For the pod to start: the image has half a gigabyte."""


def work_pool() -> Manifest:
    """The base job template: what the worker fills in, and the schema of what may be set."""
    return {
        "job_configuration": {
            "command": "{{ command }}",
            "env": "{{ env }}",
            "labels": "{{ labels }}",
            "name": "{{ name }}",
            "namespace": NAMESPACE,
            "job_manifest": _job(),
            "pod_watch_timeout_seconds": POD_START_S,
            "stream_output": False,
        },
        "variables": {"type": "object", "properties": _variables(), "additionalProperties": False},
    }


def _job() -> Manifest:
    container = {
        **container_of(CONTAINER, "{{ image }}", ["python3", "-m", "deployments.flow_run"], driver_environment()),
        "args": "{{ command }}",  # the worker insists on filling it in; the driver reads its flow run's id only
        "resources": {
            "requests": {"cpu": "{{ cpu_request }}", "memory": "{{ memory_request }}"},
            "limits": {"memory": "{{ memory_limit }}"},
        },
        "volumeMounts": mounts_of({"home": HOME, "tmp": "/tmp", "site": "/etc/primus"}),  # noqa: S108 - the pod's own
    }
    pod: Manifest = {
        "serviceAccountName": RUNNER,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(USER),
        "parallelism": 1,  # the worker insists on both here, Kubernetes passes over them
        "completions": 1,
        "restartPolicy": "Never",  # whoever serves the ledger's runs takes over: the runner
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [empty_volume("home"), empty_volume("tmp"), {"name": "site", "configMap": {"name": SITE}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"labels": "{{ labels }}", "namespace": NAMESPACE, "generateName": "{{ name }}-"},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": "{{ finished_job_ttl }}",
            "template": {"metadata": {"labels": {**PART, **DRIVER}}, "spec": pod},
        },
    }


def _variables() -> dict[str, Any]:
    def text(title: str, what: str, default: str | None = None) -> dict[str, Any]:
        return {"title": title, "description": what, "type": "string"} | (
            {} if default is None else {"default": default}
        )

    quantity = "Kubernetes quantity, e.g. 512Mi."
    words = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "name": text("Name", "Beginning of the Job's name; the worker names it after the flow run."),
        "command": text("Command", "Not used: the driver's command is fixed."),
        "env": {"title": "Environment", "description": "Variables beside those of the installation.", **words},
        "labels": {"title": "Labels", "description": "Labels of the Job.", **words},
        "image": text("Image", "The control image, as the site's registry calls it.", CONTROL_IMAGE),
        "finished_job_ttl": {
            "title": "Finished Job TTL",
            "description": "Seconds for which a Job is kept that ended.",
            "type": "integer",
            "default": KEEP_S,
        },
        "cpu_request": text("CPU Request", "Kubernetes quantity, e.g. 250m.", "250m"),
        "memory_request": text("Memory Request", quantity, "512Mi"),
        "memory_limit": text("Memory Limit", quantity, "2Gi"),
    }
