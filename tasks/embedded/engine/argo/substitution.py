"""`{{...}}` tags: finding them and replacing them, the one way in which values travel between Argo's steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.expr.evaluate import evaluate_text
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json, is_list, is_map

Lookup = Callable[[str], str | None]
"""From a tag without its braces (`inputs.parameters.n`) to its value; None where it has none."""

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class UnresolvedError(NodeFailure):
    """A tag, given without braces, has no value at this point of the run; `why` is the fault of its expression."""

    def __init__(self, tag: str, why: str = "") -> None:
        super().__init__(f"failed to {'evaluate' if why else 'resolve'} {{{{{tag}}}}}{why and ': '}{why}")
        self.tag = tag


def tags(text: str) -> list[str]:
    """All tags of a text, in order, without braces and outer blanks; an expression's begins with its `=`."""
    return [_name(found) for found in _TAG.findall(text)] if "{{" in text else []


def _name(inner: str) -> str:
    """The tag's name. Only `{{=` begins an expression: after a blank the sign is part of a name, as on Argo."""
    name = inner.strip()
    return f" {name}" if name.startswith("=") and not inner.startswith("=") else name


def _value(tag: str, lookup: Lookup) -> str | None:
    """The value of a tag.

    Raises:
        UnresolvedError: it is an expression that cannot be computed.
    """
    if not tag.startswith("="):
        return lookup(tag)
    try:
        return evaluate_text(tag[1:], {}, lookup)
    except ExpressionError as error:
        raise UnresolvedError(tag, str(error)) from error


def substitute(text: str, lookup: Lookup) -> str:
    """The text with every tag replaced that has a value; the others stay as they are, as on Argo.

    Raises:
        UnresolvedError: an expression cannot be computed.
    """
    if "{{" not in text:
        return text

    def replace(found: re.Match[str]) -> str:
        value = _value(_name(found.group(1)), lookup)
        return found.group(0) if value is None else value

    return _TAG.sub(replace, text)


def substitute_strictly(text: str, lookup: Lookup) -> str:
    """The text with every tag replaced.

    Raises:
        UnresolvedError: a tag has no value.
    """
    if "{{" not in text:
        return text

    def replace(found: re.Match[str]) -> str:
        tag = _name(found.group(1))
        value = _value(tag, lookup)
        if value is None:
            raise UnresolvedError(tag)
        return value

    return _TAG.sub(replace, text)


def substitute_all(value: Any, lookup: Lookup) -> Any:
    """A copy of a JSON value with the tags of all its texts (keys too) replaced where they have a value.

    Raises:
        UnresolvedError: an expression cannot be computed.
    """
    if isinstance(value, str):
        return substitute(value, lookup)
    if is_map(value):
        return {substitute(key, lookup): substitute_all(item, lookup) for key, item in value.items()}
    if is_list(value):
        return [substitute_all(item, lookup) for item in value]
    return value


def texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text inside a JSON value with its path (keys count as texts of their object)."""
    if isinstance(value, str):
        yield path, value
    elif is_map(value):
        yield from _map_texts(value, path)
    elif is_list(value):
        for index, item in enumerate(value):
            yield from texts(item, f"{path}[{index}]")


def _map_texts(value: Json, path: str) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if "{{" in key:
            yield path, key
        yield from texts(item, f"{path}.{key}")
