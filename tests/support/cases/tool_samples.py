"""What tools printed: the samples under `samples/tools`, by tool and name, and what a text tells."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from workflows.programs.parsers.registry import PARSERS
from workflows.programs.parsers.text import ParsedOutput, Reading

FOLDER = Path(__file__).parents[2] / "samples" / "tools"
SAMPLES: tuple[tuple[str, str], ...] = tuple(
    (path.parent.name, path.name) for path in sorted(FOLDER.glob("*/*")) if path.is_file()
)


@cache
def printed(tool: str, name: str) -> str:
    """The text of a sample, line ends untouched."""
    return (FOLDER / tool / name).read_bytes().decode("utf-8")


@cache
def whole(tool: str, name: str) -> ParsedOutput:
    """What the whole sample tells."""
    return PARSERS[tool](printed(tool, name))


def counted(parsed: ParsedOutput) -> Counter[Reading]:
    """Readings, each as often as it was told."""
    return Counter(parsed.readings)


def figures(parsed: ParsedOutput) -> list[tuple[str, float | None, str, str]]:
    """(quantity, value, unit, subject) of each figure."""
    return [(one.quantity, one.value, one.unit, one.subject) for one in parsed.readings if one.value is not None]


def words(parsed: ParsedOutput) -> list[tuple[str, str, str, str]]:
    """(quantity, word, subject, what the tool says of it) of each word without a figure."""
    return [(one.quantity, one.word, one.subject, one.said) for one in parsed.readings if one.value is None]


def value(parsed: ParsedOutput, quantity: str, subject: str = "") -> float | None:
    """The one figure of that quantity and subject."""
    (found,) = [one for one in parsed.readings if one.quantity == quantity and one.subject == subject]
    return found.value
