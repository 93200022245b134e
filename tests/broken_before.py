"""A rotating test that fails comes up in one of eight runs: was it this change that broke it?

It is told again at the commit before (`PRIMUS_PROOF_BASE`), in a working tree of its own. Where it fails there too,
it is reported aloud as broken before and does not hold this run. Nothing is forgiven of the core, of unit tests, and of
the bed and the lab, of which there is one at a time. A test that cannot even be set up there tells nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from tests.proof import Rotation, git
from tests.rotation import ROOT, Mode, Tables, is_core

ROTATES = frozenset({"story", "alone", "rotation"})
FAILED_ITSELF = re.compile(r"^1 failed in ", re.MULTILINE)
"""The last line of pytest about one test whose own assertion failed: no error of its set-up, no other outcome."""


def forgiven(failed: Iterable[str], core: Collection[str], broken_before: Callable[[str], bool]) -> frozenset[str]:
    """Those that were broken before; none of them where any other failed too, since then the run has failed anyway.

    Args:
        failed: node ids.
        core: see `tests.rotation.core_of`.
        broken_before: tells a test at the commit before; asked only where the answer can change what comes out.
    """
    ids = sorted(failed)
    if any(is_core(one, core) for one in ids):
        return frozenset()
    if all(broken_before(one) for one in ids):
        return frozenset(ids)
    return frozenset()


def fails_at(base: str, node_id: str) -> bool:
    """Whether a test fails at that commit, in a working tree of its own and with this environment."""
    with tempfile.TemporaryDirectory(prefix="primus-before-") as folder:
        tree = Path(folder) / "tree"
        try:
            git(ROOT, "worktree", "add", "--detach", "--quiet", str(tree), base)
        except (OSError, subprocess.SubprocessError):
            return False
        try:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", node_id]
            environment = {**os.environ, "PRIMUS_PROOF": Mode.ALL.value, "PYTHONPATH": str(tree), "PYTEST_ADDOPTS": ""}
            done = subprocess.run(command, cwd=tree, env=environment, check=False, capture_output=True, text=True)
            return FAILED_ITSELF.search(done.stdout) is not None
        finally:
            git(ROOT, "worktree", "remove", "--force", str(tree))


class BrokenBefore:
    """The plug-in of whoever prints the summary."""

    def __init__(self, rotation: Rotation, tables: Tables) -> None:
        self.rotation, self.tables = rotation, tables
        self.failed: dict[str, bool] = {}
        """Whether a test that failed rotates, by node id."""
        self.forgiven: frozenset[str] = frozenset()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what failed, however often it was told."""
        if report.failed:
            bed = report.nodeid.startswith(("tests/bed/", "tests/lab/"))
            self.failed[report.nodeid] = not bed and not ROTATES.isdisjoint(report.keywords)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell it again at the commit before, where nothing but such tests failed."""
        turn = self.rotation.proof.mode is Mode.TURN and not self.rotation.proof.named
        if not turn or session.exitstatus != pytest.ExitCode.TESTS_FAILED or not all(self.failed.values()):
            return
        base = os.environ.get("PRIMUS_PROOF_BASE") or "HEAD~1"
        self.forgiven = forgiven(self.failed, self.tables.core, lambda node_id: fails_at(base, node_id))
        if self.forgiven:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say it aloud."""
        if self.forgiven:
            terminalreporter.section(
                "BROKEN BEFORE: these fail at the commit before too, and wait to be mended", sep="#"
            )
            for node_id in sorted(self.forgiven):
                terminalreporter.write_line(node_id)
