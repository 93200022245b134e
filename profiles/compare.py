"""Whether two resolved profiles mean the same run, and where not."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from pydantic import BaseModel

from profiles.fields import written
from profiles.resolve import Resolved

FOR_PEOPLE = frozenset({"description", "verified", "source", "trial"})
"""Fields that change nothing about a run."""
MAX_SHOWN = 80
ABSENT = "(not set)"

_FOREIGN_SOURCE = frozenset({"storage"})
"""`source` of a storage is a folder, no citation."""


def digest(resolved: BaseModel) -> str:
    """SHA-256 of what the value means, as hex digits.

    Values left at their default do not count, so a new field of a later version does not make every run a stranger.
    """
    data = _meaning(resolved.model_dump(mode="json", exclude_defaults=True))
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def differences(old: Resolved, new: Resolved) -> list[str]:
    """What differs, one line a field: `steps: 100 -> 200`; empty exactly where the digests are equal.

    Fields of the run are named as `--set` names them; others start with `cluster.`, `pool.` or `hardware.`.
    """
    lines: list[str] = []
    _compare(_meaning(old.model_dump(mode="json")), _meaning(new.model_dump(mode="json")), (), lines)
    return lines


def _meaning(data: Any, inside: str = "") -> Any:
    if isinstance(data, dict):
        ignored = FOR_PEOPLE - {"source"} if inside in _FOREIGN_SOURCE else FOR_PEOPLE
        items = cast("dict[str, Any]", data).items()
        free = inside in _FREE_KEYS
        return {key: _meaning(value, key) for key, value in items if free or key not in ignored}
    if isinstance(data, list):
        return [_meaning(item, inside) for item in cast("list[Any]", data)]
    return data


_FREE_KEYS = frozenset({"environment", "fabric_environment", "labels", "programs", "priority_classes", "by_hardware"})
"""Mappings whose keys are the user's own words."""


def _compare(old: Any, new: Any, path: tuple[str | int, ...], lines: list[str]) -> None:
    if old == new:
        return
    left, right = _named(old), _named(new)
    if left is None or right is None:
        shown = path[1:] if path[0] == "run" else path
        lines.append(f"{written(shown)}: {_shown(old)} -> {_shown(new)}")
        return
    for key in [*left, *(key for key in right if key not in left)]:
        _compare(left.get(key, ABSENT), right.get(key, ABSENT), (*path, key), lines)


def _named(value: Any) -> dict[str, Any] | None:
    """A mapping, or a list of named things as a mapping; None for everything else."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    names = [cast("dict[str, Any]", item).get("name") for item in items if isinstance(item, dict)]
    unique = len(names) == len(items) and len(set(names)) == len(names) and None not in names
    return {str(name): item for name, item in zip(names, items, strict=True)} if unique and items else None


def _shown(value: Any) -> str:
    if value is ABSENT:
        return ABSENT
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
