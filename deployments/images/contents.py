"""What images are made of: the Python of this machine and the product's distributions, each with version and licence.

Without a registry there is no base image, so an image stands on what this machine has: the interpreter that runs this,
its standard library, the shared libraries that binaries name, and libc. The product comes with the pinned versions of
all it needs from the present environment, without tests and caches. Versions and licences go into the list that lies
beside an image (`deployments.images.sbom`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deployments.images.oci import Layer
from profiles.errors import Refused
from tasks.programs_archive import compiled

NOT_TOLD = "not told"
_NAME = re.compile(r"[\w.+\-() ]{1,200}")
_DEBIAN_LICENCE = re.compile(r"^License: *(\S.{0,80}?) *$", re.MULTILINE)

PYTHON = "/opt/python"
"""Where the interpreter lies inside images; it finds its library beside itself."""
INTERPRETER = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
VERSION = f"python{sysconfig.get_python_version()}"
LIBRARY = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("platlib"))
PROGRAM = f"{PYTHON}/bin/{VERSION}"
BUILT_IN = "/usr/src/python"
"""Stands in images where the interpreter remembers the folder it was compiled in."""
NOT_NEEDED_OF_INTERPRETER = frozenset(
    {"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "pydoc_data", "ensurepip"}
    | {"site-packages", "dist-packages"}
)
_NO_MODULES = re.compile(
    r"(?:_test\w*|_ctypes_test|_xxtestfuzz|xxlimited\w*|_tkinter|_curses\w*|readline|_dbm|_gdbm|nis|ossaudiodev)\."
)
"""Extension modules for tests, terminals and desktops: they would bring libraries that nobody uses."""
_LATE = ("libgcc_s.so.1",)
"""What libc loads by itself when a thread is ended."""

ROOT = Path(__file__).resolve().parents[2]
OWN = "primus-flows"
EXTRAS = ("control", "program")
"""What of the product's extras an image needs; the rest is for tests."""
FOLDERS = ("profiles", "workflows", "tasks", "flows", "deployments")
CONSTRAINTS = "constraints.txt"
NOT_NEEDED_OF_DISTRIBUTIONS = frozenset({"__pycache__", "test", "tests"})
_LOCAL = ("RECORD", "REQUESTED", "direct_url.json", "INSTALLER")
"""Files of a `.dist-info` that tell of the machine it was installed on; RECORD is written anew."""


@dataclass(frozen=True)
class Component:
    """One part of an image that somebody else, or we, released."""

    reference: str
    """Its package URL; files of an image name their component by it."""
    name: str
    version: str
    licences: tuple[str, ...] = ()
    """SPDX expressions, or names where the component gives none; empty: it does not tell."""
    digest: str = ""
    """SHA-256 of a file that no package knows, in hexadecimal."""


def of_distribution(found: Distribution) -> Component:
    """A Python distribution."""
    name, version = found.metadata["Name"], found.version
    slug = re.sub(r"[-_.]+", "-", name).lower()
    return Component(f"pkg:pypi/{slug}@{quote(version)}", name, version, _licences(found))


def _licences(found: Distribution) -> tuple[str, ...]:
    expression = _told(found, "License-Expression")
    if expression:
        return tuple(expression)
    named = [one.rpartition(" :: ")[2] for one in _told(found, "Classifier") if one.startswith("License :: ")]
    said = [text.strip().partition("\n")[0] for text in _told(found, "License")]
    return tuple(one for one in named if one != "OSI Approved") or tuple(one for one in said if _NAME.fullmatch(one))


def _told(found: Distribution, field: str) -> list[str]:
    return found.metadata.get_all(field) or []


def of_python() -> Component:
    """The interpreter that runs this, with its standard library."""
    version = platform.python_version()
    return Component(f"pkg:generic/python@{version}", "python", version, ("PSF-2.0",))


def of_library(path: Path) -> Component:
    """The Debian package of a shared library of this machine; the file itself where no package knows it."""
    package = _debian_package(path)
    if package is not None:
        return package
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Component(f"pkg:generic/{quote(path.name)}?checksum=sha256:{digest}", path.name, NOT_TOLD, (), digest)


def copyright_file(component: Component) -> Path | None:
    """Where a Debian package states its licences, on this machine as inside images."""
    path = Path("/usr/share/doc") / component.name / "copyright"
    return path if component.reference.startswith("pkg:deb/") and path.is_file() else None


def _debian_package(path: Path) -> Component | None:
    real = str(path.resolve())
    # Packages may name a file by either side of the link from /lib to /usr/lib.
    for name in {str(path), real, real.removeprefix("/usr"), f"/usr{real}"}:
        told = _dpkg("--search", name).partition(": ")[0]
        if told:
            return _debian(told.split(",")[0])
    return None


@functools.cache
def _debian(package: str) -> Component:
    told = _dpkg("--show", "--showformat=${Package}\n${Version}\n${Architecture}", package)
    name, version, architecture = told.split("\n")
    reference = f"pkg:deb/{_distribution()}/{name}@{quote(version)}?arch={architecture}"
    found = Component(reference, name, version)
    text = copyright_file(found)
    said = _DEBIAN_LICENCE.findall(text.read_text(encoding="utf-8", errors="replace")) if text else []
    return Component(reference, name, version, tuple(sorted(set(said))))


def _distribution() -> str:
    return platform.freedesktop_os_release().get("ID", "linux") if os.path.exists("/etc/os-release") else "linux"


@functools.cache
def _dpkg(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["dpkg-query", *arguments], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def add_interpreter(layer: Layer) -> list[Component]:
    """Python with its libraries; what it consists of."""
    python = of_python()
    layer.file(PROGRAM, INTERPRETER, python.reference)
    for name in ("python3", "python"):
        layer.link(f"/usr/bin/{name}", PROGRAM, python.reference)
    objects: list[Path] = []
    for path in files(LIBRARY, NOT_NEEDED_OF_INTERPRETER):
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
    """Files below a folder in a fixed order, without those of the given names and what compilers leave."""
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
    """What the interpreter remembers of its build, without the folders of this machine."""
    text = path.read_text(encoding="utf-8")
    built, prefix = sysconfig.get_config_var("abs_srcdir"), sys.base_prefix
    moved = text.replace(str(built), BUILT_IN) if built else text
    content = (moved if prefix == "/usr" else moved.replace(prefix, PYTHON)).encode()
    layer.data(inside, content, of=python.reference)
    add_compiled(layer, inside, content, python)


def _stripped(path: Path) -> bytes:
    """A shared object without debug symbols, which name build folders too, where this machine has `strip`."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / path.name
        try:
            subprocess.run(["strip", "--strip-debug", "-o", target, path], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return path.read_bytes()
        return target.read_bytes()


def chosen() -> tuple[Distribution, ...]:
    """The product and everything it requires, by name.

    Raises:
        Refused: something is missing, or another version than the constraints name.
    """
    installed: dict[str, Distribution] = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    names = sorted(_required(installed))
    missing = [name for name in names if name not in installed]
    pins = dict(_pins((ROOT / CONSTRAINTS).read_text(encoding="utf-8")))
    other = [
        f"{name} {installed[name].version} instead of {pins.get(name, 'none')}"
        for name in names
        if name in installed and name != OWN and installed[name].version != pins.get(name)
    ]
    if missing or other:
        told = "; ".join([*(f"{name} is missing" for name in missing), *other])
        raise Refused(CONSTRAINTS, f"this environment is not the pinned one: {told}")
    return tuple(installed[name] for name in names)


def _required(installed: dict[str, Distribution]) -> set[str]:
    """Names of the closure of requirements; what is missing is among them."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    to_do: list[tuple[str, tuple[str, ...]]] = [(OWN, EXTRAS)]
    while to_do:
        name, extras = item = to_do.pop()
        if item in seen:
            continue
        seen.add(item)
        for text in installed[name].requires or [] if name in installed else []:
            wanted = Requirement(text)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras or ("",)):
                to_do.append((canonicalize_name(wanted.name), tuple(sorted(wanted.extras))))
    return {name for name, _ in seen}


def _pins(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = re.match(r"([\w.-]+)==(\S+)", line)
        if found:
            yield canonicalize_name(found[1]), found[2]


def add_distributions(layer: Layer, found: Sequence[Distribution]) -> list[Component]:
    """The distributions where Python looks for packages, our own from this checkout; what they consist of."""
    components: list[Component] = []
    objects: list[Path] = []
    for one in found:
        component = of_distribution(one)
        components.append(component)
        copied = list(_copy(layer, one, component))
        objects += [path for path in copied if ".so" in path.suffixes]
    return [*components, *add_libraries(layer, objects)]


def _copy(layer: Layer, found: Distribution, component: Component) -> Iterator[Path]:
    records: list[str] = []
    for name, source in sorted(_files(found)):
        inside = f"{packages_inside()}/{name}"
        layer.file(inside, source, component.reference)
        add_compiled(layer, inside, source.read_bytes(), component)
        records.append(f"{name},,\n")
        yield source
    metadata = next(str(path.parent) for path in found.files or [] if path.name == "METADATA")
    record = f"{metadata}/RECORD"
    layer.data(f"{packages_inside()}/{record}", "".join([*records, f"{record},,\n"]).encode(), of=component.reference)


def _files(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Path below the folder of packages, and where the file is now."""
    for path in found.files or []:
        source = Path(str(found.locate_file(path)))
        if _wanted(path) and source.is_file():
            yield str(path), source
    if canonicalize_name(found.metadata["Name"]) == OWN:
        for folder in FOLDERS:
            yield from (
                (str(path.relative_to(ROOT)), path) for path in files(ROOT / folder, NOT_NEEDED_OF_DISTRIBUTIONS)
            )


def _wanted(path: PackagePath) -> bool:
    local = path.parent.suffix == ".dist-info" and path.name in _LOCAL
    ours = path.name.startswith("_editable_impl_")
    return not local and not ours and ".." not in path.parts and not NOT_NEEDED_OF_DISTRIBUTIONS & set(path.parts[:-1])
