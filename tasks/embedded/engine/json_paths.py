"""`jsonpath(text, '$.a.b[0]')`: members, indices and wildcards of a JSON value."""

from __future__ import annotations

import re
from typing import Any

from tasks.embedded.engine.json_values import is_list, is_map

_PART = re.compile(
    r"""\.(?P<name>[^.\[\]*]+)|\[(?P<index>-?\d+)\]|\[['"](?P<quoted>[^'"]+)['"]\]|(?P<all>\.\*|\[\*\])"""
)


def query(value: Any, path: str) -> Any:
    """What lies at the path; with a wildcard in it the list of all that does.

    Raises:
        ValueError: the path has something else in it, or nothing lies there.
    """
    if not path.startswith("$"):
        raise ValueError(f"'{path}' must begin with $")
    found, many, position = [value], False, 1
    while position < len(path):
        part = _PART.match(path, position)
        if part is None:
            raise ValueError(f"'{path}' may hold only members, indices and *")
        position = part.end()
        if part["all"]:
            many = True
            found = [item for one in found for item in _all(one)]
        else:
            key: str | int = int(part["index"]) if part["index"] else part["name"] or part["quoted"]
            found = [_one(one, key, path) for one in found]
    return found if many else found[0]


def _all(value: Any) -> list[Any]:
    if is_list(value):
        return value
    return list(value.values()) if is_map(value) else []


def _one(value: Any, key: str | int, path: str) -> Any:
    if isinstance(key, int) and is_list(value) and -len(value) <= key < len(value):
        return value[key]
    if isinstance(key, str) and is_map(value) and key in value:
        return value[key]
    raise ValueError(f"nothing lies at '{path}'")
