"""Where the lab keeps what it makes once and what it runs with, and how many hosts it has."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bed.layout import ROOT, Cache
from tests.bed.layout import Folder as BedFolder

FIRST = os.environ.get("PRIMUS_LAB_NETWORK", "10.124")
"""First two octets of every address of the lab; with others, a second lab may stand beside the first one."""
MARK = "" if FIRST == "10.124" else FIRST.replace(".", "")
NAMESPACE = f"primus-lab{MARK}"
"""Network namespace of the LAN; a host's is `primus-lab-<host>`. Also the name of all control groups of the lab."""
NETWORK = f"{FIRST}.0"
"""First three octets of every host."""
MACHINE, SERVER, VIRTUAL = (f"{NETWORK}.{last}" for last in (1, 2, 100))
"""This machine's leg in the LAN; name server and mirror; the API's virtual address."""
MOST_HOSTS = 5


def cache() -> Cache:
    """`$PRIMUS_LAB_CACHE`, or a folder beside the bed's in the user's cache."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Cache(Path(os.environ.get("PRIMUS_LAB_CACHE") or user / "primus-flows" / "lab").resolve())


@dataclass(frozen=True)
class Options:
    """What a lab is started with."""

    hosts: int = 3

    def names(self) -> list[str]:
        """Names of the hosts: n1, n2, …"""
        return [f"n{number}" for number in range(1, self.hosts + 1)]


class Folder(BedFolder):
    """The running lab's own folder."""

    @property
    def record(self) -> Path:
        """What this lab was started with."""
        return self.root / "lab.json"

    @property
    def private_key(self) -> Path:
        """Of whoever may log in to the hosts; made anew for each lab."""
        return self.root / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """Keys of all hosts, by name and by address."""
        return self.root / "known_hosts"

    @property
    def shared(self) -> Path:
        """One folder at the same path on this machine and on all hosts: what a site's shared file system is."""
        return self.root / "shared"

    @property
    def mirror(self) -> Path:
        """Files that the LAN's mirror serves."""
        return self.root / "mirror"

    @property
    def registry(self) -> Path:
        """Images that the LAN's registry serves."""
        return self.root / "registry"

    def host(self, name: str) -> Path:
        """All that one host owns."""
        return self.root / "hosts" / name

    def make(self) -> None:
        """Create the folders."""
        for path in (self.logs, self.mirror, self.registry, self.shared):
            path.mkdir(parents=True, exist_ok=True)

    def save(self, options: Options) -> None:
        """Write down what it was started with."""
        self.record.write_text(json.dumps(asdict(options)) + "\n", encoding="utf-8")

    def load(self) -> Options | None:
        """What the lab in this folder was started with; None where there is none."""
        return Options(**json.loads(self.record.read_text(encoding="utf-8"))) if self.record.exists() else None


def folder() -> Folder:
    """`$PRIMUS_LAB_DIR`, or `build/lab` of the checkout."""
    return Folder(Path(os.environ.get("PRIMUS_LAB_DIR") or ROOT / "build" / "lab").resolve())
