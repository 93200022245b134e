"""One layer of an image as a tar archive in memory; the same content gives the same bytes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path, PurePosixPath


class Layer:
    """One layer as a tar archive in memory; the same content gives the same bytes."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._buffer, mode="w", format=tarfile.GNU_FORMAT)
        self._there: set[str] = set()

    def folder(self, path: str, mode: int = 0o755) -> None:
        """A folder and those above it."""
        parts = PurePosixPath(path.lstrip("/")).parts
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            if self._new(name):
                self._tar.addfile(self._entry(name, mode if depth == len(parts) else 0o755, tarfile.DIRTYPE))

    def data(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """A file with this content."""
        self.folder(os.path.dirname(path))
        if self._new(path.lstrip("/")):
            entry = self._entry(path, mode, tarfile.REGTYPE)
            entry.size = len(content)
            self._tar.addfile(entry, io.BytesIO(content))

    def file(self, path: str, source: Path) -> None:
        """A copy of a file of this machine; links are followed."""
        real = source.resolve()
        self.data(path, real.read_bytes(), real.stat().st_mode & 0o755 | 0o444)

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        self.folder(os.path.dirname(path))
        if self._new(path.lstrip("/")):
            entry = self._entry(path, 0o777, tarfile.SYMTYPE)
            entry.linkname = target
            self._tar.addfile(entry)

    def content(self) -> bytes:
        """The archive."""
        self._tar.close()
        return self._buffer.getvalue()

    def _new(self, name: str) -> bool:
        fresh = bool(name) and name not in self._there
        self._there.add(name)
        return fresh

    @staticmethod
    def _entry(name: str, mode: int, kind: bytes) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.mode, entry.type, entry.mtime = mode, kind, 0
        return entry
