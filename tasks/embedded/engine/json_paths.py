"""`jsonpath(text, '$.a.b[0]')`: members, indices, wildcards and simple filters of a JSON value."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.embedded.engine.json_values import is_list, is_map

_PART = re.compile(
    r"""\.(?P<name>[^.\[\]*]+)
    |\[(?P<index>-?\d+)\]
    |\[['"](?P<quoted>[^'"]+)['"]\]
    |(?P<all>\.\*|\[\*\])
    |\[\?\(@\.(?P<key>\w+)\s*(?P<sign>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|-?\d+(?:\.\d+)?|true|false)\)\]""",
    re.VERBOSE,
)


def check_path(path: str) -> list[re.Match[str]]:
    """The parts of a path.

    Raises:
        ValueError: it has something in it that is not read here.
    """
    if not path.startswith("$"):
        raise ValueError(f"'{path}' must begin with $")
    parts: list[re.Match[str]] = []
    position = 1
    while position < len(path):
        part = _PART.match(path, position)
        if part is None:
            raise ValueError(f"'{path}' may hold only members, indices, * and filters like [?(@.name=='x')]")
        parts.append(part)
        position = part.end()
    return parts


def query(value: Any, path: str) -> Any:
    """What lies at the path; with a wildcard or filter in it the list of all that does.

    Raises:
        ValueError: the path has something else in it, or nothing lies there.
    """
    found, many = [value], False
    for part in check_path(path):
        if part["all"] or part["key"]:
            many = True
            found = [item for one in found for item in _all(one) if not part["key"] or _fits(item, part)]
        else:
            key: str | int = int(part["index"]) if part["index"] else part["name"] or part["quoted"]
            found = [_one(one, key, path) for one in found if not many or _has(one, key)]
    return found if many else found[0]


def _all(value: Any) -> list[Any]:
    if is_list(value):
        return value
    return list(value.values()) if is_map(value) else []


def _fits(item: Any, part: re.Match[str]) -> bool:
    wanted: Any = part["value"][1:-1] if part["value"][0] in "\"'" else json.loads(part["value"])
    return is_map(item) and part["key"] in item and (item[part["key"]] == wanted) == (part["sign"] == "==")


def _has(value: Any, key: str | int) -> bool:
    if isinstance(key, int):
        return is_list(value) and -len(value) <= key < len(value)
    return is_map(value) and key in value


def _one(value: Any, key: str | int, path: str) -> Any:
    if not _has(value, key):
        raise ValueError(f"nothing lies at '{path}'")
    return value[key]
