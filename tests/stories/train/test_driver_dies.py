"""A driver that dies before it has taken its run: who started it is told why, and so is everybody who asks later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.exit_codes import FAILED, UNKNOWN
from tests.support.harness.consoles import console
from tests.support.harness.stages import PROFILE

pytestmark = pytest.mark.story


def test_what_killed_it_is_told_at_once_and_stands_in_status_and_why(tmp_path: Path, prefect_server: str) -> None:
    broken = {"PREFECT_API_TLS_INSECURE_SKIP_VERIFY": "perhaps"}  # Prefect's settings want yes or no
    with console(tmp_path, PREFECT_API_URL=f"{prefect_server}/", **broken) as made:
        told = made.primus("train", str(PROFILE), "--name", "first", "--detach", code=FAILED).stderr
        assert "is driven by" not in told
        begun, first, *_ = told.splitlines()
        assert begun == "first is written down; it is given to a driver"
        assert first.startswith("nobody drives first: its driver, process ")
        assert "ended before it took the run: pydantic_core._pydantic_core.ValidationError: 1 validation error" in first
        assert "when that is mended, go on: primus resume first" in told
        end = json.loads(made.primus("status", "first", "--json").stdout)["driver_end"]
        assert first == f"nobody drives first: {end}"
        assert end in made.primus("status", "first").stdout
        assert end in made.primus("why", "first").stdout
        made.environment.pop("PREFECT_API_TLS_INSECURE_SKIP_VERIFY")
        made.primus("resume", "first")
        assert json.loads(made.primus("status", "first", "--json").stdout)["state"] == "succeeded"


@pytest.mark.parametrize("path", ["/nothing", "/runs"])
def test_a_wrong_address_leaves_no_run_behind(tmp_path: Path, prefect_server: str, path: str) -> None:
    with console(tmp_path, PREFECT_API_URL=prefect_server.removesuffix("/api") + path) as made:
        for words in (("train", str(PROFILE), "--name", "first", "--detach"), ("up",)):
            told = made.primus(*words, code=2).stderr
            assert "is not the API of a Prefect server" in told
            assert f"here {prefect_server}" in told
        assert json.loads(made.primus("runs", "--json").stdout) == []
        assert not (tmp_path / "up.json").exists()


def test_a_server_of_ours_that_cannot_start_leaves_none_either(tmp_path: Path) -> None:
    with console(tmp_path, PREFECT_SERVER_DATABASE_CONNECTION_URL="nonsense://x") as made:
        told = made.primus("train", str(PROFILE), "--name", "first", "--detach", code=UNKNOWN).stderr
        assert "ended: sqlalchemy.exc.NoSuchModuleError: " in told
        assert json.loads(made.primus("runs", "--json").stdout) == []
