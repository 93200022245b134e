"""The product with all it needs, from the present environment: pinned versions, without tests and caches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deployments.images.components import Component, of_distribution
from deployments.images.interpreter import add_compiled, add_libraries, files, packages_inside
from deployments.images.layers import Layer
from profiles.errors import Refused

ROOT = Path(__file__).resolve().parents[2]
OWN = "primus-flows"
EXTRAS = ("control", "program")
"""What of the product's extras an image needs; the rest is for tests."""
FOLDERS = ("profiles", "workflows", "tasks", "flows", "deployments")
CONSTRAINTS = "constraints.txt"
NOT_NEEDED = frozenset({"__pycache__", "test", "tests"})
_LOCAL = ("RECORD", "REQUESTED", "direct_url.json", "INSTALLER")
"""Files of a `.dist-info` that tell of the machine it was installed on; RECORD is written anew."""


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


def add(layer: Layer, found: Sequence[Distribution]) -> list[Component]:
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
            yield from ((str(path.relative_to(ROOT)), path) for path in files(ROOT / folder, NOT_NEEDED))


def _wanted(path: PackagePath) -> bool:
    local = path.parent.suffix == ".dist-info" and path.name in _LOCAL
    ours = path.name.startswith("_editable_impl_")
    return not local and not ours and ".." not in path.parts and not NOT_NEEDED & set(path.parts[:-1])
