"""Seven sound hosts as one look sees them, three control planes and four workers with eight GPUs; and with defects.

Facts are written as a host writes them, so that what a defect is made of goes the way of real ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from workflows.bootstrap.ports import ports_between
from workflows.model.host_facts import HostFacts, parse_facts
from workflows.model.host_sight import ClockBounds, HostSight, HostsSight, LookFailure, PeerReach

PLANES, WORKERS = ("c1", "c2", "c3"), ("w1", "w2", "w3", "w4")
NAMES = (*PLANES, *WORKERS)
GIB = 1 << 30
MIRROR = "http://mirror.site/runc"
GPU_NODE = HardwareProfile(
    name="gpu-node",
    vendor="amd",
    gpus_per_node=8,
    gpu_memory_gib=192.0,
    resource_name="amd.com/gpu",
    nics_per_node=2,
    nic_gbit_per_second=400,
    cpus_per_node=192,
    memory_per_node="2000Gi",
)
CA = "a" * 64
API_SERVICE = "10.96.0.1:443"
"""Where nodes find the API with the networks that a profile has by itself."""


def profile(**more: Any) -> ClusterProfile:
    """The inventory of the seven."""
    hosts = {name: {"address": address(name), "role": "control-plane"} for name in PLANES}
    hosts |= {name: {"address": address(name), "pool": "gpu"} for name in WORKERS}
    told: dict[str, Any] = {
        "hosts": hosts,
        "endpoint": {"address": "10.0.0.100"},
        "networks": {"mtu": 9000},
        "mirror": {"files_url": "http://mirror.site", "registry": "registry.site:5000"},
        **more,
    }
    working = sum(host.get("role") != "control-plane" for host in told["hosts"].values())
    return ClusterProfile.model_validate(
        {
            "name": "made",
            "engine": "kubernetes",
            "pools": [{"name": "gpu", "hardware": "gpu-node", "nodes": working}],
            "storage": [{"kind": "claim", "source": "shared", "mount_path": "/shared"}],
            "bootstrap": told,
        }
    )


def address(name: str) -> str:
    """Of one of the seven inside the cluster."""
    return f"10.0.0.{11 + NAMES.index(name)}"


def items(name: str, *, controls: bool, works: bool, own: str = "") -> dict[str, Any]:
    """What a sound host tells; `own` is its address, where it is none of the seven."""
    number = int.from_bytes(name.encode(), "big")
    disk = {"device": "/dev/a", "kind": "ext4", "total_bytes": 900 * GIB, "free_bytes": 800 * GIB, "free_files": 10**7}
    folders = ("/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet")
    link = {"name": "eth0", "mtu": 9000, "mac": f"02:{number % 256:02x}:{hash_of(name)}", "state": "up"}
    gpu = {"vendor": "amd", "device": "0x74a1", "driver": "amdgpu", "driver_version": "6.10", "firmware": "113-M"}
    nic = {"driver": "mlx5_core", "driver_version": "", "firmware": "28.39", "gbit_per_second": 400.0, "active": True}
    found: dict[str, Any] = {
        "hostname": name,
        "machine_id": f"{number:032x}"[-32:],
        "system": {"id": "debian", "version": "12", "name": "Debian 12"},
        "kernel": "6.1.0-30",
        "arch": "x86_64",
        "python": "3.11.2",
        "init": "systemd",
        "systemd": "running",
        "cgroup": 2,
        "time_synchronised": True,
        "memory": {"total_bytes": 2015 * GIB, "available_bytes": 2000 * GIB, "swap_bytes": 0},
        "entropy": 256,
        "limits": {"open_files": 1048576, "processes": -1, "locked_bytes": -1},
        "privilege": "root",
        "tuning": {"transparent_hugepages": "madvise", "numa_balancing": "off", "cpu_governor": "performance"},
        "interfaces": [{**link, "physical": True}],
        "addresses": [
            {"interface": "lo", "address": "127.0.0.1", "prefix": 8},
            {"interface": "eth0", "address": own or address(name), "prefix": 24},
        ],
        "routes": [
            {"network": "0.0.0.0/0", "interface": "eth0", "gateway": "10.0.0.1"},
            {"network": "10.0.0.0/24", "interface": "eth0", "gateway": ""},
        ],
        "ports": [{"protocol": "tcp", "address": "0.0.0.0", "port": 22, "process": "sshd"}],
        "resolver": {"servers": ["10.0.0.2"], "behind": [], "search": []},
        "disks": [{"folder": folder, **disk} for folder in folders],
        "memberships": [],
        "authority": "",
        "leftovers": {"files": [], "processes": [], "interfaces": [], "mounts": []},
        "certificates": [],
        "gpus": [{"place": f"0000:{number:02x}:00.0", **gpu} for number in range(8)] if works else [],
        "nics": [{"name": f"mlx5_{number}", **nic} for number in range(2)] if works else [],
        "firmware": {"bios": "2.1"},
        "registry": "ok",
        f"service:{API_SERVICE}": "",
        "name:registry.site": ["10.0.0.3"],
        f"fetch:{MIRROR}": {"sha256": "b" * 64, "expected": "b" * 64, "size": 9, "seconds": 0.1},
    }
    if controls:
        found["fsync"] = {"folder": "/var/lib", "p99_ms": 1.5, "median_ms": 0.5, "writes": 100}
    return {key: {"is": value} for key, value in found.items()}


def hash_of(name: str) -> str:
    """The last four bytes of a MAC that no other name has."""
    number = sum((place + 1) * 251**place * ord(letter) for place, letter in enumerate(name)) % (1 << 32)
    return ":".join(f"{byte:02x}" for byte in number.to_bytes(4, "big"))


@dataclass(frozen=True)
class Defect:
    """What is wrong with one host."""

    items: dict[str, Any] = field(default_factory=dict[str, Any])
    """Over its own: an object is merged, all else stands in its place."""
    failure: LookFailure | None = None
    like: dict[str, str] = field(default_factory=dict[str, str])
    """Item -> host whose it is."""
    gpus: dict[str, str] = field(default_factory=dict[str, str])
    """What all its GPUs say."""
    node_of: str = ""
    """URL of a cluster whose node it is."""
    clock: tuple[float, float] | None = None
    ports: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])
    """Peer -> its port -> what comes from there."""
    ports_from: dict[int, str] = field(default_factory=dict[int, str])
    """Of all its peers."""
    ports_to: dict[int, str] = field(default_factory=dict[int, str])
    """Its own, for all its peers."""
    mtu: dict[str, int] = field(default_factory=dict[str, int])
    """Peer, or `*` -> bytes that arrive there, and come back from there."""


def node_of(server: str, authority: str = CA, *, plane: bool = False) -> dict[str, Any]:
    """Items of a host that is a node."""
    rows = [{"file": "/etc/kubernetes/kubelet.conf", "server": server, "authority_sha256": authority}]
    left = {"files": ["/etc/kubernetes/kubelet.conf"], "processes": ["kubelet"], "interfaces": ["cni0"], "mounts": []}
    certificate = {"file": "/var/lib/kubelet/pki/kubelet-client-current.pem", "expires_at": 2e9, "days_left": 300.0}
    return {
        "memberships": {"is": rows},
        "authority": {"is": authority if plane else ""},
        "leftovers": {"is": left},
        "certificates": {"is": [certificate]},
        "ports": {"is": [{"protocol": "tcp", "address": "::", "port": 10250, "process": "kubelet"}]},
    }


def merged(own: Any, over: Any) -> Any:
    """Objects are merged, all else is replaced; a number as a key changes one entry of a list."""
    if not isinstance(over, dict) or not isinstance(own, dict | list):
        return cast(Any, over)
    entries = cast("dict[Any, Any]", over)
    if isinstance(own, list):
        rows = cast("list[Any]", own)
        return [merged(row, entries[place]) if place in entries else row for place, row in enumerate(rows)]
    found = cast("dict[str, Any]", own)
    if "is" in found and "why" in entries:
        return dict(entries)
    return {**found, **{key: merged(found.get(key), value) for key, value in entries.items()}}


def sight_of(told: ClusterProfile, defects: Mapping[str, Defect] | None = None, *, pairs: bool = True) -> HostsSight:
    """One look at the hosts of a profile, which are sound but for these defects."""
    bootstrap = told.bootstrap
    assert bootstrap is not None
    hosts: dict[str, HostSight] = {}
    for name, host in bootstrap.hosts.items():
        defect = (defects or {}).get(name, Defect())
        own = _told(items(name, controls=host.controls, works=host.works, own=host.ip), defect)
        facts = parse_facts(json.dumps({"items": own}))
        assert isinstance(facts, HostFacts)
        clock = ClockBounds(*(defect.clock or (-0.01, 0.01)))
        hosts[name] = HostSight(name, facts, clock, _reach(bootstrap, name, defects or {}) if pairs else {})
        if defect.failure is not None:
            hosts[name] = HostSight(name, failure=defect.failure, why=f"{name}: {defect.failure}")
    gone = {name for name, seen in hosts.items() if seen.failure is not None}
    kept = {
        name: seen
        if name in gone or not isinstance(seen.reach, dict)
        else replace(seen, reach={peer: way for peer, way in seen.reach.items() if peer not in gone})
        for name, seen in hosts.items()
    }
    return HostsSight(at=1000.0, hosts=kept, pairs=pairs)


def _told(own: dict[str, Any], defect: Defect) -> dict[str, Any]:
    whole = merged(own, defect.items)
    for item, other in defect.like.items():
        whole[item] = items(other, controls=other in PLANES, works=other in WORKERS)[item]
    if defect.gpus:
        whole["gpus"] = {"is": [{**gpu, **defect.gpus} for gpu in whole["gpus"]["is"]]}
    return merged(whole, node_of(defect.node_of)) if defect.node_of else whole


def _reach(bootstrap: Bootstrap, name: str, defects: Mapping[str, Defect]) -> dict[str, PeerReach]:
    own = defects.get(name, Defect())
    found: dict[str, PeerReach] = {}
    for peer in bootstrap.hosts:
        if peer != name:
            back = defects.get(peer, Defect())
            words = {**own.ports_from, **back.ports_to, **own.ports.get(peer, {})}
            ports = {port: words.get(port, "open") for port in ports_between(bootstrap, name, peer)}
            there, here = own.mtu.get(peer, own.mtu.get("*", 9000)), back.mtu.get(name, back.mtu.get("*", 9000))
            found[peer] = PeerReach(ports, min(there, here), 9000)
    return found
