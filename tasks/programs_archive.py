"""The program archive: what runs inside pods, as one file that any Python from 3.9 on can start."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import workflows
from profiles.errors import Unavailable

ARCHIVE = "programs.pyz"
FORMAT = 1
"""Raise it when the archive's layout changes; archives of another layout are never taken for this one."""

_MAIN = b"""import sys

if sys.version_info < (3, 9):
    found = "this image has %d.%d (%s)" % (sys.version_info[0], sys.version_info[1], sys.executable)
    sys.stderr.write("programs: needs Python 3.9 or later, " + found + "\\n")
    sys.exit(126)

from workflows.programs.main import main

sys.exit(main(sys.argv[1:]))
"""
"""What a Python starts in the archive. Any from 2.7 on understands it up to the message; 126 is what shells say of a
program that is there and cannot be run."""
_PACKAGE = Path(str(workflows.__file__)).parent
_BESIDE = ("__init__.py", "status.py", "wire.py")
"""What the programs stand on."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_HASH_BASED_UNCHECKED = (1).to_bytes(4, "little")
"""Flags of a .pyc (PEP 552) that is taken without comparing it to its source: both lie in one immutable file."""
_MARSHAL_VERSION = 2
"""Later versions write references that depend on what else the process holds: the same source, other bytes."""


def programs_archive(home: Path) -> Path:
    """Path of the archive with the programs as they are now, built where it is not there yet.

    It lies in `<home>/programs/<digest of its content>/programs.pyz`, so a running pod keeps the archive it started
    with. Each module is there as source and compiled for this Python; another Python takes the source.

    It lies in PRIMUS_HOME, `home`.

    Raises:
        Unavailable: the archive cannot be written.
    """
    target = present_folder(home) / ARCHIVE
    if home.exists() and not os.access(home, os.W_OK):
        return target  # who may only read the home starts no pod there
    if not target.exists():
        sources = _sources()
        target = home / "programs" / _digest(sources) / ARCHIVE
        _write(target, _archive(sources))
    return target


def present_folder(home: Path) -> Path:
    """The folder of the archive of the programs as they are now, whether or not it is there."""
    return home / "programs" / _present_digest(_looks())


def _looks() -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of every source file: looking is ten times faster than reading."""
    looks: list[tuple[str, int, int]] = []
    folders = [str(_PACKAGE / "programs")]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    looks.append(_look(entry.path, entry.stat()))
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return tuple(sorted([*looks, *(_look(name, (_PACKAGE / name).stat()) for name in _BESIDE)]))


def _look(name: str, found: os.stat_result) -> tuple[str, int, int]:
    return name, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=4)
def _present_digest(looks: tuple[tuple[str, int, int], ...]) -> str:
    del looks  # the key alone: files that look the same are not read again in this process
    return _digest(_sources())


def _sources() -> dict[str, bytes]:
    """Source files by their path in the archive, in a fixed order."""
    programs = sorted((_PACKAGE / "programs").rglob("*.py"))
    files = [*(_PACKAGE / name for name in _BESIDE), *programs]
    named = {f"workflows/{file.relative_to(_PACKAGE).as_posix()}": file.read_bytes() for file in files}
    return {"__main__.py": _MAIN, **named}


def _digest(sources: dict[str, bytes]) -> str:
    digest = hashlib.blake2b(importlib.util.MAGIC_NUMBER + bytes([FORMAT]), digest_size=16)
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _archive(sources: dict[str, bytes]) -> bytes:
    """The archive's bytes: the same for the same sources and the same Python."""
    # Nothing is compressed: starting a program must not wait for that.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), source)
            archive.writestr(zipfile.ZipInfo(f"{name}c", _EARLIEST), compiled(name, source))
    return buffer.getvalue()


def compiled(name: str, source: bytes) -> bytes:
    """Content of the `.pyc` of a module whose source never changes: the same bytes for the same Python.

    `name` is the file that tracebacks name.

    Raises:
        SyntaxError: this Python does not understand it.
    """
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + _HASH_BASED_UNCHECKED + digest + marshal.dumps(code, _MARSHAL_VERSION)


def _write(target: Path, content: bytes) -> None:
    """A complete file at `target` or none, also where several processes write it at the same time."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{ARCHIVE}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            os.replace(temporary, target)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        message = (
            f"{target}: the program archive cannot be written ({error.strerror}); free some space or check the rights"
        )
        raise Unavailable(message) from error
