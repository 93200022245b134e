"""What a tag, an expression or a reference to an artifact may name at some place of a workflow.

Artifacts are also checked for who gives them and where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from profiles.errors import Refused, check_all
from tasks.embedded.engine.argo.outputs import bare
from tasks.embedded.engine.argo.substitution import tags, texts
from tasks.embedded.engine.expr.functions import FUNCTIONS, check_path
from tasks.embedded.engine.expr.parser import CLOSED, parse
from tasks.embedded.engine.expr.tree import (
    Constant,
    Expression,
    ExpressionError,
    FunctionCall,
    Let,
    Member,
    Name,
    parts_of,
)
from tasks.embedded.engine.json_values import Json, as_map, maps

_STEP_FIELDS = ("id", "startedAt", "finishedAt", "status", "exitCode", "hostNodeName", "outputs.result")
WHOLE_ONLY = ("inputs.parameters", "workflow.parameters", "workflow.labels", "workflow.annotations")
"""Tags that are JSON text where they stand alone and an object inside an expression."""

_SOURCES = ("from", "fromExpression", "raw")
_IN_POD = ("container", "script")
_NAME = re.compile(r"[-a-zA-Z0-9_]+")


@dataclass(frozen=True)
class TagScope:
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

    def knows(self, tag: str) -> bool:
        """Whether a tag has a meaning here."""
        if tag in self.names or self._is_item(tag):
            return True
        called, what = self._called(tag)
        return called is not None and (what in _STEP_FIELDS or _has_output(called, what))

    def knows_artifact(self, path: str) -> bool:
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


def check_texts(value: object, path: str, sight: TagScope) -> None:
    """Every tag of every text inside a value.

    Raises:
        Refused: a tag can never be replaced; with the path of the text that holds it.
    """
    check_all(partial(_check_tag, tag, where, sight) for where, text in texts(value, path) for tag in tags(text))


def _check_tag(tag: str, path: str, sight: TagScope) -> None:
    if tag.startswith("="):
        check_expression(tag[1:], path, sight)
    elif not sight.knows(tag):
        raise Refused(path, f"failed to resolve {{{{{tag}}}}}: nothing of that name is known here")


def check_expression(text: str, path: str, sight: TagScope, *, artifacts: bool = False) -> None:
    """An expression: its form, its functions, and every name in it.

    Raises:
        Refused: it cannot be read, or names what is not known here.
    """
    try:
        tree = parse(text, "expression")
    except ExpressionError as error:
        raise Refused(path, f"'{text}': {error}") from error
    for part in parts_of(tree):
        if isinstance(part, FunctionCall) and part.function not in FUNCTIONS and part.function not in CLOSED:
            raise Refused(path, f"unknown function {part.function}; known: {', '.join([*FUNCTIONS, *sorted(CLOSED)])}")
        if isinstance(part, FunctionCall) and part.function == "jsonpath":
            _check_json_path(part, path)
    for name in _paths_of(tree, frozenset()):
        if name in WHOLE_ONLY:
            raise Refused(path, f"'{text}': {name} as a whole is not supported in an expression; name one of its parts")
        if not sight.knows(name) and not (artifacts and sight.knows_artifact(name)) and not _may_be(name, sight):
            raise Refused(path, f"'{text}': nothing of the name {name} is known here")


def _check_json_path(call: FunctionCall, path: str) -> None:
    given = call.arguments[1] if len(call.arguments) > 1 else None
    if isinstance(given, Constant):
        try:
            check_path(str(given.value))
        except ValueError as error:
            raise Refused(path, f"jsonpath: {error}") from error


def _may_be(name: str, sight: TagScope) -> bool:
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


def check_template_artifacts(template: Json, kind: str, path: str) -> None:
    """The artifacts that a template takes and gives.

    Raises:
        Refused: one lacks its path or source, or the template's type cannot have it.
    """
    for part in ("inputs", "outputs"):
        seen: set[str] = set()
        for index, artifact in enumerate(maps(as_map(template.get(part)).get("artifacts"))):
            where = f"{path}.{part}.artifacts[{index}]"
            check_name(artifact["name"], seen, part, where)
            if kind in ("resource", "suspend"):
                raise Refused(where, f"a {kind} template has no files")
            (_check_input if part == "inputs" else _check_output)(artifact, kind, where)


def check_name(name: str, seen: set[str], part: str, path: str) -> None:
    """A parameter's or artifact's name is legal and none of those `seen`, to which it is added.

    Raises:
        Refused: it is not; with the name's path below `path`.
    """
    if not _NAME.fullmatch(name):
        raise Refused(f"{path}.name", f"'{name}' may hold only letters, digits, - and _")
    if name in seen:
        raise Refused(f"{path}.name", f"there are two {part} '{name}'")
    seen.add(name)


def check_argument_names(holder: Json, path: str) -> None:
    """The names of all arguments of a workflow, step, task or hook.

    Raises:
        Refused: one is not legal, or stands there twice.
    """
    arguments = as_map(holder.get("arguments"))
    for part in ("parameters", "artifacts"):
        seen: set[str] = set()
        for index, item in enumerate(maps(arguments.get(part))):
            check_name(item["name"], seen, part, f"{path}.arguments.{part}[{index}]")


def _check_input(artifact: Json, kind: str, path: str) -> None:
    if kind in _IN_POD and not artifact.get("path"):
        raise Refused(f"{path}.path", "is required")
    if kind not in _IN_POD and "raw" in artifact:
        raise Refused(f"{path}.raw", "give it to the template that uses it")


def _check_output(artifact: Json, kind: str, path: str) -> None:
    given = [name for name in ("from", "fromExpression") if artifact.get(name)]
    if kind in _IN_POD:
        if not artifact.get("path"):
            raise Refused(f"{path}.path", "is required")
        for name in (*given, "subPath"):
            if name in artifact:
                raise Refused(f"{path}.{name}", f"a {kind} template's artifacts come from a path")
    elif len(given) != 1:
        raise Refused(path, "needs exactly one of from and fromExpression")
    elif artifact.get("path"):
        raise Refused(f"{path}.path", f"a {kind} template has no files of its own")


def check_given_artifacts(template: Json, given: set[str], path: str) -> None:
    """Every artifact that a called template needs is given.

    Raises:
        Refused: one is missing; the path is the call's.
    """
    for artifact in maps(as_map(template.get("inputs")).get("artifacts")):
        if artifact["name"] not in given and not artifact.get("optional") and "raw" not in artifact:
            name = artifact["name"]
            raise Refused(path, f"template '{template['name']}' needs the artifact '{name}', which is not given")


def check_argument_artifacts(holder: Json, path: str, sight: TagScope) -> None:
    """The artifacts among the arguments of a workflow, step, task or hook.

    Raises:
        Refused: one has no source, or names what is not known here.
    """
    for index, artifact in enumerate(maps(as_map(holder.get("arguments")).get("artifacts"))):
        where = f"{path}.arguments.artifacts[{index}]"
        if len([name for name in _SOURCES if name in artifact]) != 1:
            raise Refused(where, f"needs exactly one of {', '.join(_SOURCES)}")
        _check_reference(artifact, where, sight)


def check_output_artifacts(template: Json, path: str, sight: TagScope) -> None:
    """What a DAG or steps template hands on.

    Raises:
        Refused: it names what is not known here.
    """
    for index, artifact in enumerate(maps(as_map(template.get("outputs")).get("artifacts"))):
        where = f"{path}.outputs.artifacts[{index}]"
        check_texts(artifact.get("path"), f"{where}.path", sight)
        _check_reference(artifact, where, sight)


def _check_reference(artifact: Mapping[str, object], path: str, sight: TagScope) -> None:
    for key in ("raw", "subPath"):
        check_texts(artifact.get(key), f"{path}.{key}", sight)
    if artifact.get("fromExpression"):
        check_expression(str(artifact["fromExpression"]), f"{path}.fromExpression", sight, artifacts=True)
    if artifact.get("from") and not sight.knows_artifact(bare(str(artifact["from"]))):
        raise Refused(f"{path}.from", f"failed to resolve {artifact['from']}: no artifact of that name is known here")
