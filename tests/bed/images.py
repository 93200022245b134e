"""Images without a registry and without a Docker daemon: one archive with all of them, which containerd imports.

They are named `bed.local/<name>:1`; with the pull policy IfNotPresent nobody asks for them anywhere. Images share their
layers: each is kept and unpacked once a node.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from deployments.images import contents
from deployments.images.__main__ import programs_layer
from deployments.images.contents import INTERPRETER, PACKAGES, of_python
from deployments.images.oci import Layer
from tasks.programs_archive import programs_archive
from tests.bed.layout import Cache

REGISTRY = "bed.local"
TAG = "1"
ARCHIVE = "images.tar"
BUSYBOX = Path("/bin/busybox")
NOT_NEEDED = frozenset({"__pycache__", "tests"})
USERS = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
IMAGES = {
    "pause": ("pause",),
    "busybox": ("base",),
    "argoexec": ("base", "argoexec"),
    "python": ("base", "python"),
    "primus-demo": ("base", "python", "numpy"),
    "primus-programs": ("base", "python", "programs"),
}
"""Images and their layers, the lowest first."""
SHIPPED = {"primus-demo": ("primus-flows/demo:0.1",), "primus-programs": ("primus-flows/programs:0.1",)}
"""The names by which shipped profiles call them."""


def pause(cache: Cache) -> Layer:
    """Holds a pod's namespaces."""
    layer = Layer()
    layer.file("/pause", cache.binaries / "pause")
    return layer


def base(cache: Cache) -> Layer:
    """What every other image has: users, a folder for temporary files, the shell and its tools."""
    del cache
    layer = Layer()
    layer.folder("/tmp", 0o1777)
    layer.data("/etc/passwd", USERS)
    layer.data("/etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    layer.data("/etc/nsswitch.conf", b"hosts: files dns\n")
    layer.file("/bin/busybox", BUSYBOX)
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        layer.link(f"/bin/{applet}", "busybox")  # the applet called busybox is the file itself, which is there
    return layer


def argoexec(cache: Cache) -> Layer:
    """Argo's own executor."""
    layer = Layer()
    layer.file("/bin/argoexec", cache.binaries / "argoexec")
    return layer


def python(cache: Cache) -> Layer:
    """The interpreter that runs this, as in the product's own images."""
    del cache
    layer = Layer()
    contents.add_interpreter(layer)
    return layer


def numpy(cache: Cache) -> Layer:
    """What the shipped demo trainer needs beside Python."""
    del cache
    layer = Layer()
    found = [one for name in ("numpy", "numpy.libs") for one in contents.files(PACKAGES / name, NOT_NEEDED)]
    for path in found:
        inside = f"{contents.packages_inside()}/{path.relative_to(PACKAGES)}"
        layer.file(inside, path)
        # As in anybody's image: without it each rank compiles numpy anew, which takes a second.
        contents.add_compiled(layer, inside, path.read_bytes(), of_python())
    contents.add_libraries(layer, [path for path in found if ".so" in path.suffixes])
    return layer


def programs(cache: Cache) -> Layer:
    """Our program archive, started as `primus-programs`."""
    return programs_layer(cache.root)


LAYERS: dict[str, Callable[[Cache], Layer]] = {
    "pause": pause,
    "base": base,
    "argoexec": argoexec,
    "python": python,
    "numpy": numpy,
    "programs": programs,
}


def refresh(cache: Cache) -> list[str]:
    """Write the layers whose sources changed, and the archive anew where one did; their names."""
    changed: list[str] = []
    for name, build in LAYERS.items():
        stamp, key = cache.images / f"{name}.key", _key(cache, name)
        if stamp.exists() and stamp.read_text() == key and (cache.images / f"{name}.layer").exists():
            continue
        (cache.images / f"{name}.layer").write_bytes(build(cache).content())
        stamp.write_text(key)
        changed.append(name)
    if changed or not (cache.images / ARCHIVE).exists():
        _archive(cache)
    return changed


def _key(cache: Cache, name: str) -> str:
    """What a layer is made from, as a hash: another key, another layer."""
    made_from = {
        "pause": [cache.binaries / "pause"],
        "argoexec": [cache.binaries / "argoexec"],
        "base": [BUSYBOX],
        "python": [INTERPRETER],
        "numpy": [PACKAGES / "numpy" / "version.py"],
        "programs": [programs_archive(cache.root)],
    }
    looks = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}".encode() for path in made_from[name]]
    theirs = sorted(Path(str(contents.__file__)).parent.glob("*.py"))
    own = [path.read_bytes() for path in (Path(__file__), *theirs)]
    return hashlib.sha256(b"\0".join([*looks, *own])).hexdigest()


def _archive(cache: Cache) -> None:
    """All images as one archive of Docker's kind."""
    digests = {name: _digest(cache.images / f"{name}.layer") for name in LAYERS}
    listed: list[dict[str, object]] = []
    half = cache.images / f".{ARCHIVE}.half"
    with tarfile.open(half, "w") as archive:
        for name in LAYERS:
            archive.add(cache.images / f"{name}.layer", f"{name}.layer")
        for image, parts in IMAGES.items():
            config = _config(image, [digests[part] for part in parts])
            called = f"{hashlib.sha256(config).hexdigest()}.json"
            add_entry(archive, called, config)
            tags = [f"{REGISTRY}/{image}:{TAG}", *SHIPPED.get(image, ())]
            named = {"RepoTags": tags, "Layers": [f"{part}.layer" for part in parts]}
            listed.append({"Config": called, **named})
        add_entry(archive, "manifest.json", json.dumps(listed).encode())
    half.rename(cache.images / ARCHIVE)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _config(image: str, digests: list[str]) -> bytes:
    settings: dict[str, object] = {"Env": ["PATH=/usr/bin:/bin:/sbin"], "WorkingDir": "/"}
    if image == "pause":
        settings["Entrypoint"] = ["/pause"]
    roots = {"type": "layers", "diff_ids": digests}
    return json.dumps({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": roots}).encode()


def add_entry(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """A file of an archive, from memory."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
