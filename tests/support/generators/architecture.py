"""Draws docs/architecture.svg: the five layers and their packages, in the order that .importlinter holds."""

from __future__ import annotations

from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[3]
WIDTH, MARGIN, ROW, GAP = 1000, 16, 34, 8
"""Pixels."""
COLOURS = {
    "deployments": "#e8eef9",
    "flows": "#e6f4ea",
    "tasks": "#fdf1de",
    "workflows": "#f6e8f5",
    "profiles": "#eeeeee",
}
NESTED = (
    "flows.decisions",
    "flows.decisions.diagnosis",
    "workflows.programs",
    "tasks.embedded",
    "tasks.embedded.engine",
)
"""Packages with a box of their own around their packages."""


@dataclass(frozen=True)
class Box:
    """A package: its name and its packages in rows, the uppermost row first."""

    name: str
    rows: tuple[tuple[Box, ...], ...] = ()


def contracts() -> dict[str, list[list[str]]]:
    """Container ("" for the five folders) -> rows of names that may import the rows below them."""
    parser = ConfigParser()
    parser.read_string((ROOT / ".importlinter").read_text(encoding="utf-8"))
    found: dict[str, list[list[str]]] = {}
    for name in parser.sections():
        section = parser[name]
        if section.get("type") == "layers":
            rows = [row.replace("|", ":").split(":") for row in section["layers"].strip().splitlines()]
            found[section.get("containers", "").strip()] = [[one.strip() for one in row] for row in rows]
    return found


def packages_of(package: str) -> list[str]:
    """Names of the packages directly inside."""
    folder = ROOT / package.replace(".", "/")
    return sorted(path.parent.name for path in folder.glob("*/__init__.py"))


def box_of(package: str) -> Box:
    """A package with what is drawn inside of it: its rows by contract, then what no contract orders."""
    inside = packages_of(package)
    ordered = [[name for name in row if name in inside] for row in contracts().get(package, [])]
    rest = [name for name in inside if not any(name in row for row in ordered)]
    rows = [[*row] for row in [*ordered, rest] if row]
    if package not in COLOURS and package not in NESTED:
        rows = []
    return Box(
        package.rpartition(".")[2],
        tuple(tuple(box_of(f"{package}.{name}") for name in row) for row in rows),
    )


def width_of(box: Box) -> int:
    """Pixels that a box needs."""
    own = 9 * len(box.name) + 20
    return max([own, *(sum(map(width_of, row)) + GAP * (len(row) + 1) for row in box.rows)])


def height_of(box: Box) -> int:
    """Pixels that a box needs."""
    return ROW + sum(max(map(height_of, row)) + GAP for row in box.rows)


def drawn(box: Box, x: int, y: int, width: int, colour: str) -> list[str]:
    """The elements of a box at a place."""
    out = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height_of(box)}" rx="5" fill="{colour}" stroke="#555"/>',
        f'<text x="{x + 10}" y="{y + 22}">{escape(box.name)}</text>',
    ]
    below = y + ROW
    for row in box.rows:
        spare = (width - GAP * (len(row) + 1) - sum(map(width_of, row))) // len(row)
        left = x + GAP
        for one in row:
            out += drawn(one, left, below, width_of(one) + spare, "#ffffff" if one.rows == () else "#fafafa")
            left += width_of(one) + spare + GAP
        below += max(map(height_of, row)) + GAP
    return out


def picture() -> str:
    """The whole picture."""
    y, body = MARGIN, list[str]()
    width = max(WIDTH, *(width_of(box_of(layer)) for layer in COLOURS))
    for layer, colour in COLOURS.items():
        box = box_of(layer)
        if body:
            middle = MARGIN + width // 2
            body.append(f'<path d="M {middle} {y} v 18 m -5 -6 l 5 6 l 5 -6" fill="none" stroke="#333"/>')
            y += 22
        body += drawn(box, MARGIN, y, width, colour)
        y += height_of(box) + 4
    size = f'width="{width + 2 * MARGIN}" height="{y + MARGIN}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="15" fill="#111">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *body, "</svg>", ""])
