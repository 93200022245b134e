"""An image's archive as tests look at it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Image:
    """What `deployments.images` wrote."""

    blobs: dict[str, bytes]
    """Every file of the archive by its path."""

    @property
    def manifest(self) -> dict[str, Any]:
        (found,) = {item["digest"] for item in json.loads(self.blobs["index.json"])["manifests"]}
        return json.loads(self.blob(found))

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(self.blob(self.manifest["config"]["digest"]))

    @property
    def layers(self) -> list[bytes]:
        return [self.blob(item["digest"]) for item in self.manifest["layers"]]

    def blob(self, digest: str) -> bytes:
        return self.blobs[f"blobs/{digest.replace(':', '/')}"]

    def entries(self) -> list[tuple[tarfile.TarInfo, bytes]]:
        """Every entry of every layer with its content."""
        found: list[tuple[tarfile.TarInfo, bytes]] = []
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                for entry in archive:
                    file = archive.extractfile(entry) if entry.isreg() else None
                    found.append((entry, file.read() if file else b""))
        return found

    def unpack(self, folder: Path) -> Path:
        """The files as a container would see them."""
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                archive.extractall(folder, filter="fully_trusted")
        return folder

    def wrong(self) -> list[str]:
        """What in the layout does not agree with itself."""
        named = [name for name in self.blobs if name.startswith("blobs/sha256/")]
        found = [name for name in named if hashlib.sha256(self.blobs[name]).hexdigest() != name.rpartition("/")[2]]
        parts = [self.manifest["config"], *self.manifest["layers"]]
        found += [item["digest"] for item in parts if len(self.blob(item["digest"])) != item["size"]]
        digests = [item["digest"] for item in self.manifest["layers"]]
        if self.config["rootfs"]["diff_ids"] != digests:
            found.append("the configuration names other layers than the manifest")
        (docker,) = json.loads(self.blobs["manifest.json"])
        if [docker["Config"], *docker["Layers"]] != [f"blobs/{item['digest'].replace(':', '/')}" for item in parts]:
            found.append("Docker's list names other files than the manifest")
        used = {f"blobs/{item['digest'].replace(':', '/')}" for item in parts}
        used |= {
            f"blobs/{item['digest'].replace(':', '/')}" for item in json.loads(self.blobs["index.json"])["manifests"]
        }
        return [*found, *sorted(set(named) ^ used)]


def read(path: Path) -> Image:
    """An archive in memory."""
    with tarfile.open(path) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive if entry.isreg()}
        return Image({name: file.read() for name, file in files.items() if file})
