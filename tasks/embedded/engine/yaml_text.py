"""YAML as Kubernetes' own tools read it: `1:30` and dates are texts, keys are texts, no key stands twice.

Imported late where a text may as well be JSON: PyYAML takes longer to import than most texts to be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import yaml

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(word for base in ("yes", "true", "on") for word in (base, base.capitalize(), base.upper()))
_FALSE = frozenset(word for base in ("no", "false", "off") for word in (base, base.capitalize(), base.upper()))
_WHOLE = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_PLAIN = "tag:primus-flows.io,2026:plain"
_MERGE = "tag:yaml.org,2002:merge"

Scalar = str | int | float | bool | None


class YamlError(ValueError):
    """A text is no YAML.

    Args:
        line: where it breaks off, from 1; 0: the reader cannot say.
        column: the same.
        why: in the reader's words.
    """

    def __init__(self, line: int, column: int, why: str) -> None:
        super().__init__(f"line {line}: {why}" if line else why)
        self.line, self.column, self.why = line, column, why


def read_yaml(text: str) -> Any:
    """The value of a text with one YAML document.

    Raises:
        YamlError: it cannot be read, or holds several.
    """
    with _lines_named(text):
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def read_yaml_documents(text: str) -> list[Any]:
    """The values of all documents of a text; that of an empty one is None.

    Raises:
        YamlError: it cannot be read.
    """
    with _lines_named(text):
        return list(yaml.load_all(text, Loader=_Loader))


@contextmanager
def _lines_named(text: str) -> Generator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        last = max(1, len(text.splitlines()))  # what is missing at the end counts to the last line
        line, column = (min(mark.line + 1, last), mark.column + 1) if mark else (0, 0)
        raise YamlError(line, column, str(error.problem)) from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise YamlError(0, 0, str(error)) from error


if TYPE_CHECKING:
    _Safe = yaml.SafeLoader
else:  # libyaml reads the JobSet of an attempt in 2 ms, Python's own reader in 15
    _Safe = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(_Safe):
    yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<"))], None: [(_PLAIN, re.compile(".*", re.DOTALL))]}  # noqa: RUF012


def _construct_plain(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Scalar:
    """The value of a word without quotes, by YAML 1.1's rules."""
    text = node.value
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _WHOLE.fullmatch(text):
        return _whole(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return float(_SPECIAL[text.lower()]) if text.lower() in _SPECIAL else text


def _whole(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-")
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8 if digits[0] == "0" and len(digits) > 1 else 10)
    return sign * int(digits[2:] if base in (16, 2) else digits, base)


def _construct_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    own = [key for key, _ in _pairs(node) if key.tag != _MERGE]
    names = [_name(loader, key) for key in own]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise yaml.constructor.ConstructorError(None, None, f"'{name}' stands twice", own[index].start_mark)
    loader.flatten_mapping(node)
    build = cast("Callable[..., Any]", loader.construct_object)  # pyright: ignore[reportUnknownMemberType]
    return {_name(loader, key): build(value, deep=True) for key, value in _pairs(node)}


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value)


def _name(loader: yaml.SafeLoader, key: yaml.Node) -> str:
    """A key as JSON has it: always a text."""
    build = cast("Callable[..., Any]", loader.construct_object)  # pyright: ignore[reportUnknownMemberType]
    found: Any = build(key, deep=True)
    return found if isinstance(found, str) else json.dumps(found)


def _construct_list(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    """At once, so that a list which holds itself is refused."""
    build = cast("Callable[..., list[Any]]", loader.construct_sequence)  # pyright: ignore[reportUnknownMemberType]
    return build(node, deep=True)


_Loader.add_constructor(_PLAIN, _construct_plain)
_Loader.add_constructor("tag:yaml.org,2002:seq", _construct_list)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
