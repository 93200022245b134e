"""The product on a living cluster: Prefect server, flow runner, monitor, network, a database for who has none. Pure.

What differs from site to site stands in none of these objects: the ConfigMap `primus-site` holds the cluster profile
and the server's address, two Secrets that the site makes hold passwords, and kustomize writes in the images.

What a Prefect work pool makes of a flow run: a Job in our namespace that drives one run. Pure.

For sites whose runs shall each have a driver in a pod of its own: a worker of type `kubernetes` (prefect-kubernetes)
fills the template in. Only what its schema names can be set by whoever asks for runs.

Where Prometheus finds our figures, for sites that scrape by a file and not by annotations. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflows import labels
from workflows.platform.pod_shapes import (
    NAME,
    NAMESPACE,
    PART,
    Manifest,
    empty_volume,
    http_probe,
    mounts_of,
    resources_of,
    scraped_at,
    secret_variables,
    variables,
)
from workflows.platform.workspace import RUNNER

CONTROL_IMAGE = "primus-flows/control:0.1"
POSTGRES_IMAGE = "postgres:17"
USER = 65532
"""As the control image says; nobody's number on hosts."""
POSTGRES_USER = 999
"""The user `postgres` of the image: its initdb asks the user database who it is."""
SITE = "primus-site"
"""ConfigMap with `cluster.yaml`, `prefect-api-url` and whatever run profiles a site adds."""
SERVER, DATABASE, RUNNERS, MONITORS = "primus-prefect", "primus-postgres", "primus-runner", "primus-monitor"
"""Names of the parts; also of their Services, where they have one."""
SERVER_PORT, DATABASE_PORT, PAGE_PORT = 4200, 5432, 9464
DATABASE_SECRET = "primus-database"
"""Keys `prefect-url` and `ledger-url`; `password` too where the database is ours."""
SERVER_SECRET = "primus-prefect"
"""Key `auth-string`, as in `user:password`."""
HOME = "/var/lib/primus"
RESTRICTED_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def metadata_of(name: str) -> Manifest:
    """Name, namespace and labels of an object of ours."""
    return {"name": name, "namespace": NAMESPACE, "labels": {NAME: name, **PART}}


def deployment(name: str, pod: Manifest, strategy: Manifest) -> Manifest:
    """One pod of the kind, kept alive."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata_of(name),
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "selector": {"matchLabels": {NAME: name}},
            "template": pod,
        },
    }


def service(name: str, port_name: str, port: int) -> Manifest:
    """A name and a port for the pods of a Deployment or StatefulSet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(name),
        "spec": {
            "selector": {NAME: name},
            "ports": [{"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}],
        },
    }


def pod_template(name: str, containers: Sequence[Manifest], annotations: Mapping[str, str], user: int) -> Manifest:
    """A pod template as the level `restricted` asks for it."""
    metadata = {"annotations": dict(annotations)} if annotations else {}
    return {
        "metadata": {"labels": {NAME: name, **PART}, **metadata},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": restricted_pod(user),
            "containers": list(containers),
        },
    }


def restricted_pod(user: int) -> Manifest:
    """What the level `restricted` asks of a pod; volumes belong to the user's group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_of(name: str, image: str, command: Sequence[str], env: Sequence[Manifest]) -> Manifest:
    """A container without probes, resources and mounts."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": list(env),
        "securityContext": dict(RESTRICTED_CONTAINER),
    }


def prefect_server() -> list[Manifest]:
    """The Prefect server on PostgreSQL, and its Service."""
    command = ["python3", "-m", "prefect", "server", "start", "--host", "0.0.0.0", "--port", str(SERVER_PORT)]
    container = {
        **container_of("server", CONTROL_IMAGE, command, _server_environment()),
        "ports": [{"name": "api", "containerPort": SERVER_PORT}],
        # An empty database needs a minute for its tables.
        "startupProbe": {**http_probe("/api/health", "api"), "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": http_probe("/api/health", "api"),
        "livenessProbe": {**http_probe("/api/health", "api"), "periodSeconds": 20, "failureThreshold": 6},
        "resources": resources_of("250m", "512Mi", "2Gi"),
        "volumeMounts": mounts_of({"home": HOME, "tmp": "/tmp"}),
    }
    pod = pod_template(SERVER, [container], scraped_at(SERVER_PORT, "/api/metrics"), USER)
    pod["spec"]["volumes"] = [empty_volume("home"), empty_volume("tmp")]
    # Two versions of the server side by side would disagree about its tables; runs do not notice that it is away.
    return [deployment(SERVER, pod, {"type": "Recreate"}), service(SERVER, "api", SERVER_PORT)]


def _server_environment() -> list[Manifest]:
    said = {
        "PREFECT_HOME": f"{HOME}/prefect",
        "PREFECT_UI_STATIC_DIRECTORY": f"{HOME}/ui",  # the image's own folders cannot be written
        "PREFECT_UI_API_URL": f"http://localhost:{SERVER_PORT}/api",
        "PREFECT_SERVER_METRICS_ENABLED": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
    }
    secret = {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": (DATABASE_SECRET, "prefect-url"),
        "PREFECT_SERVER_API_AUTH_STRING": (SERVER_SECRET, "auth-string"),
    }
    return [*variables(said), *secret_variables(secret)]


def runner() -> list[Manifest]:
    """The flow runner: one pod, which the next one relieves without a gap."""
    container = {
        **container_of(
            "runner", CONTROL_IMAGE, ["python3", "-m", "deployments.processes.runner"], driver_environment()
        ),
        "ports": [{"name": "page", "containerPort": PAGE_PORT}],
        "startupProbe": {**http_probe("/healthz", "page"), "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": http_probe("/readyz", "page"),
        "livenessProbe": {**http_probe("/healthz", "page"), "periodSeconds": 20, "failureThreshold": 3},
        # A driver needs about 60 MiB of its own beside what all share.
        "resources": resources_of("250m", "512Mi", "8Gi"),
        "volumeMounts": mounts_of({"home": HOME, "tmp": "/tmp", "site": "/etc/primus"}),
    }
    container["env"] = [*container["env"], *variables({"PRIMUS_RUNNER_PORT": str(PAGE_PORT)})]
    pod = pod_template(RUNNERS, [container], scraped_at(PAGE_PORT, "/metrics"), USER)
    pod["spec"] |= {
        "serviceAccountName": RUNNER,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "volumes": [empty_volume("home"), empty_volume("tmp"), {"name": "site", "configMap": {"name": SITE}}],
    }
    # The old one ends when the new one serves: what it lets go of is driven again within seconds.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return [deployment(RUNNERS, pod, rolling)]


def monitor() -> list[Manifest]:
    """The monitor's loop: one pod; a second one would wait for the first one's lease to run out."""
    container = {
        **container_of(
            "monitor", CONTROL_IMAGE, ["python3", "-m", "deployments.processes.monitor_loop"], driver_environment()
        ),
        # 150 MiB, and 5 MiB more for each 10,000 nodes.
        "resources": resources_of("250m", "256Mi", "1Gi"),
        "volumeMounts": mounts_of({"home": HOME, "tmp": "/tmp", "site": "/etc/primus"}),
    }
    pod = pod_template(MONITORS, [container], {}, USER)
    pod["spec"] |= {
        "serviceAccountName": RUNNER,
        "automountServiceAccountToken": True,
        "volumes": [empty_volume("home"), empty_volume("tmp"), {"name": "site", "configMap": {"name": SITE}}],
    }
    return [deployment(MONITORS, pod, {"type": "Recreate"})]


def driver_environment() -> list[Manifest]:
    """What whoever drives runs needs: server, ledger, cluster profile."""
    said = {
        "PRIMUS_CLUSTER": "/etc/primus/cluster.yaml",
        "PREFECT_HOME": f"{HOME}/prefect",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }
    api = {"name": "PREFECT_API_URL", "valueFrom": {"configMapKeyRef": {"name": SITE, "key": "prefect-api-url"}}}
    secret = {"PREFECT_API_AUTH_STRING": (SERVER_SECRET, "auth-string"), "PRIMUS_LEDGER_URL": _LEDGER}
    return [*variables(said), api, *secret_variables(secret)]


_LEDGER = (DATABASE_SECRET, "ledger-url")

_FIRST_START = """\
set -eu
test -e "$PGDATA/PG_VERSION" && exit 0
rm -rf "$PGDATA.new"
initdb --pgdata="$PGDATA.new" --username=primus --pwfile=/run/primus/password --encoding=UTF8 --locale=C \\
  --auth-local=trust --auth-host=scram-sha-256 --data-checksums
echo 'host all all all scram-sha-256' >>"$PGDATA.new/pg_hba.conf"
for name in prefect ledger; do echo "CREATE DATABASE $name" | postgres --single -D "$PGDATA.new" postgres; done
mv "$PGDATA.new" "$PGDATA"
"""
"""Makes both databases in a folder of another name, so that a first start that is cut off leaves nothing half done."""


def postgres() -> list[Manifest]:
    """PostgreSQL with the databases `prefect` and `ledger`, for sites that have none. Backups are the site's."""
    data = variables({"PGDATA": "/data/pg"})
    mounts = {"data": "/data", "run": "/var/run/postgresql", "tmp": "/tmp"}
    first = {
        **container_of("first-start", POSTGRES_IMAGE, ["sh", "-c", _FIRST_START], data),
        "resources": resources_of("250m", "256Mi", "1Gi"),
        "volumeMounts": [*mounts_of(mounts), {"name": "password", "mountPath": "/run/primus", "readOnly": True}],
    }
    ready = {"exec": {"command": ["pg_isready", "--quiet", "--username=primus", "--dbname=ledger"]}}
    command = ["postgres", "-c", "listen_addresses=*", "-c", "max_connections=500"]
    container = {
        **container_of("postgres", POSTGRES_IMAGE, command, data),
        "ports": [{"name": "sql", "containerPort": DATABASE_PORT}],
        "startupProbe": {**ready, "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": {**ready, "timeoutSeconds": 5},
        "resources": resources_of("250m", "256Mi", "2Gi"),
        "volumeMounts": mounts_of(mounts),
    }
    pod = pod_template(DATABASE, [container], {}, POSTGRES_USER)
    password = {"secretName": DATABASE_SECRET, "items": [{"key": "password", "path": "password"}], "defaultMode": 0o440}
    pod["spec"] |= {"initContainers": [first], "terminationGracePeriodSeconds": 60}
    pod["spec"]["volumes"] = [empty_volume("run"), empty_volume("tmp"), {"name": "password", "secret": password}]
    return [
        _stateful_set(pod),
        service(DATABASE, "sql", DATABASE_PORT),
        _reachable(DATABASE, DATABASE_PORT, [OURS, DRIVERS]),
    ]


def _stateful_set(pod: Manifest) -> Manifest:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata_of(DATABASE),
        "spec": {
            "serviceName": DATABASE,
            "replicas": 1,
            "selector": {"matchLabels": {NAME: DATABASE}},
            "template": pod,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


OURS: Manifest = {"podSelector": {"matchLabels": PART}}
DRIVER = {f"{labels.PREFIX}/part": "driver"}
"""Label of drivers in pods of a work pool: a worker of Prefect's writes its own over the common ones."""
DRIVERS: Manifest = {"podSelector": {"matchLabels": DRIVER}}
WORKSPACES: Manifest = {
    "namespaceSelector": {"matchExpressions": [{"key": f"{labels.PREFIX}/workspace", "operator": "Exists"}]}
}
"""A team's programs may ask the server for runs; they need its password for that."""
MONITORING: Manifest = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def network() -> list[Manifest]:
    """Nobody is heard but who must be: the server by us and by workspaces, pages of figures by the monitoring."""
    closed: Manifest = {"podSelector": {}, "policyTypes": ["Ingress"]}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "primus-closed", "namespace": NAMESPACE, "labels": PART},
            "spec": closed,
        },
        _reachable(SERVER, SERVER_PORT, [OURS, DRIVERS, WORKSPACES, MONITORING]),
        _reachable(RUNNERS, PAGE_PORT, [MONITORING]),
    ]


def _reachable(name: str, port: int, sources: Sequence[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata_of(name),
        "spec": {
            "podSelector": {"matchLabels": {NAME: name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": list(sources), "ports": [{"port": port, "protocol": "TCP"}]}],
        },
    }


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
        **container_of(
            CONTAINER, "{{ image }}", ["python3", "-m", "deployments.processes.flow_run"], driver_environment()
        ),
        "args": "{{ command }}",  # the worker insists on filling it in; the driver reads its flow run's id only
        "resources": {
            "requests": {"cpu": "{{ cpu_request }}", "memory": "{{ memory_request }}"},
            "limits": {"memory": "{{ memory_limit }}"},
        },
        "volumeMounts": mounts_of({"home": HOME, "tmp": "/tmp", "site": "/etc/primus"}),
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


PASSWORD_FILE = "/etc/prometheus/secrets/primus-prefect/password"
"""Prometheus reads the server's password there; the site mounts it."""
USER_NAME = "admin"
INTERVAL = "15s"


def scrape_configs() -> list[dict[str, Any]]:
    """Entries of `scrape_configs`: the runner's page, and the Prefect server's own figures behind its password."""
    server = _scrape_job(SERVER, SERVER_PORT, "/api/metrics", ("namespace", "pod"))
    server["basic_auth"] = {"username": USER_NAME, "password_file": PASSWORD_FILE}
    return [_scrape_job(RUNNERS, PAGE_PORT, "/metrics", ("namespace", "pod")), server]


def _scrape_job(name: str, port: int, path: str, kept: Sequence[str]) -> dict[str, Any]:
    pod = "__meta_kubernetes_pod"
    chosen = f"{pod}_label_{NAME.replace('.', '_').replace('/', '_')}"
    sources = {"namespace": "__meta_kubernetes_namespace", "pod": f"{pod}_name"}
    return {
        "job_name": name,
        "metrics_path": path,
        "scrape_interval": INTERVAL,
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [NAMESPACE]}}],
        "relabel_configs": [
            {"action": "keep", "source_labels": [chosen, f"{pod}_container_port_number"], "regex": f"{name};{port}"},
            *({"action": "replace", "source_labels": [sources[one]], "target_label": one} for one in kept),
        ],
    }
