"""The program that tells a host's facts, as it goes to a host: over standard input, into memory, never onto a disk."""

from __future__ import annotations

import shlex
import zlib
from functools import lru_cache
from pathlib import Path

import workflows

TOO_OLD = "primus-python"
"""Begins what a Python before 3.9 says, before its version."""
TOO_OLD_CODE = 126
_PACKAGE = Path(str(workflows.__file__)).parent
_PARTS = ("__init__.py", "programs/__init__.py", "programs/runtime/__init__.py", "programs/runtime/bounded.py")
"""What the program stands on, beside its own folder."""
_OTHER_PROGRAMS = ("plane.py", "put.py", "serves.py")
"""Of that folder, which go to hosts by other ways."""
_FIRST = (
    "import sys\n"
    "if sys.version_info < (3, 9):\n"
    f"    sys.stderr.write('{TOO_OLD} %d.%d\\n' % sys.version_info[:2]); sys.exit({TOO_OLD_CODE})\n"
    "import zlib\n"
    "told = sys.stdin.buffer\n"
    "exec(compile(zlib.decompress(told.read(int(told.readline()))), 'hosts', 'exec'))\n"
)
"""What a host's Python gets as its command: any from 2.7 on understands it up to the version."""
_IMPORTER = """
import importlib.abc, importlib.util

class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return importlib.util.spec_from_loader(name, self, is_package=SOURCES[name][0])

    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__][1], module.__name__, 'exec', dont_inherit=True), module.__dict__)

sys.meta_path.insert(0, Sources())
from workflows.programs.hosts.main import main
main()
"""


@lru_cache(maxsize=1)
def program() -> bytes:
    """What follows on standard input: the length as a line, then the compressed source of all modules."""
    files = [*(_PACKAGE / part for part in _PARTS), *sorted((_PACKAGE / "programs/hosts").glob("*.py"))]
    files = [file for file in files if file.name not in _OTHER_PROGRAMS]
    sources = {_name(file): (file.name == "__init__.py", file.read_text(encoding="utf-8")) for file in files}
    text = f"SOURCES = {sources!r}\n{_IMPORTER}"
    whole = zlib.compress(text.encode(), 9)
    return f"{len(whole)}\n".encode() + whole


def _name(file: Path) -> str:
    words = file.relative_to(_PACKAGE.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def remote_command(python: str, user: str) -> str:
    """What the login shell of a host gets: the program as root, or as who may log in where sudo refuses.

    `python` and `user` are words that no shell reads anything into (`tasks.ssh.inventory`).
    """
    run = f"{python} -I -c {shlex.quote(_FIRST)}"
    if user != "root":
        run = f"if sudo -n true </dev/null >/dev/null 2>&1; then exec sudo -n -- {run}; else exec {run}; fi"
    return f"exec sh -c {shlex.quote(run if user != 'root' else f'exec {run}')}"
