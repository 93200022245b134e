"""A workspace: a namespace in which people train, with its queue, its quotas and who may do what there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from profiles.values import Count, ObjectName, Quantity, TaintText, Value, refuse_own_taints, wrong


class Quota(Value):
    """How much of one resource a workspace may use on one flavor of nodes."""

    nominal: Quantity
    """What is the workspace's own, whoever else wants it."""
    borrowing_limit: Quantity | None = None
    """At most so much more, from what the cohort leaves idle; None: as much as there is."""
    lending_limit: Quantity | None = None
    """At most so much of its own is lent to the cohort while it is idle; None: all of it."""


class Flavor(Value):
    """Nodes of one kind, as Kueue distinguishes them."""

    name: ObjectName
    """Kueue ResourceFlavor; a pool of a cluster profile names it as `queue_flavor`."""
    node_labels: dict[str, str] = {}
    """Labels of its nodes."""
    taints: tuple[TaintText, ...] = ()
    """Taints of its nodes as `key=value:Effect`; admitted pods get matching tolerations."""
    topology: ObjectName | None = None
    """Kueue Topology of racks and blocks on these nodes, by our labels; made with the workspace. None: gangs are not
    placed by rack."""
    quotas: dict[str, Quota] = Field(min_length=1)
    """Quotas by resource, e.g. `cpu`, `memory`, `amd.com/gpu`."""

    @model_validator(mode="after")
    def _topologies_have_nodes(self) -> Flavor:
        if self.topology and not self.node_labels:
            raise wrong("node_labels", f"must say which nodes the topology {self.topology!r} is of; Kueue wants it")
        return self

    @model_validator(mode="after")
    def _taints_are_the_sites(self) -> Flavor:
        refuse_own_taints("taints", self.taints)
        return self


class Preemption(Value):
    """Who has to make room for whom."""

    within_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Which runs of this workspace a run of this workspace may preempt."""
    reclaim_in_cohort: Literal["Never", "LowerPriority", "Any"] = "Any"
    """Which runs of others, who borrowed what is this workspace's own, it may preempt."""
    borrow_in_cohort: Literal["Never", "LowerPriority"] = "Never"
    """Which runs of others it may preempt in order to borrow."""


class WorkspaceProfile(Value):
    """One workspace."""

    name: ObjectName
    """Namespace; also the ClusterQueue's name."""
    description: str = ""
    """One sentence for people."""
    queue: ObjectName = "training"
    """LocalQueue that runs name."""
    cohort: ObjectName | None = None
    """Workspaces of one cohort lend each other what is idle; None: alone."""
    flavors: tuple[Flavor, ...] = Field(min_length=1)
    """Kinds of nodes, in the order in which they are tried."""
    preemption: Preemption = Preemption()
    """Who has to make room for whom."""
    priorities: dict[ObjectName, Count] = {"low": 100, "normal": 1000, "high": 10000}
    """Priority classes that runs may name, with their values."""
    keep_place: bool = True
    """Each priority has a sister one step above, `<name>-returning` (`returning` for runs that name none): attempts
    that answer a failure wait under it, and are not overtaken by runs that waited behind them."""
    pod_security: Literal["restricted", "baseline", "privileged"] = "baseline"
    """Pod Security level that the namespace enforces. Host path storage and RDMA need `privileged`."""
    runner_namespace: ObjectName = "primus-flows"
    """Namespace of the flow runner."""

    @model_validator(mode="after")
    def _stands_apart_from_the_runner(self) -> WorkspaceProfile:
        if self.name == self.runner_namespace:
            raise wrong("name", f"must not be the runner's own namespace {self.name}: pods there reach its server")
        return self

    @model_validator(mode="after")
    def _flavors_fit_each_other(self) -> WorkspaceProfile:
        names = [flavor.name for flavor in self.flavors]
        if len(set(names)) != len(names):
            raise wrong("flavors", f"must have different names, got {', '.join(names)}")
        first = list(self.flavors[0].quotas)
        for index, flavor in enumerate(self.flavors):
            if set(flavor.quotas) != set(first):
                raise wrong(
                    f"flavors[{index}].quotas", f"must name the same resources as the first: {', '.join(first)}"
                )
        if self.cohort is None and any(
            quota.borrowing_limit is not None or quota.lending_limit is not None
            for flavor in self.flavors
            for quota in flavor.quotas.values()
        ):
            raise wrong("cohort", "must be named where quotas are borrowed or lent")
        return self
