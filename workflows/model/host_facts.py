"""Facts of a host, as one look over SSH has told them: each item is a value, or why nobody knows it.

Whatever a host says is data: what cannot be read of it is `Unread` with a reason, never an error, and no text of it
can act on a terminal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, cast, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from workflows.programs.runtime.text import uncoloured

WHY_CHARACTERS = 300
MOST_CHARACTERS = 4096
"""Of one text of a host; a path is no longer."""
UNTOLD = "the host did not tell it"


@dataclass(frozen=True)
class Unread:
    """An item that nobody knows."""

    why: str = UNTOLD


@dataclass(frozen=True)
class OperatingSystem:
    """Of /etc/os-release."""

    id: str
    """E.g. `debian`."""
    version: str
    """E.g. `12`."""
    name: str = ""
    """For people."""


@dataclass(frozen=True)
class Memory:
    """In bytes."""

    total_bytes: int
    available_bytes: int
    swap_bytes: int
    """Swap that is switched on."""


@dataclass(frozen=True)
class ProcessLimits:
    """Hard limits of a process of who logged in; -1: none."""

    open_files: int
    processes: int
    locked_bytes: int


@dataclass(frozen=True)
class TuningFacts:
    """What node tuning sets beside sysctls; "": the kernel has no such thing."""

    transparent_hugepages: str
    numa_balancing: str
    cpu_governor: str
    """All that are in use, separated by commas."""


@dataclass(frozen=True)
class NetworkInterface:
    """One interface."""

    name: str
    mtu: int
    """Bytes."""
    mac: str
    state: str
    """`up`, `down` or `unknown` (loopback)."""
    physical: bool
    """A device of the machine, no bridge, tunnel or loopback."""


@dataclass(frozen=True)
class InterfaceAddress:
    """One IPv4 address."""

    interface: str
    address: str
    prefix: int


@dataclass(frozen=True)
class HostRoute:
    """One IPv4 route of the main table."""

    network: str
    """`0.0.0.0/0`: the default route."""
    interface: str
    gateway: str
    """"": the network is on the interface itself."""


@dataclass(frozen=True)
class ListeningPort:
    """A port that somebody has."""

    protocol: str
    """`tcp` or `udp`."""
    address: str
    port: int
    process: str
    """Name of the process; "": nobody may know."""


@dataclass(frozen=True)
class Resolver:
    """Who resolves names."""

    servers: tuple[str, ...]
    """Of /etc/resolv.conf."""
    behind: tuple[str, ...]
    """Those that systemd-resolved asks, where it runs: kubelet then takes these."""
    search: tuple[str, ...]
    silent: tuple[str, ...] = ()
    """Servers, of those that are asked, that answered nothing; loopback's are not tried."""


@dataclass(frozen=True)
class DiskSpace:
    """The file system on which a folder lies, or will lie."""

    folder: str
    device: str
    kind: str
    """E.g. `ext4`."""
    total_bytes: int
    free_bytes: int
    free_files: int
    """Files that can still be made; -1: the file system counts none."""


@dataclass(frozen=True)
class FsyncLatency:
    """How long one small write takes until it is safe."""

    folder: str
    """Where it was measured."""
    p99_ms: float
    median_ms: float
    writes: int


@dataclass(frozen=True)
class Membership:
    """A configuration that makes the host a node of a cluster."""

    file: str
    server: str
    """URL of the API."""
    authority_sha256: str
    """Of the certificate (DER) of the cluster's authority; "": it is not said."""


@dataclass(frozen=True)
class Leftovers:
    """What a cluster has put on the host: an old one, or this one."""

    files: tuple[str, ...]
    processes: tuple[str, ...]
    interfaces: tuple[str, ...]
    mounts: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.files or self.processes or self.interfaces or self.mounts)


@dataclass(frozen=True)
class HostCertificate:
    """A certificate of a cluster on the host."""

    file: str
    expires_at: float
    """Unix seconds."""
    days_left: float
    """By the host's own clock."""


@dataclass(frozen=True)
class HostGpu:
    """One GPU on the bus."""

    place: str
    """E.g. `0000:05:00.0`."""
    vendor: str
    """`amd` or `nvidia`."""
    device: str
    """PCI's number of the model."""
    driver: str
    """"": none is bound."""
    driver_version: str
    firmware: str


@dataclass(frozen=True)
class HostNic:
    """One fabric NIC."""

    name: str
    driver: str
    driver_version: str
    firmware: str
    gbit_per_second: float
    active: bool


@dataclass(frozen=True)
class UnitState:
    """A unit of systemd."""

    loaded: str
    """`loaded`, or `not-found`."""
    active: str
    """`active`, `inactive`, `failed`, …"""
    state: str
    """`running`, `dead`, …"""
    enabled: str
    """`enabled`, `disabled`, …; "": it is no file."""


@dataclass(frozen=True)
class HostImage:
    """An image in containerd."""

    name: str
    digest: str


@dataclass(frozen=True)
class ProgramConfiguration:
    """A configuration as a program of the host reads it."""

    text: tuple[str, ...]
    """The file in base64, cut into pieces; none: there is no such file."""
    file_age_seconds: float
    """Since it was written."""
    process_age_seconds: float | None
    """Since the program was begun; None: it does not run."""

    @property
    def content(self) -> str:
        """The file; "": there is none.

        Raises:
            ValueError: what was told is no file.
        """
        return base64.b64decode("".join(self.text), validate=True).decode("utf-8", "replace")


@dataclass(frozen=True)
class FetchedFile:
    """A file of the mirror, as the host got it."""

    sha256: str
    expected: str
    """Digest that it must have; "": any."""
    size: int
    """Bytes."""
    seconds: float
    why: str = ""
    """Why it did not come, or not whole; "": it came."""


_UNTOLD = Unread()


@dataclass(frozen=True)
class HostFacts:
    """All that one look has told of a host."""

    hostname: str | Unread = _UNTOLD
    machine_id: str | Unread = _UNTOLD
    system: OperatingSystem | Unread = _UNTOLD
    kernel: str | Unread = _UNTOLD
    arch: str | Unread = _UNTOLD
    python: str | Unread = _UNTOLD
    init: str | Unread = _UNTOLD
    """Name of process 1."""
    systemd: str | Unread = _UNTOLD
    """`running`, `degraded`, `starting`, …; `offline` where it is not process 1."""
    cgroup: int | Unread = _UNTOLD
    """Version of the control groups that hold the controllers."""
    time_synchronised: bool | Unread = _UNTOLD
    memory: Memory | Unread = _UNTOLD
    entropy: int | Unread = _UNTOLD
    """Bits."""
    limits: ProcessLimits | Unread = _UNTOLD
    privilege: str | Unread = _UNTOLD
    """`root`, or how sudo refuses."""
    tuning: TuningFacts | Unread = _UNTOLD
    interfaces: tuple[NetworkInterface, ...] | Unread = _UNTOLD
    addresses: tuple[InterfaceAddress, ...] | Unread = _UNTOLD
    routes: tuple[HostRoute, ...] | Unread = _UNTOLD
    ports: tuple[ListeningPort, ...] | Unread = _UNTOLD
    resolver: Resolver | Unread = _UNTOLD
    disks: tuple[DiskSpace, ...] | Unread = _UNTOLD
    fsync: FsyncLatency | Unread = _UNTOLD
    memberships: tuple[Membership, ...] | Unread = _UNTOLD
    authority: str | Unread = _UNTOLD
    """SHA-256 of the certificate (DER) of a cluster's authority that lies on it; "": none."""
    leftovers: Leftovers | Unread = _UNTOLD
    certificates: tuple[HostCertificate, ...] | Unread = _UNTOLD
    gpus: tuple[HostGpu, ...] | Unread = _UNTOLD
    nics: tuple[HostNic, ...] | Unread = _UNTOLD
    firmware: dict[str, str] | Unread = _UNTOLD
    """Of the machine itself: bios, board, product."""
    images: tuple[HostImage, ...] | Unread = _UNTOLD
    """Of containerd, where they were asked for."""
    container_runtime: str | Unread = _UNTOLD
    """`ok`, or why containerd does not serve kubelet; where it was asked for."""
    registry: str | Unread = _UNTOLD
    """`ok`, `asks for credentials`, or why it is no registry."""
    names: Mapping[str, tuple[str, ...] | Unread] = field(default_factory=dict[str, "tuple[str, ...] | Unread"])
    """Name that was asked for -> its addresses; none: nobody knows the name."""
    files: Mapping[str, str | Unread] = field(default_factory=dict[str, "str | Unread"])
    """Path that was asked for -> SHA-256; "": it is not there."""
    sysctls: Mapping[str, str | Unread] = field(default_factory=dict[str, "str | Unread"])
    """Kernel parameter that was asked for -> value."""
    units: Mapping[str, UnitState | Unread] = field(default_factory=dict[str, "UnitState | Unread"])
    """Unit that was asked for -> state."""
    versions: Mapping[str, str | Unread] = field(default_factory=dict[str, "str | Unread"])
    """kubelet, kubeadm, containerd, runc -> version without a leading v; "": it is not there."""
    configurations: Mapping[str, ProgramConfiguration | Unread] = field(
        default_factory=dict[str, "ProgramConfiguration | Unread"]
    )
    """kubelet and kube-proxy -> what they run with; where it was asked for."""
    processes: Mapping[str, tuple[tuple[str, ...], ...] | Unread] = field(
        default_factory=dict[str, "tuple[tuple[str, ...], ...] | Unread"]
    )
    """Program of the control plane -> arguments of each process of it; where it was asked for."""
    variables: Mapping[str, Mapping[str, str] | Unread] = field(default_factory=dict[str, "Mapping[str, str] | Unread"])
    """Program of the control plane -> those variables of its environment that were asked for and that it has."""
    services: Mapping[str, str | Unread] = field(default_factory=dict[str, "str | Unread"])
    """Service (`address:port`) that was asked for -> why it is not reached from the host; "": it is."""
    fetched: Mapping[str, FetchedFile | Unread] = field(default_factory=dict[str, "FetchedFile | Unread"])
    """URL that was asked for -> what came."""


KINDS: Mapping[str, tuple[str, Any]] = {
    "name": ("names", tuple[str, ...]),
    "file": ("files", str),
    "sysctl": ("sysctls", str),
    "unit": ("units", UnitState),
    "version": ("versions", str),
    "configuration": ("configurations", ProgramConfiguration),
    "processes": ("processes", tuple[tuple[str, ...], ...]),
    "variables": ("variables", dict[str, str]),
    "service": ("services", str),
    "fetch": ("fetched", FetchedFile),
}
"""Before the colon of an item's name -> field, and what a value of it is."""


def parse_facts(document: str) -> HostFacts | Unread:
    """What a host's answer says; the whole is `Unread` where it is no answer at all."""
    try:
        told: Any = json.loads(document)
        items = told["items"]
        pairs: list[tuple[str, Any]] = list(items.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unread(_line(f"its answer cannot be read: {error}"))
    single: dict[str, Any] = {}
    many: dict[str, dict[str, Any]] = {name: {} for name, _ in KINDS.values()}
    for name, item in pairs:
        kind, colon, key = str(name).partition(":")
        if colon and kind in KINDS:
            many[KINDS[kind][0]][_line(key)] = _item(_adapter_of(kind), item)
        elif name in _singles():
            single[name] = _item(_singles()[name], item)
    facts: Any = {**single, **many}
    return HostFacts(**facts)


def _item(adapter: TypeAdapter[Any], told: object) -> Any:
    item = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    if "is" not in item:
        nothing = "its answer cannot be read: it is neither a value nor a reason"
        return Unread(_line(str(item["why"])) or UNTOLD) if "why" in item else Unread(nothing)
    try:
        return adapter.validate_python(_harmless(item["is"]))
    except (ValidationError, ValueError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error), "loc": ()}
        where = ".".join(str(part) for part in first["loc"])
        return Unread(_line(f"its answer cannot be read: {where} {first['msg']}"))


def _harmless(value: Any) -> Any:
    """The same with no text in it that acts on a terminal or has more than one line."""
    if isinstance(value, str):
        return _line(value, MOST_CHARACTERS)
    if isinstance(value, list):
        return [_harmless(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_line(str(key)): _harmless(one) for key, one in cast("dict[Any, Any]", value).items()}
    return value


def _line(text: str, most: int = WHY_CHARACTERS) -> str:
    return " ".join(uncoloured(text).split())[:most]


@lru_cache(maxsize=1)
def _singles() -> dict[str, TypeAdapter[Any]]:
    manies = {name for name, _ in KINDS.values()}
    hints = get_type_hints(HostFacts)
    return {one.name: TypeAdapter(_value_of(hints[one.name])) for one in fields(HostFacts) if one.name not in manies}


def _value_of(hint: Any) -> Any:
    """What an item is where it is known."""
    return next(kind for kind in get_args(hint) if kind is not Unread)


@lru_cache(maxsize=len(KINDS))
def _adapter_of(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[kind][1])
