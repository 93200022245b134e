"""Checks of artifacts: who gives them, where they lie, what a reference may name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from profiles.errors import Refused
from tasks.embedded.engine.artifact_places import bare
from tasks.embedded.engine.json_values import Json, as_map, maps
from tasks.embedded.engine.validation_sight import Sight, check_expression, check_texts

_SOURCES = ("from", "fromExpression", "raw")
_IN_POD = ("container", "script")
_NAME = re.compile(r"[-a-zA-Z0-9_]+")


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


def check_argument_artifacts(holder: Json, path: str, sight: Sight) -> None:
    """The artifacts among the arguments of a workflow, step, task or hook.

    Raises:
        Refused: one has no source, or names what is not known here.
    """
    for index, artifact in enumerate(maps(as_map(holder.get("arguments")).get("artifacts"))):
        where = f"{path}.arguments.artifacts[{index}]"
        if len([name for name in _SOURCES if name in artifact]) != 1:
            raise Refused(where, f"needs exactly one of {', '.join(_SOURCES)}")
        _check_reference(artifact, where, sight)


def check_output_artifacts(template: Json, path: str, sight: Sight) -> None:
    """What a DAG or steps template hands on.

    Raises:
        Refused: it names what is not known here.
    """
    for index, artifact in enumerate(maps(as_map(template.get("outputs")).get("artifacts"))):
        where = f"{path}.outputs.artifacts[{index}]"
        check_texts(artifact.get("path"), f"{where}.path", sight)
        _check_reference(artifact, where, sight)


def _check_reference(artifact: Mapping[str, object], path: str, sight: Sight) -> None:
    for field in ("raw", "subPath"):
        check_texts(artifact.get(field), f"{path}.{field}", sight)
    if artifact.get("fromExpression"):
        check_expression(str(artifact["fromExpression"]), f"{path}.fromExpression", sight, artifacts=True)
    if artifact.get("from") and not sight.sees_artifact(bare(str(artifact["from"]))):
        raise Refused(f"{path}.from", f"failed to resolve {artifact['from']}: no artifact of that name is known here")
