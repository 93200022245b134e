"""What a bootstrap is asked for: the fields of the flow's form, of the API and of `primus bootstrap`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from profiles.bootstrap.engines import KUBERNETES_PATTERN
from profiles.values import OR_EMPTY, ObjectName, Text, Value, wrong
from profiles.vocabulary import Mode

Verb = Literal["build", "check", "join", "leave", "upgrade", "components", "drift", "uninstall"]
"""`build`: everything that does not hold yet; `check`: what that would be, with nothing written; `join`, `leave`:
hosts; `upgrade`: Kubernetes to the version named; `components`: only what runs on the cluster; `drift`: in what hosts
and cluster differ from what is wanted, read only; `uninstall`: what was put on the cluster goes."""
TAKES_HOSTS = ("join", "leave")
NEVER_FORCED = ("foreign-cluster",)
"""Checks that nobody may pass over: the host works for somebody else."""


class BootstrapRequest(Value):
    """One request."""

    cluster: str = ""
    """Cluster profile by name or path; empty: PRIMUS_CLUSTER."""
    verb: Verb = "build"
    """What is to be done."""
    hosts: tuple[ObjectName, ...] = ()
    """Join and leave: which ones. Build and check: only these, where any is named."""
    without: tuple[ObjectName, ...] = ()
    """Hosts that are left out this time, e.g. since they are broken."""
    version: Annotated[str, Field(pattern=f"{KUBERNETES_PATTERN}{OR_EMPTY}")] = ""
    """Upgrade: of Kubernetes."""
    dead: bool = False
    """Leave: the hosts do not answer, and nothing is asked of them."""
    with_data: bool = False
    """Uninstall: volumes and their content go too."""
    confirmed: str = ""
    """Uninstall with data: the cluster's name once more."""
    forced: dict[str, Text] = {}
    """Pre-checks that may fail -> why; it stands in the ledger."""
    mode: Mode | None = None
    """`observe`: the plan is shown, nothing is done; `ask`: a person approves the plan; `act`. None: `act`."""

    @model_validator(mode="after")
    def _names_hosts_where_it_must(self) -> BootstrapRequest:
        if self.verb in TAKES_HOSTS and not self.hosts:
            raise wrong("hosts", f"say which hosts {self.verb}")
        if self.hosts and self.verb not in (*TAKES_HOSTS, "build", "check"):
            raise wrong("hosts", f"means nothing for {self.verb}: it concerns the whole cluster")
        if both := sorted(set(self.hosts) & set(self.without)):
            raise wrong("without", f"{', '.join(both)} cannot be both asked for and left out")
        return self

    @model_validator(mode="after")
    def _says_only_what_fits_the_verb(self) -> BootstrapRequest:
        if (self.verb == "upgrade") != bool(self.version):
            raise wrong(
                "version", "say to which one, e.g. 1.36.4" if self.verb == "upgrade" else "is for upgrades only"
            )
        if self.dead and self.verb != "leave":
            raise wrong("dead", "is for hosts that leave")
        if self.with_data and self.verb != "uninstall":
            raise wrong("with_data", "is for uninstall")
        if self.with_data and not self.confirmed:
            raise wrong("confirmed", "write the cluster's name: its data will be gone for ever")
        return self

    @model_validator(mode="after")
    def _passes_over_no_owner(self) -> BootstrapRequest:
        if never := [check for check in self.forced if check in NEVER_FORCED]:
            raise wrong("forced", f"{never[0]} is never passed over: the host belongs to another cluster")
        return self
