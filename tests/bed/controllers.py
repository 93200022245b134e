"""Argo Workflows, JobSet and Kueue: their definitions, rights and service accounts, then the programs themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from tests.bed import artifacts, manifests
from tests.bed.api import Api, Manifest
from tests.bed.certificates import encoded, write_kubeconfig
from tests.bed.commands import until
from tests.bed.layout import Cache, Folder
from tests.bed.options import NAMESPACE, Options
from tests.bed.plane import healthy, write
from tests.bed.processes import Processes, Program
from tests.bed.tenancy import request_token

JOBSET_PORT, KUEUE_PORT = 9443, 9444
ARGO_HEALTH_PORT, JOBSET_HEALTH_PORT, KUEUE_HEALTH_PORT = 6060, 8081, 8082
EXECUTOR_IMAGE = "bed.local/argoexec:1"


@dataclass(frozen=True)
class Place:
    """What every function here needs."""

    cache: Cache
    folder: Folder
    options: Options
    processes: Processes
    api: Api
    mark: Callable[[str], None]
    """Says that something is reached."""


def define(place: Place) -> list[Manifest]:
    """Definitions and rights; returns the webhooks, which must wait until their controllers answer."""
    authority = encoded(place.folder.certificates / "ca.crt")
    jobset = manifests.outside(manifests.load(place.cache, "jobset"), JOBSET_PORT, authority)
    kueue = manifests.outside(manifests.load(place.cache, "kueue"), KUEUE_PORT, authority)
    argo = manifests.load(place.cache, "argo")
    argo_definitions = manifests.load(place.cache, f"argo-crds-{place.options.crds}")
    namespaces = [_namespace(name) for name in ("argo", "jobset-system", "kueue-system")]
    place.api.ensure_all(namespaces)
    definitions = [*argo_definitions, *filter(manifests.is_definition, [*jobset, *kueue])]
    place.api.ensure_all(definitions, lanes=3)
    place.mark(f"{len(definitions)} custom resources defined")
    hooks = [manifest for manifest in [*jobset, *kueue] if manifests.is_webhook(manifest)]
    place.api.ensure_all(
        manifest
        for manifest in [*argo, *jobset, *kueue]
        if not manifests.is_definition(manifest)
        and not manifests.is_webhook(manifest)
        and manifest["kind"] != "Namespace"
    )
    until("custom resources established", lambda: _established(place.api, definitions), limit_s=60, every_s=0.2)
    place.mark("custom resources established, rights given")
    return hooks


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _established(api: Api, definitions: list[Manifest]) -> bool:
    wanted = {definition["metadata"]["name"] for definition in definitions}
    found = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?resourceVersion=0")["items"]
    there = {item["metadata"]["name"] for item in found if _is_established(item)}
    return wanted <= there


def _is_established(definition: Manifest) -> bool:
    conditions: list[Manifest] = definition.get("status", {}).get("conditions") or []  # null in the first moment
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def start(place: Place, hooks: list[Manifest]) -> None:
    """Start the three with their own service accounts; the webhooks come last, for they fail closed."""
    certificates = place.folder.settings / "webhook"
    certificates.mkdir(exist_ok=True)
    for ending in ("crt", "key"):
        shutil.copy(place.folder.certificates / f"webhook.{ending}", certificates / f"tls.{ending}")
    argo = account(place, "argo", "argo", "argo")
    place.api.ensure(_argo_settings(place.options))
    place.processes.start(_argo(place, argo))
    jobset = account(place, "jobset", "jobset-controller-manager", "jobset-system")
    place.processes.start(_jobset(place, jobset))
    kueue = account(place, "kueue", "kueue-controller-manager", "kueue-system")
    place.processes.start(_kueue(place, kueue))
    for name in ("workflow-controller", "jobset", "kueue"):
        until(f"{name} ready, see {place.processes.log(name)}", lambda name=name: ready(place.options, name))
    place.mark("Argo, JobSet and Kueue ready")
    place.api.ensure_all(hooks)


def ready(options: Options, name: str) -> bool:
    """Whether one of the three says that it is ready."""
    paths = {
        "workflow-controller": f"{ARGO_HEALTH_PORT}/healthz",
        "jobset": f"{JOBSET_HEALTH_PORT}/readyz",
        "kueue": f"{KUEUE_HEALTH_PORT}/readyz",
    }
    return healthy(f"http://{options.plane}:{paths[name]}")


def account(place: Place, name: str, service_account: str, namespace: str) -> str:
    """A kubeconfig with a token of a real service account; its path."""
    token = request_token(place.api, service_account, namespace)
    return str(write_kubeconfig(place.folder, place.options, name, {"token": token}, namespace))


def _argo_settings(options: Options) -> Manifest:
    settings = {
        "metricsConfig": {"enabled": True, "path": "/metrics", "port": 9090, "secure": False},
        "executor": {
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "RESOURCE_STATE_CHECK_INTERVAL", "value": "1s"}],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        },
        "nodeEvents": {"enabled": False},
        "artifactRepository": artifacts.repository(options),
    }
    about = {"name": "workflow-controller-configmap", "namespace": "argo"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"config": yaml.safe_dump(settings)}}


def _argo(place: Place, kubeconfig: str) -> Program:
    command = [
        f"{place.cache.binaries}/workflow-controller",
        f"--kubeconfig={kubeconfig}",
        f"--executor-image={EXECUTOR_IMAGE}",
        "--executor-image-pull-policy=IfNotPresent",
        "--qps=200",
        "--burst=400",
    ]
    # The default of 10 s is a rate limit by workflow: every step would take that long.
    environment = {"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "300ms"}
    return Program("workflow-controller", command, NAMESPACE, "plane/workflow-controller", environment)


def _settings(place: Place, port: int, health_port: int) -> dict[str, object]:
    """What JobSet's and Kueue's configurations have in common."""
    return {
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": f"{place.folder.settings}/webhook"},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"0.0.0.0:{health_port}"},
    }


def _jobset(place: Place, kubeconfig: str) -> Program:
    version = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1"}
    settings = version | _settings(place, JOBSET_PORT, JOBSET_HEALTH_PORT)
    path = write(place.folder.settings / "jobset.yaml", settings)
    command = [f"{place.cache.binaries}/jobset", f"--config={path}"]
    return Program("jobset", command, NAMESPACE, "plane/jobset", {"KUBECONFIG": kubeconfig})


def _kueue(place: Place, kubeconfig: str) -> Program:
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "namespace": "kueue-system",
        "clientConnection": {"qps": 300, "burst": 500},
        "manageJobsWithoutQueueName": False,
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
    }
    path = write(place.folder.settings / "kueue.yaml", settings | _settings(place, KUEUE_PORT, KUEUE_HEALTH_PORT))
    certificates = place.folder.settings / "webhook"
    # Kueue insists on a certificate below /etc/kueue even without metrics: it gets one that nobody else sees.
    script = (
        "set -e; mkdir -p /etc/kueue; mount -t tmpfs -o size=1m tmpfs /etc/kueue; mkdir -p /etc/kueue/metrics/certs;"
        f" cp {certificates}/tls.crt {certificates}/tls.key /etc/kueue/metrics/certs/;"
        f" exec {place.cache.binaries}/kueue --config={path} --feature-gates=VisibilityOnDemand=false"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    return Program("kueue", command, NAMESPACE, "plane/kueue", {"KUBECONFIG": kubeconfig})
