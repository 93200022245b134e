"""Where the bed keeps what it builds and what it runs with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = HERE / "modules"
ADDED = frozenset({"validate", "trainer"})
"""Folders of modules that came later: each has a key of its own, so that nothing else is compiled anew for them."""
ROOT = HERE.parent.parent
MULTI_CALL = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
"""What the program `bed` is, as it is called."""


def source_key() -> str:
    """The name of the folder for what is built: a hash over what binaries are made from, but for what was added.

    Files beside the folders are not among it: `PREBUILT.sha256` says what was compiled, not what is to be.
    """
    return _key(path for path in MODULES.glob("*/**/*") if path.relative_to(MODULES).parts[0] not in ADDED)


def added_key(folder: str) -> str:
    """The same over one folder of `ADDED`."""
    return _key((MODULES / folder).rglob("*"))


def stamp_name(name: str, added: str) -> str:
    """The file that says that something is built; with a key where it is made from a folder of `ADDED`."""
    return f"{name}-{added_key(added)}" if added else name


def _key(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            digest.update(f"{path.relative_to(MODULES)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Cache:
    """What is built once and kept: binaries, images, manifests."""

    root: Path

    @property
    def binaries(self) -> Path:
        """One file a program; the seven of Kubernetes and etcd are links to one."""
        return self.root / "bin"

    @property
    def sources(self) -> Path:
        """Copies of the module folders; Argo's own source with one link restored."""
        return self.root / "src"

    @property
    def images(self) -> Path:
        """Docker archives that `ctr images import` reads."""
        return self.root / "images"

    @property
    def manifests(self) -> Path:
        """What ships in the modules, rendered, as JSON."""
        return self.root / "manifests"

    @property
    def stamps(self) -> Path:
        """One file a finished component; it holds the seconds it took."""
        return self.root / "stamps"

    @property
    def logs(self) -> Path:
        """What the compiler said, one file a component."""
        return self.root / "log"

    def make(self) -> None:
        """Create the folders."""
        for path in (self.binaries, self.sources, self.images, self.manifests, self.stamps, self.logs):
            path.mkdir(parents=True, exist_ok=True)

    def link_components(self) -> None:
        """The multi-call binary looks at its own name: seven links."""
        for name in MULTI_CALL:
            link = self.binaries / name
            link.unlink(missing_ok=True)
            link.symlink_to("bed")

    def stamp(self, name: str, added: str, seconds: float) -> None:
        """Write down that something is there; what other sources made under the same name was just replaced."""
        if added:
            for other in self.stamps.glob(f"{name.rpartition('-')[0]}-*"):
                other.unlink()
        (self.stamps / name).write_text(f"{seconds:.1f}\n")


def cache() -> Cache:
    """`$PRIMUS_BED_CACHE`, or a folder of the user's cache that is named after the sources."""
    named = os.environ.get("PRIMUS_BED_CACHE")
    if named:
        return Cache(Path(named).resolve())
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Cache((user / "primus-flows" / "bed" / source_key()).resolve())


@dataclass(frozen=True)
class Folder:
    """The running bed's own folder: data, certificates, logs, process ids."""

    root: Path

    @property
    def certificates(self) -> Path:
        """The bed's authority and what it signed."""
        return self.root / "certificates"

    @property
    def kubeconfigs(self) -> Path:
        """One a component."""
        return self.root / "kubeconfigs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    def account(self, ending: str) -> Path:
        """A kubeconfig beside it, with the rights of a service account of the product."""
        return self.root / f"kubeconfig-{ending}"

    @property
    def logs(self) -> Path:
        """One a component, and the API server's audit log."""
        return self.root / "log"

    @property
    def audit(self) -> Path:
        """The API server's audit log: one JSON event a line, level Metadata."""
        return self.logs / "audit.log"

    @property
    def processes(self) -> Path:
        """One file a component: how it is started, its pid and the pid's start time."""
        return self.root / "processes"

    @property
    def settings(self) -> Path:
        """Generated configuration files."""
        return self.root / "settings"

    @property
    def record(self) -> Path:
        """What this bed was started with."""
        return self.root / "bed.json"

    @property
    def machine(self) -> Path:
        """How the machine was before."""
        return self.root / "machine.json"

    def node(self, name: str) -> Path:
        """All that one real node owns."""
        return self.root / "nodes" / name

    def make(self) -> None:
        """Create the folders."""
        for path in (self.certificates, self.kubeconfigs, self.logs, self.processes, self.settings):
            path.mkdir(parents=True, exist_ok=True)


def folder() -> Folder:
    """`$PRIMUS_BED_DIR`, or `build/bed` of the checkout."""
    return Folder(Path(os.environ.get("PRIMUS_BED_DIR") or ROOT / "build" / "bed").resolve())
