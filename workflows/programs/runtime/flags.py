"""Command-line flags of the programs, made from a frozen dataclass, without argparse (its import costs 15 ms a start).

Every field becomes `--field-name=value` (or `--field-name value`); a field of type `Tuple[str, ...]` is repeated for
each of its values; the field whose metadata is `REST` takes everything after `--`. What `to_argv` writes, `from_argv`
reads back to an equal value. `replace` is several times faster than `dataclasses.replace`, which matters to the
coordinator when it replays its journal.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type, TypeVar

REST = {"rest": True}
"""Metadata of the one field that takes everything after `--`."""

T = TypeVar("T")
Main = Callable[[List[str]], int]
"""A program: its arguments to its exit code."""


class UsageError(ValueError):
    """A flag is unknown, misses its value or cannot be read; the message names it and says what would be right."""


class Flags:
    """Base of a program's options."""

    def argv(self) -> List[str]:
        """The flags that say this."""
        return to_argv(self)


def program(name: str) -> Callable[[Main], Main]:
    """A `main` that prints what is wrong with its flags, under the program's name, and ends with 2."""

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def guarded(argv: List[str]) -> int:
            try:
                return main(argv)
            except UsageError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                return 2

        return guarded

    return decorate


def to_argv(options: Any) -> List[str]:
    """The flags that say `options`; fields at their default are left out."""
    argv: List[str] = []
    rest: Sequence[str] = ()
    for item in dataclasses.fields(options):
        value = getattr(options, item.name)
        if item.metadata.get("rest"):
            rest = value
        elif item.type == "Tuple[str, ...]":
            argv += [f"{flag(item.name)}={one}" for one in value]
        elif value != item.default:
            argv.append(f"{flag(item.name)}={(str(value).lower() if isinstance(value, bool) else str(value))}")
    return [*argv, "--", *rest] if rest else argv


def from_argv(kind: Type[T], argv: Sequence[str]) -> T:
    """The options that `argv` says.

    Raises:
        UsageError: an unknown flag, a missing or an unreadable value.
    """
    known = {flag(item.name): item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: Dict[str, Any] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            values[_rest_name(kind)] = tuple(words)
            break
        name, equals, text = word.partition("=")
        item = known.get(name)
        if item is None or item.metadata.get("rest"):
            raise UsageError(f"{name}: no such flag; known are {', '.join(sorted(known))}")
        if not equals:
            if not words:
                raise UsageError(f"{name}: needs a value")
            text = words.pop(0)
        if item.type == "Tuple[str, ...]":
            values[item.name] = (*values.get(item.name, ()), text)
        else:
            values[item.name] = _value(name, str(item.type), text)
    missing = [
        flag(item.name)
        for item in known.values()
        if (item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING)
        and item.name not in values
    ]
    if missing:
        raise UsageError(f"{', '.join(missing)}: must be given")
    return kind(**values)


def flag(name: str) -> str:
    """`save_every` -> `--save-every`."""
    return "--" + name.replace("_", "-")


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_READERS: Dict[str, Tuple[Callable[[str], Any], str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "float": (_finite, "a number"),
    "bool": (_boolean, "true or false"),
}


def _value(name: str, type_name: str, text: str) -> Any:
    reader, expected = _READERS[type_name]
    try:
        return reader(text)
    except (ValueError, KeyError) as error:
        raise UsageError(f"{name}: expected {expected}, got {text!r}") from error


def _rest_name(kind: Type[Any]) -> str:
    for item in dataclasses.fields(kind):
        if item.metadata.get("rest"):
            return item.name
    raise UsageError("--: this program takes no command")


def replace(value: T, **fields: Any) -> T:
    """`value` with other fields. Not for classes with `__post_init__`, slots or fields that are not of `__init__`.

    Raises:
        TypeError: it has no such field.
    """
    known = value.__dict__
    if not fields.keys() <= known.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(fields.keys() - known.keys()))}")
    changed = object.__new__(type(value))
    changed.__dict__.update(known)
    changed.__dict__.update(fields)
    return changed
