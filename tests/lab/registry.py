"""The LAN's image registry: what a site's mirror has for components, read by containerd as any registry is.

A folder holds `blobs/<hex>` and `<repository>/<tag>` (a manifest); manifests are blobs too. Run as a program it serves
one read-only: `python -m tests.lab.registry ADDRESS PORT FOLDER` (OCI distribution specification 1.1, its section on
pulling).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deployments.images.oci import CONFIG, LAYER, MANIFEST

_ASKED = re.compile(r"/v2/([a-z0-9._/-]+)/(manifests|blobs)/((?:sha256:)?[A-Za-z0-9._-]+)")
_PIECE = 1 << 20


def store(folder: Path, name: str, settings: dict[str, Any], layers: Sequence[Path]) -> str:
    """Put an image into a registry's folder.

    Args:
        folder: of the registry; made where it is not there.
        name: `repository:tag`, without a server.
        settings: the image's `config`.
        layers: archives that are not compressed, the lowest first.

    Returns:
        The digest of its manifest, `sha256:…`.
    """
    repository, _, tag = name.rpartition(":")
    described = [_kept(folder, layer) for layer in layers]
    roots = {"type": "layers", "diff_ids": [one["digest"] for one in described]}
    config = _blob(folder, {"architecture": "amd64", "os": "linux", "config": settings, "rootfs": roots}, CONFIG)
    whole = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": described}
    manifest = _blob(folder, whole, MANIFEST)
    place = folder / repository / tag
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_path(folder, manifest["digest"]), place)
    return str(manifest["digest"])


def _blob(folder: Path, value: dict[str, Any], kind: str) -> dict[str, Any]:
    content = json.dumps(value, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    place = _path(folder, digest)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}


def _kept(folder: Path, layer: Path) -> dict[str, Any]:
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    place = _path(folder, digest)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(layer, place)
    return {"mediaType": LAYER, "digest": digest, "size": layer.stat().st_size}


def _path(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.partition(":")[2]


class Registry(ThreadingHTTPServer):
    """Serves a folder."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        super().__init__(address, Pull)
        self.folder = folder


class Pull(BaseHTTPRequestHandler):
    """GET and HEAD of manifests and blobs; nothing else."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the content."""
        self._answer(whole=True)

    def do_HEAD(self) -> None:
        """Answer without it."""
        self._answer(whole=False)

    def _answer(self, *, whole: bool) -> None:
        found = self._found(urlsplit(self.path).path)
        if found is None:
            return self._head(HTTPStatus.NOT_FOUND, 0, "application/json")
        path, kind = found
        if not path:
            return self._head(HTTPStatus.OK, 0, kind)
        digest = path.name if path.parent.name == "blobs" else hashlib.sha256(path.read_bytes()).hexdigest()
        self._head(HTTPStatus.OK, path.stat().st_size, kind, f"sha256:{digest}")
        if whole:
            with path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, _PIECE)
        return None

    def _found(self, path: str) -> tuple[Path | None, str] | None:
        """The file and its type; without a file the answer that this is a registry; None: there is no such thing."""
        assert isinstance(self.server, Registry)
        if path == "/v2/":
            return None, "application/json"
        asked = _ASKED.fullmatch(path)
        if asked is None or ".." in path:
            return None
        repository, kind, name = asked.groups()
        folder = self.server.folder
        place = _path(folder, name) if name.startswith("sha256:") else folder / repository / name
        if not place.is_file():
            return None
        return place, MANIFEST if kind == "manifests" else "application/octet-stream"

    def _head(self, code: HTTPStatus, size: int, kind: str, digest: str = "") -> None:
        self.send_response(code)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()


def main(address: str, port: str, folder: str) -> None:
    """Serve until the end."""
    Registry((address, int(port)), Path(folder)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
