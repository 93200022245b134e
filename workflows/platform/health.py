"""The health service on a cluster: a daemon on each node, how it is reached, its rights, and a pod that asks it. Pure.

Everything carries the label `app.kubernetes.io/name: primus-health`, by which it is found and removed. The token is the
site's own Secret; no secret stands in any object. The daemons may read, and do what their values ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiles.errors import ProfileError
from profiles.health import METRICS_PORT, READINESS_PORT, HealthValues
from workflows.attempt import commands, pods
from workflows.attempt.commands import PROGRAMS, PROGRAMS_VOLUME
from workflows.lint.pods import SECRET_NAME, SECRET_VALUE
from workflows.platform.health_alerts import JOB, operator_objects
from workflows.platform.pod_shapes import (
    NAME,
    PART,
    Manifest,
    empty_volume,
    http_probe,
    mounts_of,
    resources_of,
    scraped_at,
    variables,
)
from workflows.platform.workspace import RBAC, WORKSPACE, Right
from workflows.programs.health import client
from workflows.programs.health.options import Options
from workflows.programs.runtime import copy
from workflows.tolerations import EVERYTHING

SERVICE = JOB
"""Name of everything."""
MARKS = {NAME: SERVICE, **PART}
READS: Sequence[Right] = (
    # Peers, the pods of a job, and whether somebody uses a node's GPUs.
    ("", ("pods",), ("list",)),
    ("", ("nodes",), ("get", "list")),
)
MARKS_NODES: Sequence[Right] = (("", ("nodes",), ("patch",)),)
"""For labels, and for the hold before a deep test."""
READS_STORAGE: Sequence[Right] = (("storage.k8s.io", ("storageclasses",), ("get",)),)
"""Whether a class binds a claim that no pod uses."""
MAKES_VOLUMES: Sequence[Right] = (("", ("persistentvolumeclaims",), ("create", "get", "delete")),)

COMPONENT = "app.kubernetes.io/component"
ALIAS = "autopilot-healthchecks"
"""What Autopilot's clients call the Service of the health checks."""
CHECK = f"{SERVICE}-check"
CHECK_SECONDS = 600
"""For the pod that asks all nodes."""
USER = 65532
PAGE_PORTS = (READINESS_PORT, METRICS_PORT)
"""Beside the port of the health checks, which a site may choose."""
TMP = "/tmp"  # noqa: S108 - the pod's own


def health(values: HealthValues) -> list[Manifest]:
    """The objects in the order in which they are applied. Applying them again changes nothing.

    Raises:
        ProfileError: a variable of the environment looks like a secret in clear.
    """
    for name, value in values.environment.items():
        if SECRET_NAME.search(name.upper()) or SECRET_VALUE.search(value):
            raise ProfileError(f"environment.{name}", "looks like a secret in clear, and manifests are read by many")
    return [
        _namespace(values),
        _object("v1", "ServiceAccount", values, automountServiceAccountToken=False),
        *cluster_role(values),
        *(role(values) if values.storage_class else []),
        daemon_set(values),
        *_services(values),
        _network_policy(values),
        *(operator_objects(values, metadata(values)) if values.service_monitor else []),
    ]


def _object(api: str, kind: str, values: HealthValues, name: str = SERVICE, **more: object) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": metadata(values, name), **more}


def _namespace(values: HealthValues) -> Manifest:
    # NET_RAW is beyond the level `baseline`; nobody but the daemon stands here.
    marks = {**MARKS, "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values.namespace, "labels": marks}}


def daemon_set(values: HealthValues) -> Manifest:
    """The daemon on each node that is selected."""
    template = {
        "metadata": {
            "labels": dict(MARKS),
            "annotations": {**scraped_at(METRICS_PORT, "/metrics"), **values.annotations},
        },
        "spec": _pod(values),
    }
    spec = {
        "selector": {"matchLabels": {NAME: SERVICE}},
        # A new version reaches a large fleet in minutes; a bad one takes a tenth of it, and stops there.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "template": template,
    }
    return _object("apps/v1", "DaemonSet", values, spec=spec)


def _pod(values: HealthValues) -> Manifest:
    basics: Manifest = {
        "serviceAccountName": SERVICE,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": _pod_security(values),
        "tolerations": [_toleration(taint) for taint in values.tolerations] or [dict(EVERYTHING)],
        "volumes": [empty_volume(PROGRAMS_VOLUME), empty_volume("tmp"), *_token(values)],
        "initContainers": [_bring_programs(values)],
        "containers": [_daemon(values)],
    }
    wished: Manifest = {
        "nodeSelector": dict(values.node_selector),
        "imagePullSecrets": [{"name": name} for name in values.image_pull_secrets],
        "runtimeClassName": values.runtime_class,
        "hostNetwork": values.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if values.host_network else "",
    }
    return {**basics, **{key: value for key, value in wished.items() if value}}


def _pod_security(values: HealthValues) -> Manifest:
    security: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if values.run_as_user is not None:
        security |= {"runAsNonRoot": True, "runAsUser": values.run_as_user, "runAsGroup": values.run_as_user}
        security |= {"fsGroup": values.run_as_user}
        if not values.host_network:  # the node's own network is not ours to set
            security["sysctls"] = [dict(pods.PING_GROUPS)]
    return security


def _toleration(taint: str) -> Manifest:
    rest, _, effect = taint.rpartition(":")
    key, equals, value = rest.partition("=")
    how: Manifest = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **how, "effect": effect}


def _bring_programs(values: HealthValues) -> Manifest:
    mounts = mounts_of({PROGRAMS_VOLUME: pods.PROGRAMS_MOUNT})
    return {
        "name": "programs",
        "image": values.programs_image,
        "imagePullPolicy": "IfNotPresent",
        "command": commands.copy(),
        "env": pods.folder_environment(mounts),
        "resources": pods.OWN_RESOURCES,
        "securityContext": _container_security([]),
        "volumeMounts": mounts,
    }


def _daemon(values: HealthValues) -> Manifest:
    token = {} if values.compatible else {pods.TOKEN_VOLUME: pods.TOKEN_MOUNT}
    mounts = mounts_of({PROGRAMS_VOLUME: pods.PROGRAMS_MOUNT, "tmp": TMP, **token})
    mounts[0]["readOnly"] = True
    security = {"privileged": True} if values.privileged else _container_security(["NET_RAW"])
    archive = f"{pods.PROGRAMS_MOUNT}/{copy.NAME}"
    ports = {"health": values.port, "readiness": READINESS_PORT, "metrics": METRICS_PORT}
    return {
        "name": "health",
        "image": values.image,
        "imagePullPolicy": "IfNotPresent",
        # The image's own Python; neither its environment nor its site packages can break the daemon.
        "command": ["python3", "-I", "-S", archive, "health", *options(values).argv()],
        "env": _environment(values),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "startupProbe": {**http_probe("/healthz", "health"), "periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": {**http_probe("/healthz", "health"), "periodSeconds": 20, "failureThreshold": 6},
        "readinessProbe": {**http_probe("/readinessprobe", "readiness"), "periodSeconds": 10},
        "resources": resources_of("50m", "64Mi", values.memory),
        "securityContext": security,
        "volumeMounts": mounts,
    }


def _token(values: HealthValues) -> list[Manifest]:
    return [] if values.compatible else [pods.token_volume(values.token_secret)]


def _environment(values: HealthValues) -> list[Manifest]:
    storage = {"PVC_TEST_STORAGE_CLASS": values.storage_class} if values.storage_class else {}
    return [
        pods.field_variable("NODE_NAME", "spec.nodeName"),
        pods.field_variable("POD_NAME", "metadata.name"),
        pods.field_variable("POD_IP", "status.podIP"),
        pods.field_variable("NAMESPACE", "metadata.namespace"),
        *variables({"HOME": TMP, "TMPDIR": TMP, **storage, **values.environment}),
        *([] if values.compatible else [pods.variable("PRIMUS_TOKEN_FILE", f"{pods.TOKEN_MOUNT}/{pods.TOKEN_KEY}")]),
    ]


def _container_security(added: Sequence[str]) -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": list(added)} if added else {})},
    }


def _services(values: HealthValues) -> list[Manifest]:
    """Health checks, readiness and metrics, under the ports of Autopilot."""
    ports = {
        "health": (SERVICE, values.port),
        "readiness": (f"{SERVICE}-readiness", READINESS_PORT),
        "metrics": (f"{SERVICE}-metrics", METRICS_PORT),
    }
    made = [_service(values, name, part, port) for part, (name, port) in ports.items()]
    return [*made, *([_service(values, ALIAS, "health", values.port)] if values.compatible else [])]


def _service(values: HealthValues, name: str, part: str, port: int) -> Manifest:
    ports = [{"name": part, "port": port, "targetPort": part, "protocol": "TCP"}]
    made = _object("v1", "Service", values, name, spec={"selector": {NAME: SERVICE}, "ports": ports})
    made["metadata"]["labels"][COMPONENT] = part
    return made


def _network_policy(values: HealthValues) -> Manifest:
    """The three pages are for all but pods of workspaces, `compatible` for everybody, as with Autopilot.

    What else listens is for the daemons among each other.
    """
    pages: Manifest = {"ports": [{"port": port, "protocol": "TCP"} for port in (values.port, *PAGE_PORTS)]}
    if not values.compatible:
        others = {"matchExpressions": [{"key": WORKSPACE, "operator": "DoesNotExist"}]}
        pages = {"from": [{"namespaceSelector": others}], **pages}
    spec = {
        "podSelector": {"matchLabels": {NAME: SERVICE}},
        "policyTypes": ["Ingress"],
        "ingress": [pages, {"from": [{"podSelector": {"matchLabels": {NAME: SERVICE}}}]}],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", values, spec=spec)


def check_pod(values: HealthValues) -> Manifest:
    """A pod that asks all nodes once, prints what they say, and ends like the verdict: 0 pass, 1 fail, 3 unknown."""
    asked = client.Options(url=f"http://{SERVICE}.{values.namespace}.svc:{values.port}/status?host=all")
    container = {
        "name": "check",
        "image": values.programs_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAMS, "health-ask", *asked.argv()],
        "resources": pods.OWN_RESOURCES,
        "securityContext": _container_security([]),
    }
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": CHECK_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        **({"imagePullSecrets": [{"name": n} for n in values.image_pull_secrets]} if values.image_pull_secrets else {}),
        "containers": [container],
    }
    made = _object("v1", "Pod", values, CHECK, spec=spec)
    # Not the daemon's name: no Service may take it for one.
    made["metadata"]["labels"] = {NAME: CHECK, **PART}
    return made


def options(values: HealthValues) -> Options:
    """How the daemon is started; its token comes from the Secret."""
    return Options(
        port=values.port,
        readiness_port=READINESS_PORT,
        metrics_port=METRICS_PORT,
        bw=float(values.pcie_gbs),
        w=f"{values.interval_seconds}s",
        invasive_check_timer=f"{values.deep_interval_seconds}s",
        checks=",".join(values.checks),
        label=values.write_labels,
        compatible=values.compatible,
        gpus=values.gpus,
    )


def metadata(values: HealthValues, name: str = SERVICE) -> Manifest:
    """Name, namespace and labels of an object of the service."""
    return {"name": name, "namespace": values.namespace, "labels": dict(MARKS)}


def cluster_role(values: HealthValues) -> list[Manifest]:
    """Rights in the whole cluster, and who has them."""
    marks = values.write_labels or values.deep_interval_seconds
    rights = [*READS, *(MARKS_NODES if marks else ()), *(READS_STORAGE if values.storage_class else ())]
    # Two services of one cluster have their own each.
    named = {"name": f"{SERVICE}-{values.namespace}", "labels": dict(MARKS)}
    made = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": named, "rules": _rules(rights)}
    return [made, _binding("ClusterRole", named, values)]


def role(values: HealthValues) -> list[Manifest]:
    """Rights in the service's own namespace, and who has them."""
    named = metadata(values)
    made = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": named, "rules": _rules(MAKES_VOLUMES)}
    return [made, _binding("Role", named, values)]


def _rules(rights: Sequence[Right]) -> list[Manifest]:
    return [{"apiGroups": [group], "resources": list(names), "verbs": list(verbs)} for group, names, verbs in rights]


def _binding(kind: str, named: Manifest, values: HealthValues) -> Manifest:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": named,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": named["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE, "namespace": values.namespace}],
    }
