"""How parsers read a tool's JSON: the first document of the text, whole or not at all, and only real figures in it.

Standard library only, Python 3.9: this travels inside the program archive.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, Optional, cast

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import DIGITS, Told, close, figure

_JSON_START = re.compile(r"^[ \t]*([\[{])[ \t]*(?:[\"\[{\]}]|\r?$)", re.MULTILINE)
FRACTION_CHARACTERS = 64
"""Longer than any double that a tool prints."""


def _integer(text: str) -> Optional[int]:
    return int(text) if len(text) <= DIGITS else None


def _fraction(text: str) -> Optional[float]:
    value = float(text) if len(text) <= FRACTION_CHARACTERS else math.inf
    return value if math.isfinite(value) else None


def _constant(_text: str) -> None:
    """NaN and Infinity are no figures."""


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_constant)


def looks_like_json(text: str) -> bool:
    """Whether a JSON document begins somewhere, perhaps below lines of warnings."""
    return _JSON_START.search(text) is not None


def document(text: str) -> Any:
    """The JSON document that the text holds, perhaps below lines of warnings; None: there is none, or it broke off.

    Only the first beginning counts: an object inside a broken-off document must not pass for the document.
    """
    start = _JSON_START.search(text)
    if start is None:
        return None
    try:
        return _DECODER.raw_decode(text, start.start(1))[0]
    except (ValueError, RecursionError):
        return None


def no_document(tool: str, text: str) -> Parsed:
    """The answer where JSON was expected and none could be read."""
    told = Told()
    if looks_like_json(text):
        told.note("the JSON is broken off or damaged")
    return close(told, tool, text, cut=False)


def mapping(value: Any) -> Dict[str, Any]:
    """The JSON object, or an empty one."""
    return cast("Dict[str, Any]", value) if isinstance(value, dict) else {}


def listing(value: Any) -> List[Any]:
    """The JSON array, or an empty one."""
    return cast("List[Any]", value) if isinstance(value, list) else []


def number(value: Any) -> Optional[float]:
    """The figure that a JSON value is, also one in quotes."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    return figure(value) if isinstance(value, str) else None


def string(value: Any) -> str:
    """The JSON string, or an empty one."""
    return value if isinstance(value, str) else ""
