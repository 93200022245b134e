"""What a host is asked, as one line of JSON on the program's standard input."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, List, Tuple, cast


@dataclass(frozen=True)
class Options:
    """What is read beside what always is. Paths are the host's own."""

    names: Tuple[str, ...] = ()
    """Names that are resolved."""
    files: Tuple[str, ...] = ()
    """Files whose SHA-256 is told; "" for one that is not there."""
    sysctls: Tuple[str, ...] = ()
    """Kernel parameters whose values are told."""
    units: Tuple[str, ...] = ()
    """Units of systemd whose states are told."""
    folders: Tuple[str, ...] = ("/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet")
    """Folders, there or not yet, whose file systems are told."""
    fsync: str = ""
    """Folder, there or not yet, in which the latency of fsync is measured; "": nowhere."""
    fetch: Tuple[Tuple[str, str], ...] = ()
    """Files that are fetched: URL and expected SHA-256, which may be "". Only the digest is kept."""
    services: Tuple[str, ...] = ()
    """Services, as `address:port`, of which it is told whether somebody answers TLS there."""
    registry: str = ""
    """URL of a registry whose /v2/ is asked; "": none."""
    authority: str = ""
    """Certificates in PEM that vouch for both, beside the host's own; "": none."""
    images: bool = False
    """Whether containerd's images are told."""
    running: bool = False
    """Whether it is told what the programs of Kubernetes run with."""
    variables: Tuple[str, ...] = ()
    """Variables of the control plane's programs that are told with it, by name: an environment may hold secrets."""
    root: str = "/"
    """Where the host's files are read; another one than / only in trials."""
    seconds: float = 20.0
    """An item that takes longer is told as unread."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


def from_json(line: str) -> Options:
    """What `to_json` wrote; keys of a newer asker are left alone.

    Raises:
        ValueError: it is no object of JSON.
    """
    told: Any = json.loads(line)
    if not isinstance(told, dict):
        raise ValueError("the request is no object of JSON")
    return Options(**{item.name: _frozen(told[item.name]) for item in fields(Options) if item.name in told})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in cast(List[Any], value)) if isinstance(value, list) else value
