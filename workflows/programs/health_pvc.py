"""The check of the node daemon that storage can be had: a small claim is made, must be bound, and goes again.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Optional
from urllib.parse import quote

from workflows.programs.health_api import Api, ApiError
from workflows.programs.health_words import FAIL, PASS, UNKNOWN, Result

BOUND_SECONDS = 90.0
"""Autopilot waits 30 s, and 60 s more while the claim is pending."""
LOOK_SECONDS = 0.5
CLASS = "PVC_TEST_STORAGE_CLASS"


def pvc(
    api: Optional[Api],
    namespace: str,
    node: str,
    storage_class: str,
    wait: Callable[[float], Any] = time.sleep,
    bound_seconds: float = BOUND_SECONDS,
) -> Result:
    """Whether a claim of the storage class is bound in time; the claim is removed in any case."""
    if not storage_class:
        return Result("pvc", UNKNOWN, f"Storage class not set. Cannot run. Name one in {CLASS}.")
    if api is None:
        return Result("pvc", UNKNOWN, "Create PVC Failed: this daemon has no Kubernetes API")
    name = claim_name(node)
    path = f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims"
    try:
        if _late(api, storage_class):
            return Result("pvc", UNKNOWN, f"{storage_class} binds a claim only where a pod uses it: not tested")
        api.delete(f"{path}/{name}")  # of a daemon that was killed meanwhile
        api.create(path, _claim(name, storage_class))
    except ApiError as error:
        return Result("pvc", UNKNOWN, f"Create PVC Failed: {error}")
    try:
        return _bound(api, f"{path}/{name}", wait, bound_seconds)
    finally:
        try:
            api.delete(f"{path}/{name}")
        except ApiError as error:
            print(f"health: the claim {name} is left over: {error}", flush=True)


def _bound(api: Api, path: str, wait: Callable[[float], Any], seconds: float) -> Result:
    phase, why = "", ""
    for _ in range(max(1, int(seconds / LOOK_SECONDS))):
        try:
            phase, why = str(api.get(path).get("status", {}).get("phase", "")), ""
        except ApiError as error:
            why = str(error)
        if phase == "Bound":
            return Result("pvc", PASS)
        wait(LOOK_SECONDS)
    if why:
        return Result("pvc", UNKNOWN, why)
    return Result("pvc", FAIL, f"the claim is {phase or 'without a phase'} after {seconds:g} s")


def _late(api: Api, storage_class: str) -> bool:
    try:
        found = api.get(f"/apis/storage.k8s.io/v1/storageclasses/{quote(storage_class, safe='')}")
    except ApiError as error:
        if error.code == 403:  # a right that older installations do not have
            return False
        raise
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def claim_name(node: str) -> str:
    """The same for each test of a node, so that one that was left over is found again."""
    return f"autopilot-pvc-{re.sub(r'[^a-z0-9-]+', '-', node.lower())}"[:63].rstrip("-")


def _claim(name: str, storage_class: str) -> Dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "primus-health"}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Mi"}},
            "storageClassName": storage_class,
        },
    }
