"""Programs of the lab: kubeadm and CoreDNS, compiled here; kubelet and all others are the bed's multi-call program.

The next patch of Kubernetes, for the proof of an upgrade, is the same programs under another version: each place where
they carry their own version is written over. What an upgrade does is proven by it, not what upstream's patch changes.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.bed import building, debian, starting, versions
from tests.bed import layout as bed_layout
from tests.bed.building import Component
from tests.bed.commands import BedError, run
from tests.bed.layout import Cache
from tests.lab.layout import cache

MODULES = Path(__file__).resolve().parent / "modules"
VERSION = versions.version(versions.KUBERNETES)
"""As in `v1.36.3`."""
NEXT = f"{VERSION.rpartition('.')[0]}.{int(VERSION.rpartition('.')[2]) + 1}"
"""The patch after it."""
KUBERNETES = "kubernetes"
"""The file of the multi-call program."""


def components() -> list[Component]:
    """What is compiled here; the dearest comes first."""
    [multi_call] = building.components()[0]
    return [
        Component("kubeadm", "kubeadm", flags=multi_call.flags),
        Component("coredns", "coredns"),
        Component("pause", "pause"),
    ]


def place() -> Cache:
    """Where they lie; named after all that they are made from."""
    digest = hashlib.sha256(bed_layout.source_key().encode())
    for path in sorted(path for path in MODULES.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(MODULES)}\0".encode() + path.read_bytes())
    return Cache(cache().root / f"programs-{digest.hexdigest()[:16]}")


def missing(here: Cache) -> list[Component]:
    """What is not compiled yet."""
    return [one for one in components() if not building.built(here, one)]


def build() -> Cache:
    """Compile what is missing (kubeadm 210, CoreDNS 117 seconds of a processor from nothing); where it lies.

    Raises:
        BuildError, BedError: one could not be compiled, or there is no Go.
    """
    here, beds = place(), bed_layout.cache()
    here.make()
    beds.make()
    progress = building.Progress()
    with starting.alone(beds):
        multi_call = building.have(beds, "bed")
    with starting.alone(here):
        left = missing(here)
        if left:
            debian.need_go()
            shutil.copytree(MODULES, here.sources, dirs_exist_ok=True)
            building.build_family(here, left, progress)
        if not (here.binaries / KUBERNETES).exists():
            place_file(multi_call.resolve(), here.binaries / KUBERNETES)
    return here


def place_file(source: Path, target: Path) -> None:
    """The same file under another name, where that can be; else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def program(here: Cache, name: str, version: str) -> Path:
    """`kubeadm` or the multi-call program as a version of Kubernetes.

    Raises:
        BedError: the program does not carry its version as expected, or does not say the new one.
    """
    own = here.binaries / name
    if version == VERSION:
        return own
    target = here.binaries / f"{name}-{version}"
    if target.exists():
        return target
    before, after = VERSION.encode(), version.encode()
    content = own.read_bytes()
    if len(before) != len(after) or before not in content:
        raise BedError(f"{own} cannot be made to say {version}: it carries no {VERSION} of the same length")
    half = target.with_name(f".{target.name}.half")
    half.write_bytes(content.replace(before, after))
    half.chmod(0o755)
    said = run(half, *(("version", "-o", "short") if name == "kubeadm" else ("kubelet", "--version")))
    if said.split()[-1] != version:
        raise BedError(f"{half} says {said.strip()}, not {version}")
    half.rename(target)
    return target
