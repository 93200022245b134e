"""What a look at a whole cluster finds: gathered by tasks, judged by flows. None means not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.cluster import ClusterProfile


@dataclass(frozen=True)
class RightFacts:
    """Whether our account may do one thing."""

    verb: str
    resource: str
    """With its group: `jobsets.jobset.x-k8s.io`, `pods/log`."""
    allowed: bool | None
    why: str = ""


@dataclass(frozen=True)
class PoolFacts:
    """Nodes of a pool as the cluster shows them."""

    name: str
    resource: str
    """Extended resource that counts GPUs; "" where the hardware has none."""
    gpus_per_node: int
    """What the hardware profile says."""
    expected: int
    """Nodes that the cluster profile says there are."""
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    """Ready node -> GPUs that its device plug-in offers."""
    not_ready: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempted:
    """One thing that was tried: it worked, it did not, or it could not be tried."""

    worked: bool | None
    said: str = ""


@dataclass(frozen=True)
class HomeFacts:
    """What all runs of a home stand on, whatever the cluster."""

    ledger: Attempted
    """It was read from one end to the other."""
    no_room: str = ""
    """Why nothing can be written there; "" where it can."""
    services: Mapping[str, Attempted] = field(default_factory=dict[str, Attempted])
    """`server`, `runner`, `monitor`; what nobody asked for is well."""


@dataclass(frozen=True)
class CheckupFacts:
    """Everything about one cluster."""

    profile: ClusterProfile
    answers: Attempted
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    served: Mapping[str, Attempted] = field(default_factory=dict[str, Attempted])
    """API group and version with its resource, e.g. `jobset.x-k8s.io/v1alpha2 jobsets`."""
    rights: tuple[RightFacts, ...] = ()
    pools: tuple[PoolFacts, ...] | None = None
    claims: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Claim of the profile's storage -> its phase; "" where it does not exist."""
    skew_seconds: float | None = None
    """The cluster's clock minus ours; the whole second of its `Date` header."""
    jobset: Attempted = Attempted(None)
    """A JobSet sent as a dry run, through the webhooks of JobSet and Kueue."""
    argo: Attempted = Attempted(None)
    """Whether Argo's controller looks at workflows."""
    queue: Attempted = Attempted(None)
    """The LocalQueue that the profile names."""
    namespaces: str = ""
    """Embedded: `mount`, `user` or `none`: what this machine allows."""
    free_bytes: int | None = None
    """Embedded: room in the home."""
    nodes: Attempted = Attempted(None)
    """Embedded: whether every node has power and takes pods."""
    home: HomeFacts | None = None
    """None: nobody looked."""
