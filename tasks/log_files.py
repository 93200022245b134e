"""Log files of this machine: found in folders, opened, and read in blocks; compressed ones unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from profiles.errors import NotFound, ProfileError

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 20
HEAD_BYTES = 4096
"""What a file of a folder is judged by: text or not."""
CONTROL_SHARE, BROKEN_SHARE = 0.05, 0.25
"""A file of a folder with more control characters, or more that no encoding explains, at its beginning is no log."""
_NO_LOGS = frozenset(
    {
        ".safetensors", ".pt", ".pth", ".ckpt", ".distcp", ".bin", ".npy", ".npz", ".pkl", ".parquet", ".arrow",
        ".onnx", ".so", ".whl", ".zip", ".tar", ".tgz", ".png", ".jpg", ".pdf", ".csv", ".tsv", ".yaml", ".yml",
        ".toml", ".cfg", ".ini", ".lock", ".md", ".rst", ".html", ".css", ".js", ".py", ".pyc", ".ipynb", ".sh",
        ".c", ".cc", ".cpp", ".cu", ".h",
    }
)  # fmt: skip
"""Checkpoints, data, programs and settings lie in folders of runs too; whoever means one of them names it."""
Opener = Callable[["io.BufferedReader[io.FileIO]"], io.BufferedIOBase]
_OPENERS: tuple[tuple[bytes, Opener], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b\0"))
_ROTATED = re.compile(r"^(?P<name>.+?)\.(?P<age>\d{1,3})(?P<packed>\.(?:gz|bz2|xz))?$")
_STAMPED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")
"""So begin the logs of our ranks, which hold whatever those print."""
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


@dataclass(frozen=True)
class LogFile:
    """One file, or standard input."""

    name: str
    """As people know it."""
    path: Path | None
    """None: standard input."""
    size_bytes: int | None
    """Bytes when it was found; None where it can be read only once, or is compressed."""
    broken: list[str] = field(default_factory=list[str], compare=False, repr=False)
    """Why reading ended before the end, if it did."""

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the file, in blocks; of a file that grows, those that were there when it was found."""
        left = self.size_bytes
        with _unpacked(self._open()) as file:
            while left is None or left > 0:
                block = self._block(file, BLOCK_BYTES if left is None else min(left, BLOCK_BYTES))
                if block:
                    yield block
                if not block or self.broken:
                    return
                left = None if left is None else left - len(block)

    def _block(self, file: io.BufferedIOBase, size: int) -> bytes:
        """As many bytes as there are, up to `size`; where the file is damaged, those before the damage."""
        parts: list[bytes] = []
        while size > 0:
            try:
                part = file.read1(size)
            except (OSError, *_BROKEN) as error:
                self.broken.append(f"{self.name}: read only in part: {error}")
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def tail(self, size_bytes: int) -> bytes:
        """The last whole lines of a file, as far as they fit; b"" where it cannot be read from its end."""
        if self.path is None or not self.size_bytes:
            return b""
        with self.path.open("rb") as file:
            file.seek(max(0, self.size_bytes - size_bytes))
            text = file.read(min(size_bytes, self.size_bytes))
        return text if self.size_bytes <= size_bytes else text.partition(b"\n")[2]

    def _open(self) -> io.FileIO:
        return io.FileIO(sys.stdin.fileno(), closefd=False) if self.path is None else io.FileIO(self.path)


def find_logs(names: Sequence[str]) -> tuple[tuple[LogFile, ...], tuple[str, ...]]:
    """The logs that are named, and what could not be read inside folders.

    Args:
        names: files, folders, `-` for standard input. A file that is named twice counts once.

    Raises:
        NotFound: there is no such file.
        ProfileError: a named file cannot be read.
    """
    logs: dict[object, LogFile] = {}
    passed: list[str] = []
    for name in names:
        found = [name] if name == STANDARD_INPUT or not Path(name).is_dir() else _within(Path(name), passed)
        for item in found:
            key, log = _log(item)
            logs.setdefault(key, log)
    return tuple(logs.values()), tuple(passed)


def _log(name: str) -> tuple[object, LogFile]:
    if name == STANDARD_INPUT:
        return name, LogFile("stdin", None, None)
    path = Path(name)
    try:
        facts = path.stat()
        plain = stat.S_ISREG(facts.st_mode)
        if plain:
            with path.open("rb") as file:
                head = file.read(8)
        else:
            head = b""
            if not os.access(path, os.R_OK):
                raise PermissionError(13, "Permission denied")
    except FileNotFoundError:
        raise NotFound(f"{name}: there is no such file") from None
    except OSError as error:
        raise ProfileError("LOG", f"{name} cannot be read: {error.strerror or error}") from None
    known = plain and _opener(head) is None
    size = facts.st_size or None if known else None  # the kernel's own files say that they are empty
    return (facts.st_dev, facts.st_ino), LogFile(name, path, size)


def _within(folder: Path, passed: list[str]) -> list[str]:
    """Texts below a folder, rotated ones before those they continue in; hidden ones and other files are left out."""
    found: list[str] = []

    def note(error: OSError) -> None:
        passed.append(f"{error.filename}: {error.strerror or error}")

    for here, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted((name for name in files if not name.startswith(".")), key=_age):
            path = Path(here) / name
            try:
                if path.is_file() and _is_text(path):
                    found.append(str(path))
            except OSError as error:
                passed.append(f"{path}: {error.strerror or error}")
    return found


def _age(name: str) -> tuple[str, int]:
    rotated = _ROTATED.match(name)
    return (name, 0) if rotated is None else (rotated["name"], -int(rotated["age"]))


def _is_text(path: Path) -> bool:
    if path.suffix.lower() in _NO_LOGS:
        return False
    with _unpacked(io.FileIO(path)) as file:
        try:
            head = file.read(HEAD_BYTES).replace(b"\0", b"")  # a crash leaves holes, Windows two bytes a letter
        except _BROKEN:
            return False
    if _STAMPED.match(head):
        return True
    odd = len(head) - len(head.translate(None, _CONTROL))
    broken = head.decode("utf-8", "replace").count("\ufffd")
    return bool(head) and odd <= CONTROL_SHARE * len(head) and broken <= BROKEN_SHARE * len(head)


@contextmanager
def _unpacked(raw: io.FileIO) -> Generator[io.BufferedIOBase]:
    """The file, or what is in it where its first bytes say that it is compressed; closed afterwards."""
    with raw, io.BufferedReader(raw, BLOCK_BYTES) as file:
        opener = _opener(file.peek(8))
        if opener is None:
            yield file
        else:
            with opener(file) as inner:
                yield inner


def _opener(head: bytes) -> Opener | None:
    return next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)
