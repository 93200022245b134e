"""Writes the generated part of docs/profiles.md: every field of every profile model, and the shipped profiles."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from profiles.bootstrap.components import ComponentProfile
from profiles.bootstrap.release import ReleaseProfile
from profiles.bootstrap.request import BootstrapRequest
from profiles.checks.catalogue import PLACEHOLDERS, PROBES
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.fields import is_optional, plain
from profiles.hardware import HardwareProfile
from profiles.health import HealthValues
from profiles.loading import load
from profiles.recovery import RecoveryProfile
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.run import RunProfile
from profiles.values import PATTERNS
from profiles.workspace import WorkspaceProfile

BEGIN = "<!-- generated from the models by `make golden`: do not edit below -->"
END = "<!-- end of the generated part -->"
CHAPTERS: list[tuple[str, type[BaseModel]]] = [
    ("Run profiles", RunProfile),
    ("Recovery profiles", RecoveryProfile),
    ("Cluster profiles", ClusterProfile),
    ("Hardware profiles", HardwareProfile),
    ("Suite profiles", SuiteProfile),
    ("Workspace profiles", WorkspaceProfile),
    ("Releases of Kubernetes", ReleaseProfile),
    ("Components", ComponentProfile),
    ("Values of the health service", HealthValues),
    ("The resolved profile", Resolved),
    ("The request of a run", TrainRequest),
    ("The request of a bootstrap", BootstrapRequest),
]


def models() -> list[tuple[str, list[type[BaseModel]]]]:
    """Chapters with the models they explain: each model once, in the chapter that needs it first."""
    tops = [model for _, model in CHAPTERS]
    seen: set[type[BaseModel]] = set()
    chapters: list[tuple[str, list[type[BaseModel]]]] = []
    for title, top in CHAPTERS:
        found = [model for model in _reached(top) if model not in seen and (model is top or model not in tops)]
        seen.update(found)
        chapters.append((title, found))
    return chapters


def reference() -> str:
    """The generated part, without its markers."""
    parts = ["## Shipped profiles", _shipped()]
    for title, found in models():
        parts.append(f"## {title}")
        parts += [_section(model) for model in found]
        if SuiteProfile in found:
            parts += ["### Probes of suites", _probes(), "### Placeholders of suites", _placeholders()]
    return "\n\n".join(parts)


def _reached(model: type[BaseModel]) -> list[type[BaseModel]]:
    found = [model]
    for info in model.model_fields.values():
        for inner in _models_in(info.annotation):
            found += [item for item in _reached(inner) if item not in found]
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    if get_origin(annotation) is Literal:
        return []
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _section(model: type[BaseModel]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        cells = (f"`{name}`", _kind(info.annotation, info.metadata), _default(info), _prose(info.description or ""))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return f"### `{model.__name__}`\n\n{_prose(model.__doc__ or '')}\n\n" + "\n".join(rows)


def _prose(text: str) -> str:
    return " ".join(text.split())


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.default
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return ", ".join(f"`{getattr(item, 'value', item)}`" for item in items) or "empty"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{getattr(value, 'value', value)}`" if value not in ("", {}) else "empty"


def _kind(annotation: Any, metadata: Any = ()) -> str:
    if getattr(annotation, "__metadata__", None):
        inner = [part for item in annotation.__metadata__ for part in getattr(item, "metadata", [item])]
        return _kind(get_args(annotation)[0], [*metadata, *inner])
    if is_optional(annotation):
        return _kind(plain_once(annotation), metadata) + " or none"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"mapping to {_kind(arguments[1])}"
    if origin is Literal:
        return ", ".join(f"`{item}`" if item else "empty" for item in arguments)
    return _leaf(annotation, metadata) if isinstance(annotation, type) else ", ".join(_kind(arg) for arg in arguments)


def plain_once(annotation: Any) -> Any:
    """The annotation without `| None`, its constraints kept."""
    others = [item for item in get_args(annotation) if item is not type(None)]
    return others[0] if len(others) == 1 else plain(annotation)


def _leaf(kind: Any, metadata: Any) -> str:
    if issubclass(kind, BaseModel):
        return f"[`{kind.__name__}`](#{kind.__name__.lower()})"
    if issubclass(kind, Enum):
        return ", ".join(f"`{item.value}`" for item in kind)
    patterns = [PATTERNS[item.pattern] for item in metadata if getattr(item, "pattern", None) in PATTERNS]
    words = {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(kind, "anything")
    return (f"{words}: {patterns[0]}" if patterns else words) + "".join(_bounds(metadata))


def _bounds(metadata: Any) -> list[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return [
        f" {sign} {getattr(item, name):g}"
        for item in metadata
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ] + [f", at most {item.max_length} characters" for item in metadata if getattr(item, "max_length", None)]


def _probes() -> str:
    rows = ["| probe | what it does | what it tells | arguments |", "|---|---|---|---|"]
    for name, probe in PROBES.items():
        told = ", ".join(f"`{quantity}` ({unit or 'a word'})" for quantity, unit in probe.quantities.items())
        rows.append(f"| `{name}` | {probe.what} | {told} | {', '.join(f'`{item}`' for item in probe.arguments)} |")
    return "\n".join(rows)


def _placeholders() -> str:
    rows = ["| placeholder | what it becomes |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{{{word}}}` | {what} |" for word, what in PLACEHOLDERS.items())])


def _shipped() -> str:
    rows = ["| kind | name | what | run for real |", "|---|---|---|---|"]
    for item in load.list_profiles():
        real = {None: "", True: "yes", False: "no"}[item.verified]
        rows.append(f"| {item.kind} | `{item.name}` | {_prose(item.description)} | {real} |")
    return "\n".join(rows)
