"""What a tag, an expression or a reference may name at some place of a workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from profiles.errors import Refused
from tasks.embedded.engine.expression_functions import FUNCTIONS
from tasks.embedded.engine.expression_tree import (
    Call,
    Constant,
    Expression,
    ExpressionError,
    Let,
    Member,
    Name,
    parts_of,
)
from tasks.embedded.engine.expressions import CLOSED, parse
from tasks.embedded.engine.json_paths import check_path
from tasks.embedded.engine.json_values import Json, as_map, maps
from tasks.embedded.engine.substitution import tags, texts

_STEP_FIELDS = ("id", "startedAt", "finishedAt", "status", "exitCode", "hostNodeName", "outputs.result")
WHOLE_ONLY = ("inputs.parameters", "workflow.parameters", "workflow.labels", "workflow.annotations")
"""Tags that are JSON text where they stand alone and an object inside an expression."""


@dataclass(frozen=True)
class Sight:
    """What may be named."""

    names: frozenset[str]
    calls: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Steps or tasks that are done by then: name -> the template they run."""
    prefix: str = ""
    items: bool = False
    """Whether there is an item."""
    keys: frozenset[str] | None = None
    """What may be named of an item; None: anything."""
    artifacts: frozenset[str] = frozenset()
    """Artifacts of the place itself: `inputs.artifacts.n`, `workflow.outputs.artifacts.n`."""

    def sees(self, tag: str) -> bool:
        """Whether a tag has a meaning here."""
        if tag in self.names or self._is_item(tag):
            return True
        called, what = self._called(tag)
        return called is not None and (what in _STEP_FIELDS or _has_output(called, what))

    def sees_artifact(self, path: str) -> bool:
        """Whether a reference to an artifact has a meaning here."""
        if path in self.artifacts:
            return True
        called, what = self._called(path)
        names = {item["name"] for item in maps(as_map((called or {}).get("outputs")).get("artifacts"))}
        return what.startswith("outputs.artifacts.") and what.removeprefix("outputs.artifacts.") in names

    def _is_item(self, tag: str) -> bool:
        if not self.items or not tag.startswith("item."):
            return self.items and tag == "item"
        return self.keys is None or tag.removeprefix("item.").partition(".")[0] in self.keys

    def _called(self, tag: str) -> tuple[Json | None, str]:
        scope, _, rest = tag.partition(".")
        name, _, what = rest.partition(".")
        return (self.calls.get(name) if scope == self.prefix else None), what


def _has_output(template: Json, what: str) -> bool:
    if what == "outputs.parameters":
        return True
    names = {parameter["name"] for parameter in maps(as_map(template.get("outputs")).get("parameters"))}
    return what.startswith("outputs.parameters.") and what.removeprefix("outputs.parameters.") in names


def check_texts(value: object, path: str, sight: Sight) -> None:
    """Every tag of every text inside a value.

    Raises:
        Refused: a tag can never be replaced; with the path of the text that holds it.
    """
    for where, text in texts(value, path):
        for tag in tags(text):
            if tag.startswith("="):
                check_expression(tag[1:], where, sight)
            elif not sight.sees(tag):
                raise Refused(where, f"failed to resolve {{{{{tag}}}}}: nothing of that name is known here")


def check_expression(text: str, path: str, sight: Sight, *, artifacts: bool = False) -> None:
    """An expression: its form, its functions, and every name in it.

    Raises:
        Refused: it cannot be read, or names what is not known here.
    """
    try:
        tree = parse(text, "expression")
    except ExpressionError as error:
        raise Refused(path, f"'{text}': {error}") from error
    for part in parts_of(tree):
        if isinstance(part, Call) and part.function not in FUNCTIONS and part.function not in CLOSED:
            raise Refused(path, f"unknown function {part.function}; known: {', '.join([*FUNCTIONS, *sorted(CLOSED)])}")
        if isinstance(part, Call) and part.function == "jsonpath":
            _check_json_path(part, path)
    for name in _paths_of(tree, frozenset()):
        if name in WHOLE_ONLY:
            raise Refused(path, f"'{text}': {name} as a whole is not supported in an expression; name one of its parts")
        if not sight.sees(name) and not (artifacts and sight.sees_artifact(name)) and not _may_be(name, sight):
            raise Refused(path, f"'{text}': nothing of the name {name} is known here")


def _check_json_path(call: Call, path: str) -> None:
    given = call.arguments[1] if len(call.arguments) > 1 else None
    if isinstance(given, Constant):
        try:
            check_path(str(given.value))
        except ValueError as error:
            raise Refused(path, f"jsonpath: {error}") from error


def _may_be(name: str, sight: Sight) -> bool:
    """A path with a part that only the run computes: something below it must be known."""
    if not name.endswith(".*"):
        return False
    stem = name.removesuffix("*")
    below = any(known.startswith(stem) for known in sight.names)
    return below or (bool(sight.calls) and stem.startswith(f"{sight.prefix}."))


def _paths_of(tree: Expression, bound: frozenset[str]) -> Iterator[str]:
    """The dotted paths that an expression reads; `*` stands for parts from a computed one on."""
    match tree:
        case Name(name):
            if name not in bound:
                yield name
        case Member():
            yield from _member_paths(tree, bound)
        case Let(name, value, body):
            yield from _paths_of(value, bound)
            yield from _paths_of(body, bound | {name})
        case _:
            for part in _children(tree):
                yield from _paths_of(part, bound)


def _children(tree: Expression) -> list[Expression]:
    found = list(parts_of(tree))[1:]
    inner = {id(deeper) for part in found for deeper in list(parts_of(part))[1:]}
    return [part for part in found if id(part) not in inner]


def _member_paths(tree: Member, bound: frozenset[str]) -> Iterator[str]:
    keys: list[Expression] = []
    base: Expression = tree
    while isinstance(base, Member):
        keys.append(base.key)
        base = base.value
    for key in keys:
        yield from _paths_of(key, bound)
    if not isinstance(base, Name) or base.name in bound:
        yield from _paths_of(base, bound)
        return
    words = [base.name]
    for key in reversed(keys):
        if not isinstance(key, Constant):
            words.append("*")
            break
        words.append(str(key.value))
    yield ".".join(words)
