"""The README's tour as a reader types it: line by line, in one home, each of them works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness.consoles import Console, console
from tests.support.harness.runners import LIMIT_S

pytestmark = pytest.mark.story
ROOT = Path(__file__).parents[3]
SETTING_UP = ("make demo", ". .venv/bin/activate")
"""What `make demo` does is what each commit's tests do first; the environment is the one that runs them."""


def tour() -> list[str]:
    """The commands of the tour, without what is said of them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^## A tour .*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.split(r"\s+#\s", line)[0].strip() for line in block.splitlines()]
    assert tuple(lines[:2]) == SETTING_UP
    return lines[2:]


@pytest.fixture
def made() -> Iterator[Console]:
    with (
        tempfile.TemporaryDirectory(prefix="primus-", ignore_cleanup_errors=True) as folder,
        console(Path(folder) / "home") as served,
    ):
        program = Path(folder) / "bin" / "primus"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m deployments.cli.main "$@"\n')
        program.chmod(0o755)
        served.environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        yield served


def test_every_line_of_the_tour_works(made: Console, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for line in tour():
        command = ["bash", "-o", "pipefail", "-c", line if "|" in line else f"exec {line}"]
        typed = subprocess.Popen(
            command, cwd=tmp_path, env=made.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = ""
        # What this machine is worth, with whatever else it does, is no matter of the tour's.
        ends = {0, 1, 3} if line.startswith("primus preflight") else {0}
        if "--follow" in line:
            assert typed.stdout is not None
            said = typed.stdout.readline()
            typed.send_signal(signal.SIGINT)  # as the tour says: it stops watching only
            ends = {130}
        said += typed.communicate(timeout=4 * LIMIT_S)[0]
        assert typed.returncode in ends, f"{line}: {typed.returncode}\n{said}\n{made.told()}"
        assert said.strip(), f"{line} says nothing"
