"""Where Prometheus finds our figures, for sites that scrape by a file and not by annotations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workflows.installation import PAGE_PORT, RUNNERS, SERVER, SERVER_PORT
from workflows.installation_pods import NAME, NAMESPACE

PASSWORD_FILE = "/etc/prometheus/secrets/primus-prefect/password"  # noqa: S105 - a path
"""Prometheus reads the server's password there; the site mounts it."""
USER_NAME = "admin"
INTERVAL = "15s"


def scrape_configs() -> list[dict[str, Any]]:
    """Entries of `scrape_configs`: the runner's page, and the Prefect server's own figures behind its password."""
    server = _job(SERVER, SERVER_PORT, "/api/metrics", ("namespace", "pod"))
    server["basic_auth"] = {"username": USER_NAME, "password_file": PASSWORD_FILE}
    return [_job(RUNNERS, PAGE_PORT, "/metrics", ("namespace", "pod")), server]


def _job(name: str, port: int, path: str, kept: Sequence[str]) -> dict[str, Any]:
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
