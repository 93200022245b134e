"""The fields of a profile's models: which stand where, and of which type.

Used for overrides and for messages about wrong fields. It knows the models only through their annotations.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import BaseModel

from profiles.loading.document import FieldPath

_SCALARS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: 'text (numbers and true/false in quotes, e.g. "1")',
}


def written(path: Sequence[str | int]) -> str:
    """A path as people write it, e.g. `roles[0].environment["a.b"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step and all(character.isalnum() or character in "_-/" for character in step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def has(data: Any, step: str | int) -> bool:
    """Whether plain data holds such a key or entry."""
    if isinstance(data, dict):
        return step in data
    return isinstance(data, list) and isinstance(step, int) and step < len(cast("list[Any]", data))


def child(data: Any, step: str | int) -> Any:
    """What plain data holds there; None where it holds nothing."""
    return data[step] if has(data, step) else None


def plain(annotation: Any) -> Any:
    """The annotation without its constraints and without `| None`."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if is_optional(annotation):
        others = [item for item in get_args(annotation) if item is not NoneType]
        return plain(others[0]) if len(others) == 1 else annotation
    return annotation


def is_optional(annotation: Any) -> bool:
    """Whether the value may be null."""
    return get_origin(annotation) is not Literal and NoneType in get_args(annotation)


def field_names(annotation: Any) -> tuple[str, ...]:
    """Names of the fields there; empty where the value is no model."""
    model = plain(annotation)
    return tuple(model.model_fields) if _is_model(model) else ()


def inside(annotation: Any, step: str | int) -> Any:
    """The annotation one step further in; None where there is no such step."""
    here = plain(annotation)
    if _is_model(here):
        found = here.model_fields.get(step)
        return found.annotation if found else None
    origin, args = get_origin(here), get_args(here)
    if origin is tuple and isinstance(step, int):
        return args[0]
    return args[1] if origin is dict and isinstance(step, str) else None


def annotation_at(model: type[BaseModel], path: FieldPath) -> Any:
    """The annotation at the end of a path; None where there is none."""
    annotation: Any = model
    for step in path:
        annotation = inside(annotation, step)
    return annotation


def is_text(annotation: Any) -> bool:
    """Whether only text can stand there: strings, closed words."""
    here = plain(annotation)
    if get_origin(here) is Literal:
        return all(isinstance(item, str) for item in get_args(here))
    if isinstance(here, type):
        return issubclass(here, str) or issubclass(here, Enum)
    return bool(get_args(here)) and get_origin(here) not in (tuple, dict) and all(map(is_text, get_args(here)))


def holds_text(annotation: Any) -> bool:
    """Whether only text can stand at its leaves, e.g. a list of strings."""
    here = plain(annotation)
    if get_origin(here) is tuple:
        return holds_text(get_args(here)[0])
    if get_origin(here) is dict:
        return holds_text(get_args(here)[1])
    return is_text(here)


def words(annotation: Any) -> list[str]:
    """The words that a closed vocabulary allows; empty for any other type."""
    here = plain(annotation)
    found: list[str] = []
    for member in get_args(here) or (here,):
        if isinstance(member, type) and issubclass(member, Enum):
            found += [str(word.value) for word in member]
        elif isinstance(member, str):
            found.append(member)
    return found


def expected(annotation: Any) -> str:
    """What may stand there, in words."""
    here = plain(annotation)
    if _is_model(here):
        return "a mapping of fields"
    if get_origin(here) is tuple:
        return "a list, e.g. [a, b]"
    if get_origin(here) is dict:
        return "a mapping, e.g. {a: b}"
    return _SCALARS.get(here, "one of the words that the field knows")


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
