"""Reads profiles: the only module of this folder that opens files.

A profile is named (`demo`: one of the shipped ones, or one in a folder of `search`), or given as a path (anything with
a `/` in it or ending in `.yaml`). It may extend others: `merged` lays the child's fields over the parent's. Every error
is a `ProfileError` that names the field, what is wrong and what to do. Used by tasks and the command line.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, cast

from profiles.bootstrap.components import ComponentProfile
from profiles.bootstrap.release import ReleaseProfile
from profiles.checks.suite import SuiteProfile, on_storage_class, refuse_misfits
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading.document import MAX_BYTES, Document, read_mapping, write
from profiles.loading.overrides import apply_override
from profiles.loading.validation import checked
from profiles.recovery import RecoveryProfile
from profiles.resolve import Resolved, differences, digest, resolved_on
from profiles.run import RunProfile
from profiles.values import Value, did_you_mean
from profiles.workspace import WorkspaceProfile

JsonMapping = dict[str, Any]
Model = TypeVar("Model", bound=Value)
Data = dict[str, Any]

BY_NAME = ("roles", "pools", "checks")
"""Lists whose entries carry a name: merged entry by entry. Every other list is replaced as a whole."""
NOT_INHERITED = ("verified",)
"""What was run for real was the parent, not whatever extends it."""

__all__ = [
    "Listed",
    "differences",
    "digest",
    "dump",
    "is_path",
    "list_profiles",
    "load_cluster",
    "load_component",
    "load_hardware",
    "load_recovery",
    "load_release",
    "load_run",
    "load_shelf",
    "load_suite",
    "load_text",
    "load_workspace",
    "resolve",
    "run_from_mapping",
    "run_names",
]

SHIPPED = Path(__file__).parents[1]
"""The profiles that come with this package."""
EXTENDS = "extends"
MAX_ANCESTORS = 8
"""Nobody reads a chain longer than this."""

_FOLDERS: Mapping[type[Value], str] = {
    RunProfile: "runs",
    ClusterProfile: "clusters",
    HardwareProfile: "hardware",
    RecoveryProfile: "recovery",
    SuiteProfile: "suites",
    WorkspaceProfile: "workspaces",
    ReleaseProfile: "releases",
    ComponentProfile: "components",
}
_NOUNS = {folder: folder.removesuffix("s") for folder in _FOLDERS.values()}


@dataclass(frozen=True)
class Listed:
    """One line of `primus profiles list`."""

    kind: str
    """`run`, `cluster`, `hardware`, `recovery`, `suite`, `workspace`, `release` or `component`."""
    name: str
    path: Path
    description: str
    verified: bool | None
    """Whether it was run for real; None where that is no question."""


def load_run(name_or_path: str, overrides: Iterable[str] = (), search: Sequence[Path] = ()) -> RunProfile:
    """A run profile, with `overrides` (`a.b=c`) applied in their order.

    Raises:
        ProfileError: no such profile, or something in it is wrong.
    """
    return _load(RunProfile, name_or_path, overrides, search)


def load_cluster(name_or_path: str, overrides: Iterable[str] = (), search: Sequence[Path] = ()) -> ClusterProfile:
    """A cluster profile; likewise."""
    return _load(ClusterProfile, name_or_path, overrides, search)


@lru_cache(maxsize=64)
def load_hardware(name_or_path: str, search: tuple[Path, ...] = ()) -> HardwareProfile:
    """A hardware profile; read once per process. See `load_run`."""
    return _load(HardwareProfile, name_or_path, (), search)


def load_recovery(name_or_path: str, search: Sequence[Path] = ()) -> RecoveryProfile:
    """A recovery profile; see `load_run`."""
    return _load(RecoveryProfile, name_or_path, (), search)


def load_suite(
    name_or_path: str,
    overrides: Iterable[str] = (),
    search: Sequence[Path] = (),
    cluster: ClusterProfile | None = None,
) -> SuiteProfile:
    """A suite, held against the hardware and the storage of `cluster` where one is given; see `load_run`."""
    suite = _load(SuiteProfile, name_or_path, overrides, search)
    names = sorted({pool.hardware for pool in cluster.pools}) if cluster else []
    kinds = [load_hardware(name, tuple(search)) for name in names]
    refuse_misfits(suite, kinds, _names("hardware", search), f"suite profile {suite.name}")
    return on_storage_class(suite, cluster.admission.storage_class) if cluster else suite


def load_workspace(name_or_path: str, overrides: Iterable[str] = (), search: Sequence[Path] = ()) -> WorkspaceProfile:
    """A workspace profile; see `load_run`."""
    return _load(WorkspaceProfile, name_or_path, overrides, search)


def load_release(name_or_path: str, search: Sequence[Path] = ()) -> ReleaseProfile:
    """A release of Kubernetes; see `load_run`."""
    return _load(ReleaseProfile, name_or_path, (), search)


def load_component(name_or_path: str, search: Sequence[Path] = ()) -> ComponentProfile:
    """A component of the shelf; see `load_run`."""
    return _load(ComponentProfile, name_or_path, (), search)


@lru_cache(maxsize=4)
def load_shelf(search: tuple[Path, ...] = ()) -> Mapping[str, ComponentProfile]:
    """All components that can be named, by name; read once per process."""
    return {name: load_component(name, search) for name in sorted(_names("components", search))}


def run_from_mapping(
    data: Mapping[str, Any], overrides: Iterable[str] = (), source: str = "inline profile", search: Sequence[Path] = ()
) -> RunProfile:
    """A run profile given as data, e.g. in a request. It may extend shipped profiles by name, but open no path.

    Raises:
        ProfileError: something in it is wrong.
    """
    parent = data.get(EXTENDS)
    if isinstance(parent, str) and is_path(parent):
        raise ProfileError(EXTENDS, "must be a profile's name here: a request opens no files", source)
    whole = _inherited(RunProfile, Document(dict(data)), source, SHIPPED, search, ())
    return _finished(RunProfile, whole, {}, overrides, source, search)


def load_text(model: type[Model], text: str, source: str = "text") -> Model:
    """A profile from YAML text that extends nothing; gives back what `dump` wrote. Raises `ProfileError`."""
    document = read_mapping(text.encode(errors="surrogatepass"), source)
    return checked(model, document.data, source, document.lines)


def dump(value: Value) -> str:
    """The whole value as YAML, defaults included; `load_text` reads it back unchanged."""
    return write(value.model_dump(mode="json"))


def resolve(
    run: RunProfile, cluster: ClusterProfile, hardware_by_name: Mapping[str, HardwareProfile] | None = None
) -> Resolved:
    """Everything a run needs to know, as one frozen value; see `profiles.resolve.resolved_on`.

    `hardware_by_name`: None: the shipped ones.

    Raises:
        ProfileError: an unknown name, no fitting pool, or a gang that can never be placed there.
    """
    if hardware_by_name is None:
        named = {*run.hardware, *run.by_hardware, *(pool.hardware for pool in cluster.pools)}
        shipped = _names("hardware", ())
        known: dict[str, HardwareProfile] = {name: load_hardware(name) for name in sorted(named & shipped.keys())}
        unknown = sorted(named - shipped.keys())
        hardware_by_name = known if not unknown else {name: load_hardware(name) for name in sorted(shipped)}
    return resolved_on(run, cluster, hardware_by_name)


def list_profiles(search: Sequence[Path] = ()) -> list[Listed]:
    """All profiles that can be named, by kind and name. Raises `ProfileError` where one of them is wrong."""
    listed: list[Listed] = []
    for model, folder in _FOLDERS.items():
        for name, path in sorted(_names(folder, search).items()):
            value = _load(model, name, (), search)
            verified = getattr(value, "verified", None)
            description = str(getattr(value, "description", ""))
            listed.append(Listed(_NOUNS[folder], name, path, description, verified))
    return listed


def run_names() -> list[str]:
    """The shipped run profiles."""
    return sorted(_names("runs", ()))


def _names(folder: str, search: Sequence[Path]) -> dict[str, Path]:
    """Profiles that can be named; the first folder of `search` wins, the shipped ones come last."""
    found: dict[str, Path] = {}
    for root in (SHIPPED, *reversed(search)):
        found |= {path.stem: path for path in (root / folder).glob("*.yaml")}
    return found


def is_path(name_or_path: str) -> bool:
    """Whether it is the path of a file, and no name."""
    return "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))


def _find(model: type[Value], name_or_path: str, near: Path, search: Sequence[Path], field: str, source: str) -> Path:
    folder = _FOLDERS[model]
    if is_path(name_or_path):
        return near / name_or_path
    names = _names(folder, search)
    if name_or_path not in names:
        reason = f'no {_NOUNS[folder]} profile is called "{name_or_path}"' + did_you_mean(
            name_or_path, names, "shipped"
        )
        raise ProfileError(field, f"{reason}; a file is given as a path, e.g. ./{name_or_path or 'mine'}.yaml", source)
    return names[name_or_path]


def _read(path: Path, field: str, source: str) -> Document:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ProfileError(field, f"{path} is no regular file", source)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or "no such path"
        raise ProfileError(field, f"cannot read {path}: {reason}", source) from error
    return read_mapping(raw, str(path))


def _load(model: type[Model], name_or_path: str, overrides: Iterable[str], search: Sequence[Path]) -> Model:
    path = _find(model, name_or_path, Path(), search, "profile", "")
    document = _read(path, "profile", "")
    source = str(path) if is_path(name_or_path) else f"{_NOUNS[_FOLDERS[model]]} profile {name_or_path}"
    data = _inherited(model, document, source, path.parent, search, (path.resolve(),))
    lines = document.lines if EXTENDS not in document.data else {}
    return _finished(model, data, lines, overrides, source, search)


def _inherited(
    model: type[Value],
    document: Document,
    source: str,
    folder: Path,
    search: Sequence[Path],
    ancestors: tuple[Path, ...],
) -> Data:
    """The document's data over that of its ancestors, named recovery profiles filled in."""
    data: Data = dict(document.data)
    if EXTENDS not in data:
        return _with_recovery(model, data, source, search)
    given = data.pop(EXTENDS)
    several = model is SuiteProfile and isinstance(given, list) and 0 < len(cast("list[Any]", given)) <= MAX_ANCESTORS
    names = cast("list[Any]", given if several else [given])
    above = [inheritable(_parent(model, name, source, folder, search, ancestors)) for name in names]
    return merged(reduce(merged, above), _with_recovery(model, data, source, search))


def _parent(
    model: type[Value], name: Any, source: str, folder: Path, search: Sequence[Path], ancestors: tuple[Path, ...]
) -> Data:
    if not isinstance(name, str) or not name:
        raise ProfileError(EXTENDS, "must be the name of a profile or a path; suites: up to 8 of them", source)
    path = _find(model, name, folder, search, EXTENDS, source)
    if path.resolve() in ancestors or len(ancestors) >= MAX_ANCESTORS:
        chain = " -> ".join(step.name for step in (*ancestors, path))
        raise ProfileError(EXTENDS, f"runs in a circle or is longer than {MAX_ANCESTORS}: {chain}", source)
    parent = _read(path, EXTENDS, source)
    return _inherited(model, parent, str(path), path.parent, search, (*ancestors, path.resolve()))


def _with_recovery(model: type[Value], data: Data, source: str, search: Sequence[Path]) -> Data:
    """`recovery: patient` becomes the whole profile; `recovery: {extends: patient, …}` likewise, with changes."""
    given = data.get("recovery")
    if model is not RunProfile or given is None:
        return data
    if isinstance(given, str):
        path = _find(RecoveryProfile, given, Path(), search, "recovery", source)
        return data | {"recovery": _whole_recovery(_read(path, "recovery", source).data, str(path), search)}
    if isinstance(given, dict) and EXTENDS in given:
        try:
            return data | {"recovery": _whole_recovery(cast("Data", given), source, search)}
        except ProfileError as error:
            raise ProfileError(f"recovery.{error.field}", error.reason, error.source) from error
    return data


def _whole_recovery(data: Data, source: str, search: Sequence[Path]) -> Data:
    whole = _inherited(RecoveryProfile, Document(data), source, SHIPPED, search, ())
    return checked(RecoveryProfile, whole, source).model_dump(mode="json")


def _finished(
    model: type[Model],
    data: Data,
    lines: Mapping[tuple[str | int, ...], int],
    overrides: Iterable[str],
    source: str,
    search: Sequence[Path],
) -> Model:
    value = checked(model, data, source, lines)
    for text in overrides:
        data = _with_recovery(model, apply_override(model, data, text), f"--set {text}", search)
        value = checked(model, data, f"--set {text}")
    return value


def merged(parent: JsonMapping, child: JsonMapping) -> JsonMapping:
    """The parent with the child's fields over it.

    Mappings are merged, lists replaced, `roles`, `pools` and `checks` merged by name (the parent's order first), and
    `null` takes the parent's value away, so that the field's default holds again.
    """
    result = dict(parent)
    for key, value in child.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _over(key, result.get(key), value)
    return result


def inheritable(data: JsonMapping) -> JsonMapping:
    """What a child takes over: everything but the proofs of having been run."""
    kept = {key: value for key, value in data.items() if key not in NOT_INHERITED}
    overlays = kept.get("by_hardware")
    if isinstance(overlays, dict):
        items = cast("dict[str, Any]", overlays).items()
        kept["by_hardware"] = {name: inheritable(item) if _is_mapping(item) else item for name, item in items}
    return kept


def _is_mapping(value: Any) -> TypeGuard[JsonMapping]:
    return isinstance(value, dict)


def _over(key: str, old: Any, new: Any) -> Any:
    if _is_mapping(old) and _is_mapping(new):
        return merged(old, new)
    if key in BY_NAME and isinstance(old, list) and isinstance(new, list):
        return _entries(cast("list[Any]", old), cast("list[Any]", new))
    return new


def _entries(old: list[Any], new: list[Any]) -> list[Any]:
    result = list(old)
    for entry in new:
        place = _place(result, entry)
        if place is None:
            result.append(entry)
        else:
            result[place] = merged(result[place], entry)
    return result


def _place(entries: list[Any], entry: Any) -> int | None:
    name = _name(entry)
    if name is None:
        return None
    return next((index for index, other in enumerate(entries) if _name(other) == name), None)


def _name(entry: Any) -> Any:
    return entry.get("name") if _is_mapping(entry) else None


def check_admission(profile: ClusterProfile, suite: SuiteProfile) -> None:
    """Refuse wishes that no test can meet: a run would wait for ever.

    Only what the profile itself says is asked for; shipped wishes that a small suite cannot meet are left out.

    Raises:
        ProfileError: the field is named.
    """
    wanted = profile.admission.depths
    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    for field in sorted(wanted.model_fields_set):
        for depth in getattr(wanted, field):
            if not any(suite.checks_of(depth, kind) for kind in kinds):
                reason = f"suite {suite.name} has no check of depth {depth} for these nodes; name another suite"
                raise ProfileError(f"admission.depths.{field}", reason)
