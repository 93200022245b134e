"""Tables of tests as data: rows with named columns in `tests/tables`, typed as the test that reads them says.

    a_line_that_only_looks_like_progress_is_none:
    - {framework: megatron, line: iteration 5}

stands in `tables/programs/progress/readers.yaml` for the test of that name, whose decorator is
`@rows("programs/progress/readers")`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NotRequired, TypeVar, get_type_hints

import pytest
import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from tests.support.cases.yaml_files import LOADER

FOLDER = Path(__file__).parents[2] / "tables"
Test = TypeVar("Test", bound=Callable[..., object])
T = TypeVar("T")
FORBID = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
CASE = "case"
"""The column that names a row: the sentence that holds for it, and the name of its test."""


@dataclass(frozen=True)
class Row:
    """One line of a table, as it stands there."""

    origin: str
    """Its file and line."""
    columns: dict[str, Any]

    def typed(self, columns: TypeAdapter[dict[str, Any]]) -> dict[str, Any]:
        """Its values as columns want them: a list a tuple, a mapping a dataclass, a word a member of an enum.

        Raises:
            ValueError: a column is missing or unknown, or its value of another type.
        """
        try:
            return columns.validate_python(self.columns)
        except ValidationError as error:
            raise ValueError(f"{self.origin}: {error}") from None


def columns_of(types: dict[str, Any], optional: frozenset[str] = frozenset()) -> TypeAdapter[dict[str, Any]]:
    """What all rows of a table must have; made once for them, since making it takes longer than all of their values."""
    made: Any = TypedDict  # of names that are known only now
    fields = {name: NotRequired[kind] if name in optional else kind for name, kind in types.items()}
    shape: Any = with_config(FORBID)(made("Columns", fields))
    return TypeAdapter[dict[str, Any]](shape)


@cache
def tables(topic: str, folder: Path = FOLDER) -> dict[str, list[Row]]:
    """The tables of `tables/<topic>.yaml`, each under the name of its test without `test_`.

    Raises:
        ValueError: what stands there is no mapping of lists of mappings, or says a key twice.
    """
    file = folder / f"{topic}.yaml"
    loader = LOADER(file.read_text(encoding="utf-8"))
    document = loader.get_single_node()
    return {key: [_row(loader, file, node) for node in _items(file, value)] for key, value in _pairs(file, document)}


def _pairs(file: Path, node: yaml.Node) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{_place(file, node)}: no mapping")
    twice = [key for key, count in Counter(key.value for key, _ in node.value).items() if count > 1]
    if twice:
        raise ValueError(f"{_place(file, node)}: {twice[0]!r} stands there twice")
    return [(key.value, value) for key, value in node.value]


def _items(file: Path, node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise ValueError(f"{_place(file, node)}: no list of rows")
    return node.value


def _row(loader: Any, file: Path, node: yaml.Node) -> Row:
    _pairs(file, node)
    return Row(_place(file, node), loader.construct_document(node))


def _place(file: Path, node: yaml.Node) -> str:
    return f"{'/'.join(file.parts[-4:])}:{node.start_mark.line + 1}"


def rows(topic: str, folder: Path = FOLDER) -> Callable[[Test], Test]:
    """Run a test once for each row of its table.

    Columns are arguments of the test, and typed by their annotations. A row may leave out a column whose argument has
    a default. The column `case` names the row in pytest's reports; it need not be an argument.
    """

    def decorate(test: Test) -> Test:
        found = tables(topic, folder)[test.__name__.removeprefix("test_")]
        hints, parameters = get_type_hints(test, include_extras=True), inspect.signature(test).parameters
        named = {column for row in found for column in row.columns}
        types = {name: hints[name] for name in parameters if name in named}
        defaults = {name: parameters[name].default for name in types}
        optional = {name for name, default in defaults.items() if default is not inspect.Parameter.empty}
        _refuse_twice(found)
        cases: list[Any] = []
        columns = columns_of({CASE: str} | types, frozenset(optional | {CASE} - types.keys()))
        for row in found:
            typed = defaults | row.typed(columns)
            told = [typed[name] for name in types]
            cases.append(pytest.param(*told, id=row.columns.get(CASE), marks=pytest.mark.row(row.origin)))
        # pytest gives nothing to an argument that has a default.
        test.__defaults__ = None  # type: ignore[attr-defined]
        return pytest.mark.parametrize(list(types), cases)(test)

    return decorate


def values(topic: str, table: str, kind: type[T], folder: Path = FOLDER) -> dict[str, T]:
    """The rows of a table as values of a dataclass, by their `case`; for tables that several tests read."""
    found = tables(topic, folder)[table]
    _refuse_twice(found)
    made: dict[str, T] = {}
    columns = columns_of({"value": kind})
    for row in found:
        rest = {name: value for name, value in row.columns.items() if name != CASE}
        made[row.columns[CASE]] = Row(row.origin, {"value": rest}).typed(columns)["value"]
    return made


def _refuse_twice(found: list[Row]) -> None:
    names = Counter(row.columns[CASE] for row in found if CASE in row.columns)
    for row in found:
        if names[row.columns.get(CASE)] > 1:
            raise ValueError(f"{row.origin}: {row.columns[CASE]!r} names another row too")
