"""One layer of an image as a tar archive; the same content gives the same bytes, whatever it was copied from."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO


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
