"""YAML text as plain data, and back.

Used by the loader and the overrides; knows no file and no model. A small dialect on purpose: mappings, lists, strings,
numbers, true, false and null of YAML 1.2 (`no` and `on` are words, `1:30` is text). Anchors, tags and several documents
in one file are refused: `extends` says the same in one place, and a short text stays a small value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import yaml

from profiles.errors import ProfileError

MAX_BYTES = 1 << 20
"""1 MiB: some 300 times the largest shipped profile."""
MAX_DEPTH = 24
"""Levels of nesting; the deepest field of any profile lies at 6."""
MAX_INTEGER_DIGITS = 18
"""Fits 64 bits."""
WHOLE = "(whole file)"
"""Stands for a field where the text as a whole is wrong."""

FieldPath = tuple[str | int, ...]

_LOADER = cast("type[yaml.SafeLoader]", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_DUMPER = cast("type[yaml.SafeDumper]", getattr(yaml, "CSafeDumper", yaml.SafeDumper))
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Document:
    """What a text says."""

    data: Any
    """Dictionaries, lists, strings, numbers, booleans, None."""
    lines: dict[FieldPath, int] = field(default_factory=dict[FieldPath, int])
    """Line of each value, from 1; keys are the way to it, e.g. `("roles", 0, "image")`."""


def read_mapping(raw: bytes, source: str) -> Document:
    """The mapping that `raw` holds.

    Raises:
        ProfileError: too large, not UTF-8, not YAML, or not a mapping; names line and column.
    """
    if len(raw) > MAX_BYTES:
        raise ProfileError(WHOLE, f"is larger than {MAX_BYTES} bytes; this is no profile", source)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"line {line}", "is not UTF-8 text; save the file as UTF-8", source) from error
    document = read(text, source)
    if document.data is None:
        raise ProfileError(WHOLE, "is empty; a profile needs at least a name", source)
    if not isinstance(document.data, dict):
        raise ProfileError(WHOLE, "must be a mapping of fields, e.g. `name: my-run`", source)
    return document


def read(text: str, source: str, *, plain_is_text: bool = False) -> Document:
    """Any value that `text` holds; with `plain_is_text` unquoted scalars stay strings, whatever they look like.

    Raises:
        ProfileError: not YAML of our dialect; names line and column.
    """
    reader = _Reader(source, plain_is_text)
    try:
        for event in _events(text):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        _refuse(mark, f"is not valid YAML: {what}{_hint(text, mark)}", source, error)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", "") or "the text cannot be read"
        raise ProfileError(WHOLE, f"is not valid YAML: {reason}", source) from error
    return Document(reader.result, reader.lines)


def _events(text: str) -> Iterator[yaml.Event]:
    return cast("Iterator[yaml.Event]", yaml.parse(text, Loader=_LOADER))  # pyright: ignore[reportUnknownMemberType]


def _hint(text: str, mark: yaml.Mark | None) -> str:
    if mark is None:
        return ""
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    return "; indent with spaces, not with tabs" if "\t" in line else ""


def _refuse(mark: Any, reason: str, source: str, cause: BaseException | None = None) -> NoReturn:
    where = WHOLE if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
    raise ProfileError(where, reason, source) from cause


@dataclass
class _Open:
    """A mapping or list that is being read."""

    value: dict[str, Any] | list[Any]
    key: str | None = None


class _Reader:
    """Builds the value from the parser's events with a stack of its own, so that no text can exhaust Python's."""

    def __init__(self, source: str, plain_is_text: bool) -> None:
        self.source = source
        self.plain_is_text = plain_is_text
        self.result: Any = None
        self.lines: dict[FieldPath, int] = {}
        self._stack: list[_Open] = []
        self._path: list[str | int] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._refuse_extras(event)
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._refuse_extras(event)
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._stack.pop()
                self._leave()
            case yaml.AliasEvent():
                self._no(event, "uses an alias (*); write the value out, or use `extends`")
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._no(event, "starts a second document; one file holds one profile")
            case _:
                pass

    def _no(self, event: yaml.Event, reason: str) -> NoReturn:
        _refuse(event.start_mark, reason, self.source)

    def _refuse_extras(self, event: Any) -> None:
        if event.anchor is not None:
            self._no(event, "uses an anchor (&); write the value out, or use `extends`")
        if event.tag is not None and event.tag != "!":
            self._no(event, f"uses the tag {event.tag!r}; tags are not supported")

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._no(event, "uses a mapping or list as a key; keys are words")
        if len(self._stack) >= MAX_DEPTH:
            self._no(event, f"is nested deeper than {MAX_DEPTH} levels")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._place(value, event)
        self._stack.append(_Open(value))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if "\0" in event.value:
            self._no(event, "holds a NUL character")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if event.value in top.value:
                self._no(event, f"says {event.value!r} twice; keep one of them")
            top.key = event.value
            return
        plain = event.implicit[0] and not self.plain_is_text
        self._place(self._value(event) if plain else event.value, event)
        self._leave()

    def _value(self, event: yaml.ScalarEvent) -> Any:
        try:
            return plain_value(event.value)
        except ValueError as error:
            self._no(event, str(error))

    def _place(self, value: Any, event: yaml.Event) -> None:
        """Put a value where the reader stands and step onto it."""
        if not self._stack:
            self.result = value
        else:
            top = self._stack[-1]
            if isinstance(top.value, dict):
                assert top.key is not None  # noqa: S101 - the parser sends a key before each value
                top.value[top.key] = value
                self._path.append(top.key)
            else:
                top.value.append(value)
                self._path.append(len(top.value) - 1)
        self.lines[tuple(self._path)] = event.start_mark.line + 1

    def _leave(self) -> None:
        if self._stack:
            self._stack[-1].key = None
            self._path.pop()


def plain_value(text: str) -> Any:
    """What an unquoted scalar means.

    Raises:
        ValueError: a number that is not finite or too large.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-")) > MAX_INTEGER_DIGITS:
            raise ValueError(f"holds a number of more than {MAX_INTEGER_DIGITS} digits; put quotes around text")
        return int(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("must be a finite number; there is no field for infinity or NaN")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("holds a number beyond what a computer can count")
        return number
    return text


class _Dumper(_DUMPER):
    """Writes our dialect: what would be read as something else gets quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias: we would not read it back."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        is_text = plain_value(text) == text
    except ValueError:
        is_text = False
    style = None if is_text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _represent_text)


def write(data: Any) -> str:
    """`data` as YAML that `read` gives back unchanged."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
