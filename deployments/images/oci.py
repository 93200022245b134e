"""An image as one archive that every tool reads: an OCI layout with the manifest that `docker load` wants beside it.

Specifications: OCI image format 1.1 (image-layout.md, manifest.md, config.md); `docker save` writes the same mixture.
The same content gives the same bytes, whatever it was copied from. Layers are not compressed, so no version of a
compression library is part of a digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def moment() -> int:
    """Time of change of everything inside images, Unix seconds: SOURCE_DATE_EPOCH, else 0.

    Raises:
        ValueError: the variable is no whole number.
    """
    return int(os.environ.get("SOURCE_DATE_EPOCH") or 0)


class Layer:
    """Files, folders and links by their path in the image; what is added first stays.

    `of` names the component that a file belongs to, for the list of what is in the image; "": the image's own.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes | Path]] = {}
        self._components: dict[str, str] = {}
        self._moment = moment()

    @property
    def components(self) -> Mapping[str, str]:
        """Component of each file and link, by its absolute path."""
        return self._components

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        """A folder and those above it; `owner` is the number of user and group."""
        parts = PurePosixPath(path.lstrip("/")).parts
        for depth in range(1, len(parts) + 1):
            name, last = "/".join(parts[:depth]), depth == len(parts)
            entry = self._entry(name, mode if last else 0o755, tarfile.DIRTYPE)
            entry.uid = entry.gid = owner if last else 0
            self._entries.setdefault(name, (entry, b""))

    def data(self, path: str, content: bytes, mode: int = 0o644, of: str = "") -> None:
        """A file with this content."""
        entry = self._entry(path, mode, tarfile.REGTYPE)
        entry.size = len(content)
        self._add(entry, content, of)

    def file(self, path: str, source: Path, of: str = "") -> None:
        """A copy of a file of this machine; links are followed."""
        real = source.resolve()
        entry = self._entry(path, 0o755 if real.stat().st_mode & 0o100 else 0o644, tarfile.REGTYPE)
        entry.size = real.stat().st_size
        self._add(entry, real, of)

    def link(self, path: str, target: str, of: str = "") -> None:
        """A symbolic link."""
        entry = self._entry(path, 0o777, tarfile.SYMTYPE)
        entry.linkname = target
        self._add(entry, b"", of)

    def write(self, file: BinaryIO) -> None:
        """Write the archive: entries by name, so a folder comes before what is in it."""
        with tarfile.TarFile(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for _, (entry, content) in sorted(self._entries.items()):
                archive.addfile(entry, io.BytesIO(content if isinstance(content, bytes) else content.read_bytes()))

    def content(self) -> bytes:
        """The archive in memory."""
        buffer = io.BytesIO()
        self.write(buffer)
        return buffer.getvalue()

    def _add(self, entry: tarfile.TarInfo, content: bytes | Path, of: str) -> None:
        if entry.name in self._entries:
            return
        self.folder(os.path.dirname(entry.name))
        self._entries[entry.name] = (entry, content)
        self._components[f"/{entry.name}"] = of

    def _entry(self, name: str, mode: int, kind: bytes) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.mode, entry.type, entry.mtime = mode, kind, self._moment
        return entry


@dataclass(frozen=True)
class Blob:
    """Content with its name: the SHA-256 of itself."""

    digest: str
    """`sha256:…`."""
    size: int
    where: Path | bytes

    @property
    def path(self) -> str:
        """Path in the layout."""
        return f"blobs/{self.digest.replace(':', '/')}"

    def described(self, kind: str) -> dict[str, Any]:
        """An OCI descriptor."""
        return {"mediaType": kind, "digest": self.digest, "size": self.size}


def configuration(settings: dict[str, Any], layers: Sequence[Blob]) -> Blob:
    """The image's configuration.

    `settings` is its `config` (user, entry point, environment); the lowest layer stands first.
    """
    machine = platform.machine()
    written = datetime.fromtimestamp(moment(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return in_memory(
        {
            "created": written,
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": written, "created_by": "deployments.images"} for _ in layers],
        }
    )


def in_memory(value: dict[str, Any]) -> Blob:
    """JSON as a blob."""
    content = _json(value)
    return Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)


@contextmanager
def written(layers: Sequence[Layer], folder: Path) -> Generator[list[Blob]]:
    """The layers as files in a temporary folder below `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".layers-") as scratch:
        blobs: list[Blob] = []
        for number, layer in enumerate(layers):
            path = Path(scratch) / str(number)
            with path.open("wb") as file:
                layer.write(file)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            blobs.append(Blob(f"sha256:{digest}", path.stat().st_size, path))
        yield blobs


def write(path: Path, settings: dict[str, Any], layers: Sequence[Layer], names: Sequence[str]) -> str:
    """Write the image's archive, whole or not at all; the digest of its manifest.

    `settings` is the image's `config`, the lowest layer stands first, and names are like `primus-flows/programs:0.1`.

    Raises:
        OSError: it cannot be written.
    """
    with written(layers, path.parent) as blobs:
        config = configuration(settings, blobs)
        described = [layer.described(LAYER) for layer in blobs]
        manifest = in_memory(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.described(CONFIG), "layers": described}
        )
        files = {blob.path: blob for blob in (config, manifest, *blobs)}
        files |= {name: _unnamed(value) for name, value in _lists(manifest, config, blobs, names).items()}
        half = path.with_name(f".{path.name}.half")
        with tarfile.TarFile(half, "w", format=tarfile.GNU_FORMAT) as archive:
            for folder in ("blobs", "blobs/sha256"):
                archive.addfile(_entry(folder, 0o755, tarfile.DIRTYPE))
            for name, blob in sorted(files.items()):
                _add(archive, name, blob)
        half.replace(path)
    return manifest.digest


def _lists(manifest: Blob, config: Blob, layers: Sequence[Blob], names: Sequence[str]) -> dict[str, Any]:
    """What says which image is in the layout: for OCI's tools, for containerd, for Docker."""
    named = [
        {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
        for name in names
    ]
    entries = [{**manifest.described(MANIFEST), "annotations": marks} for marks in named]
    docker = {"Config": config.path, "RepoTags": list(names), "Layers": [layer.path for layer in layers]}
    index = "application/vnd.oci.image.index.v1+json"
    return {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "mediaType": index, "manifests": entries},
        "manifest.json": [docker],
    }


def _unnamed(value: object) -> Blob:
    content = _json(value)
    return Blob("", len(content), content)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, name: str, blob: Blob) -> None:
    entry = _entry(name, 0o644, tarfile.REGTYPE)
    entry.size = blob.size
    if isinstance(blob.where, bytes):
        archive.addfile(entry, io.BytesIO(blob.where))
        return
    with blob.where.open("rb") as file:
        archive.addfile(entry, file)


def _entry(name: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.mtime = mode, kind, moment()
    return entry
