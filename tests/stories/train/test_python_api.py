"""The page of the Python interface, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running.waiting import patience

pytestmark = pytest.mark.story

PAGE = Path(__file__).parents[3] / "docs" / "python-api.md"


def test_the_examples_of_the_page_hold(prefect_server: str, tmp_path: Path) -> None:
    script = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert "train(request)" in script
    here = os.environ | {"PRIMUS_HOME": str(tmp_path / "home"), "PREFECT_API_URL": prefect_server, "PRIMUS_CLUSTER": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=here,
        cwd=PAGE.parents[1],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
