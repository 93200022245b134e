"""Images without a registry and without a Docker daemon: one archive with all of them, which containerd imports.

They are named `bed.local/<name>:1`; with the pull policy IfNotPresent nobody asks for them anywhere. Images share their
layers: each is kept and unpacked once a node.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tasks.programs import programs_archive
from tests.bed import layers
from tests.bed.layers import Layer
from tests.bed.layout import Cache

REGISTRY = "bed.local"
TAG = "1"
ARCHIVE = "images.tar"
PYTHON = "/opt/python"
"""Where the interpreter lies inside images; it finds its library beside itself."""
BUSYBOX = Path("/bin/busybox")
NOT_NEEDED = {"__pycache__", "test", "tests", "idlelib", "tkinter", "lib2to3", "pydoc_data", "ensurepip"}
USERS = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
STARTER = b'#!/bin/sh\nexec python3 -I -S /opt/primus/programs.pyz "$@"\n'
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
INTERPRETER = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
VERSION = f"python{sysconfig.get_python_version()}"
LIBRARY = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("platlib"))


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
    """The interpreter that runs this, with its standard library and the shared libraries that both name."""
    del cache
    layer = Layer()
    layer.file(f"{PYTHON}/bin/{VERSION}", INTERPRETER)
    for name in ("python3", "python"):
        layer.link(f"/usr/bin/{name}", f"{PYTHON}/bin/{VERSION}")
    without = NOT_NEEDED | {"site-packages", "dist-packages"}
    copied = list(_copy(layer, LIBRARY, f"{PYTHON}/lib/{VERSION}", without))
    _shared(layer, [INTERPRETER, *copied])
    return layer


def numpy(cache: Cache) -> Layer:
    """What the shipped demo trainer needs beside Python."""
    del cache
    layer = Layer()
    copied: list[Path] = []
    for folder in ("numpy", "numpy.libs"):
        copied += _copy(layer, PACKAGES / folder, f"{_packages_inside()}/{folder}", {"__pycache__", "tests"})
    _shared(layer, copied)
    return layer


def programs(cache: Cache) -> Layer:
    """Our program archive, started as `primus-programs`."""
    layer = Layer()
    layer.file("/opt/primus/programs.pyz", programs_archive(cache.root))
    layer.data("/usr/bin/primus-programs", STARTER, 0o755)
    return layer


LAYERS: dict[str, Callable[[Cache], Layer]] = {
    "pause": pause,
    "base": base,
    "argoexec": argoexec,
    "python": python,
    "numpy": numpy,
    "programs": programs,
}


def _packages_inside() -> str:
    """Where this kind of Python looks for packages when it lies in PYTHON: Debian's differs from others."""
    script = f"import site; print(site.getsitepackages([{PYTHON!r}])[0])"
    return subprocess.run([INTERPRETER, "-I", "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def _copy(layer: Layer, source: Path, target: str, without: set[str]) -> Iterator[Path]:
    """Copy a tree; yields the shared objects in it."""
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_file() and not without & set(inside.parts) and path.suffix not in (".a", ".pyc"):
            layer.file(f"{target}/{inside}", path)
            if ".so" in path.suffixes:
                yield path


def _shared(layer: Layer, binaries: Iterable[Path]) -> None:
    """The machine's own libraries that binaries name, where the loader looks for them."""
    for binary in binaries:
        for word in _needed(binary):
            if not word.startswith(str(PACKAGES)):
                layer.file(word, Path(word))


@functools.cache
def _needed(binary: Path) -> tuple[str, ...]:
    told = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    return tuple(word for word in told.split() if word.startswith("/"))


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
    own = [Path(__file__).read_bytes(), Path(str(layers.__file__)).read_bytes()]
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
            _add(archive, called, config)
            tags = [f"{REGISTRY}/{image}:{TAG}", *SHIPPED.get(image, ())]
            named = {"RepoTags": tags, "Layers": [f"{part}.layer" for part in parts]}
            listed.append({"Config": called, **named})
        _add(archive, "manifest.json", json.dumps(listed).encode())
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


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
