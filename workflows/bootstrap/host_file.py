"""One file on a host, and where our own lie there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

PROGRAMS = "/usr/local/bin"
HELPERS = "/usr/local/libexec/primus-flows"
"""Small scripts that our units run."""
SETTINGS = "/etc/primus-flows"
STATE = "/var/lib/primus-flows"
"""What is remembered of a host there: unpacked archives, snapshots of etcd."""
PENDING = f"{STATE}/pending"
"""Names what was changed on a host and no unit was begun anew for yet; where nothing waits there is no such file."""
UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class HostFile:
    """A file as it must be."""

    path: str
    content: str
    mode: int = 0o644

    @property
    def sha256(self) -> str:
        """Of the content."""
        return hashlib.sha256(self.content.encode()).hexdigest()
