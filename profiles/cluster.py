"""What there is: nodes, pools, storage, queues, endpoints, and the brake over all of it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from profiles.admission import Admission, BareMetal, Slurm
from profiles.bootstrap.engines import Adopt
from profiles.bootstrap.inventory import Bootstrap
from profiles.values import (
    ConditionType,
    Count,
    EnvironmentName,
    ObjectName,
    PositiveCount,
    PositiveSeconds,
    Price,
    Quantity,
    Seconds,
    Share,
    TaintText,
    Text,
    Value,
    did_you_mean,
    refuse_own_taints,
    wrong,
)
from profiles.vocabulary import FaultClass, Mode


class PoolTopology(Value):
    """Where the nodes of a pool stand; becomes node labels."""

    nodes_per_rack: PositiveCount = 1
    """Nodes in one rack (one failure and switch domain)."""
    racks_per_block: PositiveCount = 1
    """Racks in one block."""


class Pool(Value):
    """Nodes that are alike."""

    name: ObjectName
    """Name of the pool; label `primus-flows.io/pool` on its nodes."""
    hardware: str
    """Name of a hardware profile."""
    nodes: PositiveCount
    """Nodes in the pool, spares included."""
    spares: Count = 0
    """How many of `nodes` are kept free for replacements; they are the last ones by name."""
    topology: PoolTopology = PoolTopology()
    """Racks and blocks."""
    node_prefix: str = ""
    """Embedded only: nodes are called `<prefix><index>`; empty: `node-` for the first pool, `<pool>-` for others."""
    labels: dict[str, str] = {}
    """Labels on the pool's nodes; on Kubernetes they select the nodes that belong to it."""
    taints: tuple[TaintText, ...] = ()
    """Taints as `key=value:Effect`; pods of a run get matching tolerations."""
    cpus_per_node: PositiveCount | None = None
    """Overrides the hardware profile's figure."""
    memory_per_node: Quantity | None = None
    """Overrides the hardware profile's figure."""
    queue_flavor: str = ""
    """Kueue ResourceFlavor of this pool; empty: none."""
    nic_resource_name: str = ""
    """Extended resource that counts fabric NICs here, as the device plug-in calls it; empty: the hardware profile's."""
    fabric_environment: dict[EnvironmentName, str] = {}
    """Environment variables that the fabric of this site needs, over those of the hardware profile."""
    price_per_gpu_hour: Price | None = None
    """What one GPU (CPU nodes: one rank) costs in an hour, in the cluster's `currency`; none: reports show no cost."""

    @model_validator(mode="after")
    def _spares_fit(self) -> Pool:
        if self.spares >= self.nodes:
            raise wrong("spares", f"must be fewer than nodes, got {self.spares} spares of {self.nodes} nodes")
        return self

    @model_validator(mode="after")
    def _taints_are_the_sites(self) -> Pool:
        refuse_own_taints("taints", self.taints)
        return self


class Storage(Value):
    """A folder that every pod of a run sees at the same path."""

    kind: Literal["host_path", "claim"]
    """`host_path`: a folder on every node (embedded: on this machine). `claim`: a PersistentVolumeClaim (RWX)."""
    source: Text
    """The path or the claim's name. Embedded: `{home}` stands for PRIMUS_HOME."""
    mount_path: str
    """Where pods see it. Must be absolute; embedded: may start with `{home}`."""

    @model_validator(mode="after")
    def _paths_are_absolute(self) -> Storage:
        paths = {"mount_path": self.mount_path} | ({"source": self.source} if self.kind == "host_path" else {})
        for field, path in paths.items():
            if not path.startswith(("/", "{home}")) or path == "/":
                raise wrong(field, f"must be an absolute path below the root, got {path!r}")
        return self


class ImageMapping(Value):
    """Embedded only: what host programs stand for an image."""

    pattern: str
    """Shell pattern on the image's name, e.g. `*/primus-programs:*`."""
    programs: dict[str, str] = {}
    """From the command's first word to a host command line. `{python}`: the interpreter that runs primus;
    `{programs}`: the program archive."""
    host_path: bool = False
    """Also run programs of the host's PATH by name."""
    environment: dict[str, str] = {}
    """The image's own environment."""


class Endpoints(Value):
    """Services around the cluster; empty: not there."""

    prometheus_url: str = ""
    """Base URL of the Prometheus API."""
    logs_url: str = ""
    """Base URL of the log store."""
    argo_url: str = ""
    """Base URL of an argo-server; attempts are then shown with a link to their workflow there."""


class Brake(Value):
    """The fleet-wide brake on failover and quarantine: beyond it we stop and ask."""

    max_quarantined_share: Share = 0.2
    """At most this share of a pool's nodes may be quarantined by us at once (at least one node always may)."""
    max_evictions: PositiveCount = 8
    """At most so many nodes taken out within the window; in a pool so large that more may fail meanwhile by chance, as
    many as that (0.999 quantile at 6.5e-3 per node and day: 26 an hour of 12,500 nodes)."""
    window_seconds: PositiveSeconds = 3600.0
    """Length of the window."""


class NodeCondition(Value):
    """A condition of Node objects and what it means: beside the shipped table, or in place of an entry of it."""

    type: ConditionType
    """Type of the condition; `*` stands for any text, e.g. `AcmeGpu*`."""
    fault_class: FaultClass
    """What a node has that carries it; `none`: it says nothing about the node."""
    status: Literal["True", "False"] = "True"
    """The status that means a fault."""
    stands_seconds: Seconds = 0.0
    """How long it must have stood; 0: it does not flap and counts at once."""


class Monitor(Value):
    """The loop that watches the nodes' conditions and takes bad nodes out, and looks after runs and objects."""

    mode: Mode = Mode.ACT
    """`observe`: findings are written down; `ask`: a person is asked before a node is taken out; `act`."""
    conditions: tuple[NodeCondition, ...] = ()
    """Conditions of this site; they come before the shipped ones."""
    approval_timeout_seconds: PositiveSeconds = 86400.0
    """After this an unanswered question is dropped: the node stays as it is."""
    sweep_seconds: Seconds = 600.0
    """So often some nodes are looked at closely, by a short pod on each; 0: never."""
    sweep_share: Share = 0.1
    """Share of the nodes that one sweep looks at, those first that were not looked at for the longest time."""


class Retention(Value):
    """What the monitor removes of ended runs by itself; their history stays in the ledger."""

    run_folders_days: float = Field(default=0.0, ge=0)
    """Whole folders of runs that ended so long ago go, their checkpoints and logs with them; such a run never goes on.
    0: none does."""
    run_folders_bytes: Count = 0
    """Folders of ended runs go, the one that ended first before the others, until those that are left take no more.
    A run that ended in the last day keeps its own. 0: no such limit."""


class ClusterProfile(Value):
    """One cluster."""

    name: ObjectName
    """Name of the cluster."""
    engine: Literal["embedded", "kubernetes"]
    """`embedded`: processes on this machine. `kubernetes`: Argo Workflows, JobSet and Kueue."""
    description: str = ""
    """One sentence for people."""
    context: str = ""
    """Kubernetes only: context of the kubeconfig; empty: the current one or the pod's service account."""
    kubeconfig: str = ""
    """Kubernetes only: path of the kubeconfig, which a bootstrap writes; `{home}` stands for PRIMUS_HOME. Empty:
    KUBECONFIG or the user's own."""
    namespace: ObjectName = "default"
    """Namespace of everything we create."""
    pools: tuple[Pool, ...] = Field(min_length=1)
    """The nodes."""
    coordinator_pool: str = ""
    """Pool whose nodes carry the coordinators of runs, e.g. one of CPUs: its nodes may be lost without a run noticing.
    With Kueue the run's queue needs a flavor for it too. Empty: a node of the run's own."""
    storage: tuple[Storage, ...] = ()
    """Shared folders; the first one holds the runs' folders."""
    programs_image: str = "primus-flows/programs:0.1"
    """Image that carries our programs (`primus-programs`)."""
    images: tuple[ImageMapping, ...] = ()
    """Embedded only: what stands for which image; the first match wins."""
    queue: str = ""
    """Kueue LocalQueue for runs that name none; empty: no queue."""
    priority_classes: dict[str, int] = {}
    """Priorities that runs may name, with their values (embedded: order of the waiting line)."""
    returning_priorities: dict[str, str] = {}
    """Priority in the queue of a run's attempts that answer a failure, by the run's own priority ("": it names none): a
    step above, so that a run that comes back keeps its place before those that waited. Missing: it queues anew."""
    service_account: ObjectName = "primus-pipelines"
    """Service account of pipeline pods."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Names of pull secrets in the namespace."""
    run_as_user: int | None = None
    """User id of training pods and of our own, which write into the runs' folders; None: the image's own."""
    read_kernel_log: bool = False
    """Pods that examine suspects may read what their node's kernel said: they get the capability SYSLOG, which the
    namespace must allow (Pod Security level `privileged`). Without it that part of an examination is unknown."""
    proxy_seconds: Seconds = 2.0
    """Time limit of one request to a pod."""
    endpoints: Endpoints = Endpoints()
    """Services around the cluster."""
    currency: Text = "USD"
    """In which prices of pools are given; reports repeat the word."""
    brake: Brake = Brake()
    """The fleet-wide brake."""
    monitor: Monitor = Monitor()
    """The loop that watches nodes."""
    retention: Retention = Retention()
    """What is removed of ended runs without a person."""
    admission: Admission = Admission()
    """Which nodes must be tested, and when."""
    bare_metal: BareMetal | None = None
    """Machines that are tested by SSH (`primus preflight --launcher ansible`)."""
    slurm: Slurm | None = None
    """How nodes are tested through Slurm (`primus preflight --launcher slurm`)."""
    bootstrap: Bootstrap | None = None
    """The hosts and what is to be made of them (`primus bootstrap`)."""

    @cached_property
    def spare_hosts(self) -> frozenset[str]:
        """Hosts of the section `bootstrap` that are their pool's spares: the last ones of those that work, by name."""
        by_pool: dict[str, list[str]] = {}
        for name, host in (self.bootstrap.hosts if self.bootstrap is not None else {}).items():
            if host.works:
                by_pool.setdefault(host.pool or self.pools[0].name, []).append(name)
        kept = {pool.name: pool.nodes - pool.spares for pool in self.pools}
        return frozenset(name for pool, names in by_pool.items() for name in sorted(names)[kept[pool] :])

    @property
    def proof_run(self) -> str:
        """Name of the run profile that proves the cluster at the end of a bootstrap; "": none does."""
        said = self.bootstrap.proof_run if self.bootstrap is not None else ""
        if said is not None:
            return said
        return "demo" if any(pool.hardware == "cpu" for pool in self.pools) else "demo-gpus"

    @model_validator(mode="after")
    def _names_are_unique(self) -> ClusterProfile:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise wrong("pools", f"must have different names, got {', '.join(names)}")
        if self.coordinator_pool and self.coordinator_pool not in names:
            known = did_you_mean(self.coordinator_pool, names, "pools")
            raise wrong("coordinator_pool", f'there is no pool called "{self.coordinator_pool}"{known}')
        if not self.storage:
            raise wrong("storage", "must name at least one shared folder: runs keep logs and checkpoints there")
        mounts = [storage.mount_path for storage in self.storage]
        if len(set(mounts)) != len(mounts):
            raise wrong("storage", f"must have different mount paths, got {', '.join(mounts)}")
        return self

    @model_validator(mode="after")
    def _hosts_have_pools(self) -> ClusterProfile:
        if self.bootstrap is None:
            return self
        if self.engine == "embedded":
            raise wrong("bootstrap", "needs `engine: kubernetes`: an embedded cluster has no hosts")
        names = [pool.name for pool in self.pools]
        for name, host in self.bootstrap.hosts.items():
            if host.pool and host.pool not in names:
                known = did_you_mean(host.pool, names, "pools")
                raise wrong(f"bootstrap.hosts.{name}.pool", f'there is no pool called "{host.pool}"{known}')
        working = Counter(host.pool or names[0] for host in self.bootstrap.hosts.values() if host.works)
        adopted = isinstance(self.bootstrap.engine, Adopt)
        for pool in self.pools:
            found = working[pool.name]
            if found > pool.nodes or (found and found != pool.nodes and not adopted):
                reason = f"of pool {pool.name} {found} work, the pool says {pool.nodes} nodes: make both say the same"
                raise wrong("bootstrap.hosts", reason)
        return self
