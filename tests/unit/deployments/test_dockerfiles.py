"""What the Dockerfiles must keep to: nothing builds them here, so they are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.cases.rows import rows

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "deployments" / "images").glob("*.Dockerfile"))
BASE = "python:3.11-slim@${BASE_DIGEST}"


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, rest) of each one, continued lines joined."""
    joined = re.sub(r"\\\n", " ", "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))
    return [(line.split()[0].upper(), line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


SLIPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("not the pinned base", re.compile(r"FROM (?!" + re.escape(BASE) + r"(?: |$))")),
    ("a base that may change", re.compile(r"ARG .*=")),
    ("may bring anything", re.compile(r"ADD |COPY \.(?: |/ )")),
    ("a secret", re.compile(r"(?:ARG|ENV) .*(?i:TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY)|.*--mount=type=(?:ssh|secret)")),
    ("not pinned", re.compile(r"(?=.*pip install)(?!.*-c constraints\.txt)")),
    ("fetches what nobody pinned", re.compile(r".*(?:https?://|apt-get|curl|wget)")),
)


def wrong(text: str) -> list[str]:
    """What a Dockerfile does that it must not."""
    said = instructions(text)
    found = [f"{slip}: {name} {rest}" for name, rest in said for slip, how in SLIPS if how.match(f"{name} {rest}")]
    last = max(index for index, (name, _) in enumerate(said) if name == "FROM")
    users = [rest for name, rest in said[last:] if name == "USER"]
    if users != ["65532:65532"]:
        found.append(f"must run as 65532: {users}")
    entries = [rest for name, rest in said[last:] if name == "ENTRYPOINT"]
    if len(entries) != 1 or not entries[0].startswith("["):
        found.append(f"no entry point that gets signals itself: {entries}")
    return found


def test_there_is_one_for_each_image() -> None:
    assert [path.name for path in FILES] == ["control.Dockerfile", "programs.Dockerfile"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_pinned_small_in_rights_and_brings_nothing_unnamed(path: Path) -> None:
    assert wrong(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_it_copies_is_there(path: Path) -> None:
    for name, rest in instructions(path.read_text(encoding="utf-8")):
        if name == "COPY" and not rest.startswith("--from="):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest


@pytest.mark.parametrize(("path", "entry"), list(zip(FILES, ["primus", "primus-programs"], strict=True)))
def test_it_starts_what_the_built_image_starts(path: Path, entry: str) -> None:
    said = dict(instructions(path.read_text(encoding="utf-8")))
    assert json.loads(said["ENTRYPOINT"]) == [entry]


@rows("deployments/dockerfiles")
def test_each_slip_is_seen(before: str, after: str) -> None:
    text = FILES[0].read_text(encoding="utf-8")
    assert before in text
    assert wrong(text.replace(before, after)) != []
