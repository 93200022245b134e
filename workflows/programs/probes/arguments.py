"""Arguments of a probe, as a suite gives them."""

from __future__ import annotations

from typing import Mapping

Arguments = Mapping[str, str]


class ArgumentError(ValueError):
    """An argument that cannot be measured with; the message names it."""


def number(arguments: Arguments, name: str, default: int, least: int = 1) -> int:
    """An argument as a whole number.

    Raises:
        ArgumentError: it is none, or too small.
    """
    text = arguments.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise ArgumentError(f"{name}: must be a whole number, got {text!r}") from None
    if value < least:
        raise ArgumentError(f"{name}: must be at least {least}, got {value}")
    return value
