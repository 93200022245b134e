"""Documents that cannot rot: links, the tree, the tables, the commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_group

from deployments.cli.app import app
from deployments.cli.commands import GROUPS
from profiles.vocabulary import Action, FaultClass, NodeAction

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "tests/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = [
        link
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []


NOT_DRAWN = ("tests/samples/tools/", "tests/tables/", "tests/unit/")
"""Their folders are called as the tools, and as the packages."""


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    block = README.split("## The tree")[1].split("```")[1]
    told: set[str] = set()
    path: list[str] = []
    for line in block.strip("\n").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        path = [*path[:depth], line.split()[0].rstrip("/")]
        told.add("/".join(path))
    there = {str(parent) for name in tracked() for parent in Path(name).parents if str(parent) != "."}
    assert told == {folder for folder in there if not folder.startswith(NOT_DRAWN)}


@pytest.mark.parametrize("word", [*FaultClass, *Action, *NodeAction])
def test_every_word_of_the_vocabulary_stands_in_a_table(word: str) -> None:
    assert f"| `{word}` |" in README


def test_every_command_of_the_readme_exists() -> None:
    known = get_group(app)
    commands = set(known.commands)  # pyright: ignore[reportAttributeAccessIssue]
    named = set(re.findall(r"^primus ([a-z]+)", README, re.MULTILINE)) | set(re.findall(r"`primus ([a-z]+)", README))
    assert named <= commands


def commands_of(group: Any) -> list[Any]:
    """The commands of a group, each imported."""
    return [group.get_command(None, name) for name in group.list_commands(None)]


def test_every_command_has_an_example() -> None:
    for command in commands_of(get_group(app)):
        for leaf in commands_of(command) if isinstance(command, TyperGroup) else [command]:
            assert "Example: primus " in (leaf.help or ""), leaf.name


def test_every_command_fits_its_line_of_the_help() -> None:
    sections = [section for group in GROUPS.values() for section in group.values()]
    summaries = [command.summary for section in sections for command in section.values()]
    assert [summary for summary in summaries if len(summary) > 60 or not summary.endswith(".")] == []


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)`?", README)) <= targets


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_module_says_what_it_is() -> None:
    folders = ("profiles", "workflows", "tasks", "flows", "deployments")
    silent = [
        name
        for name in tracked()
        if name.endswith(".py")
        and name.startswith(folders)
        and not name.endswith("__init__.py")
        and not (ROOT / name).read_text(encoding="utf-8").lstrip().startswith(('"""', 'r"""', "#!"))
    ]
    assert silent == []
