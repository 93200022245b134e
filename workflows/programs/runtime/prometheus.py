"""Metrics as the text that Prometheus reads (exposition format 0.0.4): families of series. Pure."""

from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple, Sequence, Tuple

Labels = Sequence[Tuple[str, Any]]
"""Names and values in the order in which they are written; () for none."""
EXACT_DIGITS = 15
"""So many significant digits every float holds exactly."""
LARGEST_ROUNDED = 1e308
"""What is larger may round to infinity."""
FIGURE_DIGITS = 6
"""Enough for what was measured."""


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    """`gauge` or `counter`."""
    help: str
    samples: Sequence[Tuple[Labels, float]]
    """One series each; a family without any still has its help and its type."""


def exposition(families: Iterable[Family], digits: int = EXACT_DIGITS) -> str:
    """The page of these families, in their order; `digits` limits the significant ones of values that are not whole."""
    return "".join(_family(one, digits) for one in families)


def _family(family: Family, digits: int) -> str:
    lines = [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in family.samples:
        pairs = ",".join(f'{name}="{_quoted(str(text))}"' for name, text in labels)
        lines.append(f"{family.name}{'{' + pairs + '}' if pairs else ''} {_number(value, digits)}")
    return "\n".join(lines) + "\n"


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if abs(value) > LARGEST_ROUNDED:
        return repr(value)
    return f"{value:.{EXACT_DIGITS if value == int(value) else digits}g}"


def _escaped(text: str) -> str:
    """Within help a quotation mark stands for itself."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
