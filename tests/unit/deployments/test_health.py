"""`primus health serve`, as a process that answers and ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deployments.cli.health import Serving, serve_checks
from profiles.errors import ProfileError
from tests.support.harness.health_daemons import get

SCRIPT = """
import sys
from deployments.cli.health import Serving, serve_checks
asked = Serving(port=0, readiness_port=-1, metrics_port=-1, node="laptop", interval="0", deep_interval="0")
sys.exit(serve_checks(asked))
"""


def test_it_serves_with_the_token_of_our_home_until_it_is_told_to_end(tmp_path: Path) -> None:
    environment = {"PRIMUS_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment, cwd=root
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("health: laptop listening on 127.0.0.1: health ")
        port = int(line.rpartition(" ")[2])
        assert get(port, "/gpumem")[0] == 401
        token = (tmp_path / "token").read_text().strip()
        assert get(port, "/pvc", Authorization=f"Bearer {token}")[0] == 200
        process.terminate()
        assert process.wait(30) == 0


def test_what_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PRIMUS_TOKEN", "a b")
    with pytest.raises(ProfileError, match="is no token"):
        serve_checks(Serving())
    monkeypatch.setenv("PRIMUS_TOKEN", "good")
    before = [__import__("signal").getsignal(number) for number in (2, 15)]
    try:
        assert serve_checks(Serving(interval="often")) == 2
    finally:
        for number, handler in zip((2, 15), before, strict=True):
            __import__("signal").signal(number, handler)
    assert capfd.readouterr().err == "health: --w: write 90s, 30m, 1h or 1d, got 'often'\n"
