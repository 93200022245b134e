"""The health service of a cluster as a value: a daemon on each node, its checks, and who is notified.

Read by `primus render health --values FILE`. Every field has a default, so an empty file is valid.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from profiles.values import Count, EnvironmentName, ObjectName, PositiveCount, Quantity, TaintText, Text, Value, wrong

PeriodicCheck = Literal["pciebw", "remapped", "gpupower", "gpumem", "dcgm", "ping", "pvc"]
LOADING = ("gpumem",)
"""Checks that load GPUs on which somebody may be training."""
LEAST_SECONDS = 60
"""Checks take up to half a minute; below that one would hardly end before the next."""
READINESS_PORT, METRICS_PORT = 8080, 8081
"""Autopilot's own."""
USUAL_IMAGE = "primus-flows/programs:0.1"
OWN_VARIABLES = (
    "NODE_NAME",
    "POD_NAME",
    "POD_IP",
    "NAMESPACE",
    "PVC_TEST_STORAGE_CLASS",
    "PRIMUS_TOKEN",
    "PRIMUS_TOKEN_FILE",
)
"""What the daemon is told by its pod."""
TOKEN_SECRET = "primus-health-token"  # noqa: S105 - a name


class HealthValues(Value):
    """The health service of one cluster."""

    namespace: ObjectName = "primus-health"
    """Where it stands. One of its own: checking reachability takes a capability that others need not have."""
    image: Text = USUAL_IMAGE
    """Image in which checks run: one with the vendor's tools (`nvidia-smi`, `dcgmi`, `amd-smi`, `rocm-smi`), `ping`,
    `iperf3` and Python 3.9 or later. What is missing in it is unknown, never healthy."""
    programs_image: Text = USUAL_IMAGE
    """Image that brings our programs into it."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Names of pull secrets in the namespace."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that are watched, e.g. `nvidia.com/gpu.present: "true"`; empty: all."""
    tolerations: tuple[TaintText, ...] = ()
    """Taints that are tolerated, as `key=value:Effect`; empty: all of them, so that nodes in quarantine are watched."""
    interval_seconds: PositiveCount = 3600
    """Between two rounds of the periodic checks."""
    deep_interval_seconds: Count = 14400
    """Between two deep tests of a node on which nothing runs; 0: none are made."""
    checks: tuple[PeriodicCheck, ...] = ("pciebw", "remapped", "dcgm", "ping", "gpupower")
    """The periodic checks, which are also what is meant where a client names none."""
    pcie_gbs: PositiveCount = 4
    """GB/s between host and GPU at which a link counts as bad, as Autopilot's `PCIeBW`."""
    gpus: Count = 0
    """GPUs that each watched node should have; one that is gone is lost, even where its bus shows it no longer. 0: as
    many as bus, driver and tools ever showed since the daemon began."""
    port: int = Field(default=3333, ge=1024, le=65535)
    """Port of the health checks."""
    compatible: bool = False
    """Whoever reaches the port may start tests too, as with Autopilot; false: that takes the token. Its Service is then
    also called `autopilot-healthchecks`."""
    token_secret: ObjectName = TOKEN_SECRET
    """Secret of the namespace whose key `token` holds the bearer token; you make it, no manifest holds it."""
    write_labels: bool = False
    """The labels `autopilot.ibm.com/*` are written on nodes, for schedulers that read them."""
    storage_class: str = ""
    """Storage class with which `pvc` makes a volume of 100 Mi and deletes it; empty: none, and `pvc` is unknown."""
    run_as_user: PositiveCount | None = 65532
    """User id of the daemon; None: the image's own, where its tools need root."""
    privileged: bool = False
    """The daemon sees all devices of its node without claiming any: AMD's need it, NVIDIA's runtime shows them all."""
    runtime_class: ObjectName | None = None
    """Runtime class of the pods, e.g. `nvidia` where that is not the nodes' usual one."""
    host_network: bool = False
    """The daemon stands in the node's own network: its NICs are those that are tested."""
    annotations: dict[str, str] = {}
    """Annotations of the pods, e.g. `k8s.v1.cni.cncf.io/networks` for Multus."""
    environment: dict[EnvironmentName, str] = {}
    """Further variables of the daemon, e.g. `NVIDIA_VISIBLE_DEVICES: all`. No secrets: manifests are read by many."""
    memory: Quantity = "2Gi"
    """At most so much memory, tools included."""
    service_monitor: bool = False
    """Objects of the Prometheus operator are made too: who is scraped, and the alerts."""
    monitoring_labels: dict[str, str] = {}
    """Labels by which that operator's Prometheus selects them, e.g. `release: kube-prometheus-stack`."""

    @model_validator(mode="after")
    def _checks_can_be_made(self) -> HealthValues:
        if not self.checks:
            raise wrong("checks", "must name one check at least")
        if len(set(self.checks)) != len(self.checks):
            raise wrong("checks", f"must be named once each, got {', '.join(self.checks)}")
        if self.interval_seconds < LEAST_SECONDS:
            raise wrong("interval_seconds", f"must be at least {LEAST_SECONDS}, got {self.interval_seconds}")
        if 0 < self.deep_interval_seconds < self.interval_seconds:
            raise wrong("deep_interval_seconds", "must be 0 or at least interval_seconds: a deep test is no quick one")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> HealthValues:
        loading = [one for one in self.checks if one in LOADING]
        if loading:
            raise wrong("checks", f"must not name {loading[0]}: it would load GPUs of running jobs; deep tests make it")
        if "pvc" in self.checks and not self.storage_class:
            raise wrong("storage_class", "must be named where `pvc` is among the checks: else it is unknown for ever")
        if self.port in (READINESS_PORT, METRICS_PORT):
            raise wrong("port", f"must not be {READINESS_PORT} or {METRICS_PORT}: readiness and metrics are there")
        own = [name for name in OWN_VARIABLES if name in self.environment]
        if own:
            raise wrong(f"environment.{own[0]}", "must not be set here: the daemon is told it by its pod")
        if self.privileged and self.run_as_user is not None:
            raise wrong("run_as_user", "must be null where privileged is true: other users may not open the devices")
        return self
