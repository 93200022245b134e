"""Python inside images: the interpreter that runs this, its standard library, and the shared libraries they name.

Without a registry there is no base image, so an image stands on what this machine has: its Python and its libc.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from deployments.images.components import Component, copyright_file, of_library, of_python
from deployments.images.layers import Layer
from tasks.programs import compiled

PYTHON = "/opt/python"
"""Where the interpreter lies inside images; it finds its library beside itself."""
INTERPRETER = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
VERSION = f"python{sysconfig.get_python_version()}"
LIBRARY = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("platlib"))
PROGRAM = f"{PYTHON}/bin/{VERSION}"
BUILT_IN = "/usr/src/python"
"""Stands in images where the interpreter remembers the folder it was compiled in."""
NOT_NEEDED = frozenset(
    {"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "pydoc_data", "ensurepip"}
    | {"site-packages", "dist-packages"}
)
_NO_MODULES = re.compile(
    r"(?:_test\w*|_ctypes_test|_xxtestfuzz|xxlimited\w*|_tkinter|_curses\w*|readline|_dbm|_gdbm|nis|ossaudiodev)\."
)
"""Extension modules for tests, terminals and desktops: they would bring libraries that nobody uses."""
_LATE = ("libgcc_s.so.1",)
"""What libc loads by itself when a thread is ended."""


def add(layer: Layer) -> list[Component]:
    """Python with its libraries; what it consists of."""
    python = of_python()
    layer.file(PROGRAM, INTERPRETER, python.reference)
    for name in ("python3", "python"):
        layer.link(f"/usr/bin/{name}", PROGRAM, python.reference)
    objects: list[Path] = []
    for path in files(LIBRARY, NOT_NEEDED):
        if _NO_MODULES.match(path.name) or f"config-{sysconfig.get_python_version()}" in str(path.parent):
            continue
        inside = f"{PYTHON}/lib/{VERSION}/{path.relative_to(LIBRARY)}"
        if path.name.startswith("_sysconfigdata"):
            _relocated(layer, inside, path, python)
        elif ".so" in path.suffixes:
            objects.append(path)
            layer.data(inside, _stripped(path), of=python.reference)
        else:
            layer.file(inside, path, python.reference)
            add_compiled(layer, inside, path.read_bytes(), python)
    return [python, *add_libraries(layer, [INTERPRETER, *objects])]


def files(folder: Path, without: frozenset[str]) -> Iterator[Path]:
    """Files below a folder in a fixed order, apart from folders called like this and what compilers leave."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not without & set(parts) and path.suffix not in (".a", ".pyc"):
            yield path


def add_compiled(layer: Layer, inside: str, source: bytes, component: Component) -> None:
    """The `.pyc` of a module, nothing for other files: where images are read-only, Python keeps nothing it compiles."""
    if not inside.endswith(".py"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's sources
        try:
            content = compiled(inside, source)
        except (SyntaxError, ValueError):
            return  # a template, or a test for errors
    layer.data(importlib.util.cache_from_source(inside), content, of=component.reference)


def add_libraries(layer: Layer, binaries: Iterable[Path]) -> list[Component]:
    """The machine's own libraries that binaries name, where the loader looks for them; their packages."""
    needed = sorted({library for binary in binaries for library in libraries(binary)})
    folder = next((os.path.dirname(path) for path in needed if path.endswith("/libc.so.6")), "/lib")
    needed += [path for name in _LATE if os.path.exists(path := f"{folder}/{name}")]
    found: dict[str, Component] = {}
    for path in needed:
        standard = path.startswith(("/lib/", "/lib64/", "/usr/lib/"))
        pythons = not standard and path.startswith(f"{sys.base_prefix}/")
        component = of_python() if pythons else of_library(Path(path))
        found[component.reference] = component
        if standard:
            layer.file(path, Path(path), component.reference)
        else:
            layer.data(f"{folder}/{os.path.basename(path)}", _stripped(Path(path)), 0o755, component.reference)
        text = copyright_file(component)
        if text is not None:
            layer.file(str(text), text, component.reference)
    return list(found.values())


@functools.cache
def libraries(binary: Path) -> tuple[str, ...]:
    """Paths of the shared libraries that a binary needs, apart from those that Python packages bring themselves."""
    told = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    return tuple(word for word in told.split() if word.startswith("/") and not word.startswith(str(PACKAGES)))


@functools.cache
def packages_inside() -> str:
    """Where this kind of Python looks for packages when it lies in PYTHON: Debian's differs from others."""
    script = f"import site; print(site.getsitepackages([{PYTHON!r}])[0])"
    return subprocess.run([INTERPRETER, "-I", "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def _relocated(layer: Layer, inside: str, path: Path, python: Component) -> None:
    """What the interpreter remembers of its making, without the folders of this machine."""
    text = path.read_text(encoding="utf-8")
    built, prefix = sysconfig.get_config_var("abs_srcdir"), sys.base_prefix
    moved = text.replace(str(built), BUILT_IN) if built else text
    content = (moved if prefix == "/usr" else moved.replace(prefix, PYTHON)).encode()
    layer.data(inside, content, of=python.reference)
    add_compiled(layer, inside, content, python)


def _stripped(path: Path) -> bytes:
    """A shared object without what only debuggers read, where this machine has `strip`; it tells build folders too."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / path.name
        try:
            subprocess.run(["strip", "--strip-debug", "-o", target, path], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return path.read_bytes()
        return target.read_bytes()
