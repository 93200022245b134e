"""Alerts of the health service: rules for Prometheus, what is scraped, and both as objects of its operator. Pure.

Names, times and severities are Autopilot's where it has the alert, so that its receivers go on. Metrics are those of
the node daemon's page; alerts on Autopilot's labels and on pods need kube-state-metrics too, started with
`--metric-labels-allowlist=nodes=[autopilot.ibm.com/gpuhealth,autopilot.ibm.com/dcgm.level.3]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.health import HealthValues
from workflows.platform.pod_shapes import NAME, Manifest

JOB = "primus-health"
"""Name of the scrape job; that of a ServiceMonitor holds it."""
UP = f'up{{job=~".*{JOB}.*"}}'
GAUGE = "autopilot_health_checks"
LATE_ROUNDS = 2
"""A check that was not made for so many rounds, and `LATE_SECONDS`, is said to run no longer."""
LATE_SECONDS = 600

OF_GPU = "GPU {{ $labels.deviceid }} of node {{ $labels.node }}"


@dataclass(frozen=True)
class Alert:
    """One alert."""

    name: str
    query: str
    for_minutes: int
    severity: str
    """`warning` or `critical`."""
    summary: str
    description: str
    what_to_do: str


@dataclass(frozen=True)
class Group:
    """Alerts that are evaluated together."""

    name: str
    alerts: tuple[Alert, ...]


def groups(values: HealthValues) -> tuple[Group, ...]:
    """All alerts."""
    return (
        Group("primus-health-gpus", (_links(values), *_states(), *_diagnostics())),
        Group("primus-health-network-and-storage", _around()),
        Group("primus-health-nodes", _nodes()),
        Group("primus-health-itself", (_stale(values), *_silence())),
    )


def _bad(check: str, by: str) -> str:
    return f'max by ({by}) ({GAUGE}{{health="{check}"}}) >= 1'


def _links(values: HealthValues) -> Alert:
    return Alert(
        "LowPCIeBandwidth",
        f'min by (node, deviceid) ({GAUGE}{{health="pciebw"}}) <= {values.pcie_gbs}',
        1,
        "warning",
        f"A GPU's PCIe bandwidth is {values.pcie_gbs} GB/s or less",
        OF_GPU + " moves {{ $value }} GB/s to and from its host.",
        "Look at width and speed of the link (lspci), reseat the card or its riser.",
    )


def _states() -> tuple[Alert, ...]:
    return (
        Alert(
            "GPUPowerSlowdownEnabled",
            _bad("power-slowdown", "node, deviceid"),
            1,
            "warning",
            "A GPU is slowed down by its hardware",
            OF_GPU + " is slowed down: heat, or power that is missing.",
            "Look at fans, inlet temperature and power supplies of the node.",
        ),
        Alert(
            "RemappedRowsActive",
            _bad("remapped", "node, deviceid"),
            1,
            "warning",
            "Rows of a GPU's memory wait to be remapped",
            OF_GPU + " has rows that are remapped at its next reset.",
            "Reset the GPU, or restart the node, when nothing runs there; again after that: replace it.",
        ),
    )


def _diagnostics() -> tuple[Alert, ...]:
    return (
        Alert(
            "DCGMLevel1Errors",
            _bad("dcgm", "node"),
            1,
            "warning",
            "The GPU diagnostic failed",
            "A test of the GPU diagnostic failed on node {{ $labels.node }}.",
            "Read which one: /dcgm of its daemon, or the annotation autopilot.ibm.com/dcgm.level.1.output.",
        ),
        Alert(
            "GPUMemoryTestFailed",
            _bad("gpumem", "node, deviceid"),
            1,
            "warning",
            "A GPU's memory or arithmetic is too slow",
            OF_GPU + " failed the test of memory and arithmetic.",
            "Test the node with primus preflight --depth device, which says how slow.",
        ),
        Alert(
            "DCGMLevel3Errors",
            'max by (node) (kube_node_labels{label_autopilot_ibm_com_dcgm_level_3=~"ERR_.*"})',
            5,
            "critical",
            "The deep GPU diagnostic failed",
            "The deep GPU diagnostic failed on node {{ $labels.node }}.",
            "Take the node out (primus nodes cordon); the annotation dcgm.level.3.output names tests and GPUs.",
        ),
    )


def _around() -> tuple[Alert, ...]:
    return (
        Alert(
            "PingFailures",
            f'count by (deviceid) ({GAUGE}{{health="ping"}} >= 1)',
            10,
            "critical",
            "A node is not reached by others",
            "{{ $value }} nodes do not reach {{ $labels.deviceid }}.",
            "Many: the node or its switch is away. One: look at the route between the two.",
        ),
        Alert(
            "PVCAlert",
            _bad("pvc", "node"),
            5,
            "critical",
            "A volume cannot be made",
            "Node {{ $labels.node }} could not make and delete a volume.",
            "Look at events of claims in the daemon's namespace, and at the storage class's provisioner.",
        ),
    )


def _nodes() -> tuple[Alert, ...]:
    labelled = 'max by (node) (kube_node_labels{label_autopilot_ibm_com_gpuhealth=~"WARN|EVICT"})'
    return (
        Alert(
            "GPUNodeHealth",
            # The label alone would say nothing where it is not written, or not passed on.
            f'{labelled} or max by (node) (primus_node_verdict{{verdict="fail"}}) == 1',
            1,
            "warning",
            "A node is not healthy",
            "Node {{ $labels.node }} failed a check.",
            "primus verdict {{ $labels.node }} shows what was measured, the limit and what to do.",
        ),
        Alert(
            "NodeHealthUnknown",
            'max by (node, depth) (primus_node_verdict{verdict="unknown"}) == 1',
            30,
            "warning",
            "It is not known whether a node is healthy",
            "Checks of depth {{ $labels.depth }} on node {{ $labels.node }} found nothing out for half an hour.",
            "/status?host={{ $labels.node }} of any daemon says why: a tool that is missing, hangs or crashes.",
        ),
    )


def _stale(values: HealthValues) -> Alert:
    late = LATE_ROUNDS * values.interval_seconds + LATE_SECONDS
    periodic = "|".join(values.checks)
    return Alert(
        "HealthCheckStale",
        f'max by (node, check) (primus_node_check_age_seconds{{check=~"{periodic}"}}) > {late}',
        5,
        "warning",
        "A check runs no longer",
        "{{ $labels.check }} was not made on node {{ $labels.node }} for {{ $value }} s.",
        "Look at the log of the daemon there; what it last said is no proof any more.",
    )


def _silence() -> tuple[Alert, ...]:
    ready = f'max by (namespace, pod) (kube_pod_status_ready{{condition="true",pod=~"{JOB}-.+"}}) == 0'
    where = f'max by (namespace, pod, node) (kube_pod_info{{pod=~"{JOB}-.+"}})'
    silent = f"max by (node) ({UP}) == 1 unless on (node) count by (node) (primus_node_check_age_seconds)"
    return (
        Alert(
            "NodeWithoutHealthMetrics",
            f"max by (node) ({UP}) == 0 or ({silent})",
            5,
            "critical",
            "A node tells nothing of its health",
            "The daemon of node {{ $labels.node }} cannot be scraped, or tells of no check.",
            "Look whether the node is there; then at the pod's log.",
        ),
        Alert(
            "NoHealthMetrics",
            f"absent({UP} == 1)",
            15,
            "critical",
            "No node tells of its health",
            "No daemon of the health service is scraped at all.",
            "Look at the scrape job, at the network policies, and whether the DaemonSet selects any node.",
        ),
        Alert(
            "AutopilotPodsFailing",
            f"({ready}) * on (namespace, pod) group_left (node) {where}",
            15,
            "critical",
            "A daemon of the health service is not ready",
            "Pod {{ $labels.pod }} on node {{ $labels.node }} is not ready.",
            "kubectl describe pod --namespace {{ $labels.namespace }} {{ $labels.pod }}",
        ),
    )


def rules(values: HealthValues) -> Manifest:
    """The content of a rules file."""
    return {"groups": [{"name": one.name, "rules": [_rule(alert) for alert in one.alerts]} for one in groups(values)]}


def _rule(alert: Alert) -> Manifest:
    return {
        "alert": alert.name,
        "expr": alert.query,
        "for": f"{alert.for_minutes}m",
        # Receivers of Autopilot's alerts select them by the second one.
        "labels": {"severity": alert.severity, "alert": "autopilot"},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "what_to_do": alert.what_to_do,
        },
    }


def scrape_config(values: HealthValues) -> Manifest:
    """An entry of `scrape_configs`, for a Prometheus that reads a file."""
    pod = "__meta_kubernetes_pod"
    chosen = f"{pod}_label_{NAME.replace('.', '_').replace('/', '_')}"
    return {
        "job_name": JOB,
        "metrics_path": "/metrics",
        "scrape_interval": "15s",
        # The daemon says itself which node it speaks of.
        "honor_labels": True,
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [values.namespace]}}],
        "relabel_configs": [
            {"action": "keep", "source_labels": [chosen, f"{pod}_container_port_name"], "regex": f"{JOB};metrics"},
            _relabelled(f"{pod}_node_name", "node"),
            _relabelled(f"{pod}_name", "pod"),
        ],
    }


def _relabelled(source: str, target: str) -> dict[str, Any]:
    return {"action": "replace", "source_labels": [source], "target_label": target}


def operator_objects(values: HealthValues, metadata: Manifest) -> list[Manifest]:
    """The same for the Prometheus operator: ServiceMonitor and PrometheusRule with this metadata."""
    api = "monitoring.coreos.com/v1"
    endpoint = {
        "port": "metrics",
        "path": "/metrics",
        "interval": "15s",
        "honorLabels": True,
        "relabelings": [
            {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
            {"sourceLabels": ["__meta_kubernetes_service_name"], "targetLabel": "job"},
        ],
    }
    selector = {"matchLabels": {**metadata["labels"], "app.kubernetes.io/component": "metrics"}}
    marked = {**metadata, "labels": {**metadata["labels"], **values.monitoring_labels}}
    return [
        {
            "apiVersion": api,
            "kind": "ServiceMonitor",
            "metadata": marked,
            "spec": {"selector": selector, "endpoints": [endpoint]},
        },
        {"apiVersion": api, "kind": "PrometheusRule", "metadata": marked, "spec": rules(values)},
    ]
