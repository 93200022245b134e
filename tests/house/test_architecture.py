"""The page about the architecture is true: its picture is the house, what it names is there, in the order it says."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from tests.support.generators.architecture import COLOURS, contracts, packages_of, picture

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "architecture.svg"


def test_the_picture_is_the_house() -> None:
    if os.environ.get("PRIMUS_GOLDEN"):
        PICTURE.write_text(picture(), encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run: make golden"


def test_every_package_is_drawn_in_a_contract_or_stands_alone() -> None:
    drawn = re.findall(r"<text[^>]*>([a-z_]+)</text>", picture())
    for layer in COLOURS:
        assert layer in drawn
        assert set(packages_of(layer)) <= set(drawn)
    for container, rows in contracts().items():
        known = set(packages_of(container)) if container else set(COLOURS)
        modules = {path.stem for path in (ROOT / container.replace(".", "/")).glob("*.py")} if container else set()
        assert {name for row in rows for name in row} <= known | modules, container


def test_every_function_of_the_page_is_there() -> None:
    named = re.findall(r"`((?:profiles|workflows|tasks|flows|deployments)(?:\.\w+)+)`", PAGE)
    assert len(named) > 25
    missing: list[str] = []
    for name in named:
        module, _, function = name.rpartition(".")
        path = ROOT / f"{module.replace('.', '/')}.py"
        found = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
        if not any(getattr(node, "name", "") == function for node in found):
            missing.append(name)
    assert missing == []
