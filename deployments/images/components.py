"""What images are made of, each with version and licence, for the list that lies beside an image."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import quote

NOT_TOLD = "not told"
_NAME = re.compile(r"[\w.+\-() ]{1,200}")
_DEBIAN_LICENCE = re.compile(r"^License: *(\S.{0,80}?) *$", re.MULTILINE)


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
    """Where a Debian package tells its licences, on this machine as inside images."""
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
