"""One profile over another: what `extends` means."""

from __future__ import annotations

from typing import Any, TypeGuard, cast

BY_NAME = ("roles", "pools", "checks")
"""Lists whose entries carry a name: merged entry by entry. Every other list is replaced as a whole."""
NOT_INHERITED = ("verified",)
"""What was run for real was the parent, not whatever extends it."""

Mapping = dict[str, Any]


def merged(parent: Mapping, child: Mapping) -> Mapping:
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


def inheritable(data: Mapping) -> Mapping:
    """What a child takes over: everything but the proofs of having been run."""
    kept = {key: value for key, value in data.items() if key not in NOT_INHERITED}
    overlays = kept.get("by_hardware")
    if isinstance(overlays, dict):
        items = cast("Mapping", overlays).items()
        kept["by_hardware"] = {name: inheritable(item) if _is_mapping(item) else item for name, item in items}
    return kept


def _is_mapping(value: Any) -> TypeGuard[Mapping]:
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
