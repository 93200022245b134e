"""Frozen dataclasses to JSON and back: what `workflows.reports` and others travel as. Standard library only.

Unknown keys are ignored; a missing or mistyped one raises ValueError naming the key. NaN and infinities become the
strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import lru_cache
from typing import Any, Callable, Dict, List, Tuple, Type, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_NOT_FINITE = ("nan", "inf", "-inf")
T = TypeVar("T")
Reader = Callable[[Any, str], Any]
"""A value of JSON and where it stands, to the value of a field."""


def to_json(report: Any) -> str:
    """One line of JSON; NaN and infinities become strings."""
    return json.dumps(plain(dataclasses.asdict(report)), separators=(",", ":"), ensure_ascii=False)


def from_dict(kind: Type[T], data: Dict[str, Any]) -> T:
    """The value of class `kind` in a parsed object.

    Raises:
        ValueError: a key is missing or has the wrong type (the key is named).
    """
    values: Dict[str, Any] = {}
    for name, read, required, where in _fields(kind):
        if name in data:
            values[name] = read(data[name], where)
        elif required:
            raise ValueError(f"{kind.__name__}: {name} is missing")
    return kind(**values)


@lru_cache(maxsize=None)
def _fields(kind: Any) -> Tuple[Tuple[str, Reader, bool, str], ...]:
    """Name, reader, whether it must be there, and its name in errors; made once, as steps come by the thousand."""
    hints = get_type_hints(kind)
    return tuple(
        (item.name, _reader(hints[item.name]), item.default is item.default_factory, f"{kind.__name__}.{item.name}")
        for item in dataclasses.fields(kind)
    )


def _reader(hint: Any) -> Reader:
    """What makes a field of that type from JSON."""
    origin = get_origin(hint)
    if origin is Union:  # Optional[X]
        inner = _reader(next(arg for arg in get_args(hint) if arg is not type(None)))
        return lambda value, where: None if value is None else inner(value, where)
    if origin is list:
        return _list_reader(_reader(get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return lambda value, where: _object(hint, value, where)
    return lambda value, where: value if type(value) is hint else _scalar(hint, value, where)


def _list_reader(read: Reader) -> Reader:
    def items(value: Any, where: str) -> List[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list")
        return [read(item, f"{where}[{index}]") for index, item in enumerate(cast("List[Any]", value))]

    return items


def _object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object")
    return from_dict(kind, cast("Dict[str, Any]", value))


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any or get_origin(hint) is dict:
        return value
    if hint is float and not isinstance(value, bool) and (isinstance(value, (int, float)) or value in _NOT_FINITE):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"{where}: the number is too large") from error
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise ValueError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {type(value).__name__}")


def plain(value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in cast("Dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("List[Any]", value)]
    return value
