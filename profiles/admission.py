"""When nodes are tested, how deeply, and by which launcher: pods, SSH or Slurm."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from profiles.checks.catalogue import Depth, Launcher
from profiles.values import (
    Count,
    HostAddress,
    PositiveCount,
    PositiveSeconds,
    Quantity,
    Share,
    StorageClassName,
    Text,
    Value,
    wrong,
)

PORTS = 65_535

Port = Annotated[int, Field(ge=1, le=PORTS)]


class Occasions(Value):
    """Depths that must be proven on each occasion; none: nothing is tested then."""

    before_run: tuple[Depth, ...] = ()
    """Before a run takes a node; only what is stale is tested."""
    suspect: tuple[Depth, ...] = ("smoke",)
    """A node that a failure points at."""
    after_repair: tuple[Depth, ...] = ("smoke",)
    """A node that comes back from repair."""
    join: tuple[Depth, ...] = ()
    """A node that was never seen before."""
    nightly: tuple[Depth, ...] = ("smoke",)
    """Idle nodes, each night."""
    post_flight: tuple[Depth, ...] = ()
    """Nodes that a run gave back."""


class Admission(Value):
    """Which nodes must be tested before they may train."""

    suite: str = ""
    """Name or path of the suite; empty: `any-machine` on an embedded cluster, `smoke` elsewhere."""
    depths: Occasions = Occasions()
    """What must be proven when."""
    max_testing_share: Share = 0.1
    """At most this share of a pool is under a deep test at once (at least one node always may be)."""
    unknown_allowed: tuple[Text, ...] = ()
    """Nodes that may train though nothing is known of them. A node that failed never may."""
    gpu_image: str = ""
    """Image of tests on nodes with GPUs: with the vendor's tools, Python 3.9 or later, and torch. Its pods take all
    GPUs of the node. Empty: our own image, in which whatever would open a GPU is unknown."""
    gpu_image_cpu: Quantity = "4"
    """CPUs that such a pod asks for."""
    gpu_image_memory: Quantity = "32Gi"
    """Memory of such a pod: host buffers of copies between host and GPUs are most of it."""
    storage_class: StorageClassName = ""
    """StorageClass of the volumes that checks of volumes claim, on Kubernetes only (embedded: `folders`). Empty: they
    are left out."""
    hold_seconds: PositiveSeconds = 1800.0
    """A node held for a deep test is given back after so long, also where whoever held it died."""


class Host(Value):
    """One machine that is reached by SSH."""

    address: HostAddress
    """Name or address."""
    port: Port = 22
    """Of its SSH server."""


class BareMetal(Value):
    """Machines without Kubernetes, reached by SSH through Ansible."""

    hosts: dict[str, Host] = Field(min_length=1)
    """By name of the node."""
    user: Text = "root"
    """Who logs in."""
    private_key_file: str = ""
    """Path of the private key; empty: the agent's or the user's own."""
    known_hosts_file: str = ""
    """Path of the file with the hosts' keys; empty: the user's own. A host whose key is not known is not tested."""
    python: Text = "python3"
    """Interpreter on the hosts, 3.9 or later."""
    folder: Text = "/tmp/primus-flows"  # noqa: S108 - a folder of the tested host, made with mode 0700
    """Beginning of the name of our folder on the hosts; `-<random>` follows. Made for that user alone, removed
    afterwards."""
    at_once: PositiveCount = 32
    """Hosts tested at the same time."""
    connect_seconds: PositiveSeconds = 10.0
    """A host that does not answer within is unknown."""


class Slurm(Value):
    """Nodes that Slurm hands out."""

    partition: str = ""
    """Empty: the default one."""
    account: str = ""
    """Empty: the user's default."""
    reservation: str = ""
    """Empty: none."""
    arguments: tuple[Text, ...] = ()
    """Further arguments of sbatch, e.g. `--qos=tests`."""
    python: Text = "python3"
    """Interpreter on the nodes, 3.9 or later."""
    folder: str = ""
    """Folder that all nodes see, for our programs and the reports; empty: the first storage of the cluster."""
    wait_seconds: PositiveSeconds = 600.0
    """A node that Slurm has not handed out by then is unknown; its job is cancelled."""
    gpus_per_node: Count | None = None
    """GPUs asked for by `--gpus-per-node`; none: the hardware profile's number, 0: none are asked for."""
    drain: bool = False
    """Drain nodes that failed, by `scontrol`, and resume those of them that pass again; needs an operator's right."""
    verdicts: str = ""
    """Folder for the prolog's verdict files, which all nodes see; empty: none are written."""

    @model_validator(mode="after")
    def _verdicts_are_found_from_everywhere(self) -> Slurm:
        if self.verdicts and not self.verdicts.startswith("/"):
            raise wrong("verdicts", f"must be an absolute path, as the prolog has it, got {self.verdicts!r}")
        return self


def own_suite(engine: str) -> str:
    """The suite where none is named: on an embedded cluster there are no GPUs to look at."""
    return "any-machine" if engine == "embedded" else "smoke"


def launcher_of(engine: str, wanted: str, bare_metal: BareMetal | None, slurm: Slurm | None) -> Launcher:
    """The launcher of tests: the one asked for, where the cluster profile says how to reach nodes by it.

    Raises:
        ValueError: the cluster profile has no section for it; the text says what to do.
    """
    match wanted or "kubernetes":
        case "ansible":
            if bare_metal is None:
                raise ValueError("launcher: ansible needs the section `bare_metal` (hosts) in the cluster profile")
            return "ansible"
        case "slurm":
            if slurm is None:
                raise ValueError(
                    "launcher: slurm needs the section `slurm` in the cluster profile; `slurm: {}` will do"
                )
            return "slurm"
        case "kubernetes":
            return "kubernetes"
        case other:
            raise ValueError(f"launcher: must be kubernetes, ansible or slurm, got {other!r} (engine {engine})")
