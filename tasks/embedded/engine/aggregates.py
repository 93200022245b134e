"""What the steps of a fan-out left, together: lists as Argo makes them."""

from __future__ import annotations

import json
from typing import Any

from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, go_json, is_list, is_map, maps, text_of, why_no_json


def aggregated(outputs: list[Json], what: str) -> str | None:
    """`outputs.result`, `outputs.parameters` or `outputs.parameters.n` of the items that succeeded; None for others.

    Raises:
        NodeFailure: a result is no JSON, which Argo cannot put into a list.
    """
    if what == "outputs.result":
        return go_json([_parsed(str(found["result"])) for found in outputs if found.get("result") is not None])
    values = [
        {item["name"]: text_of(item.get("value", "")) for item in maps(found.get("parameters"))} for found in outputs
    ]
    if what == "outputs.parameters":
        return go_json([found for found in values if found])
    if not what.startswith("outputs.parameters."):
        return None
    wanted = what.removeprefix("outputs.parameters.")
    texts = [found[wanted] for found in values if wanted in found]
    return _list_text(texts) if texts else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise NodeFailure(why_no_json(text)) from error


def _item(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _list_text(texts: list[str]) -> str:
    """A JSON list of texts; where every text is itself a JSON list or object, a list of these, as on Argo."""
    values = [_item(text) for text in texts]
    return go_json(values if all(is_map(value) or is_list(value) for value in values) else texts)
