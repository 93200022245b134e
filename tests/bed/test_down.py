"""Taking the bed down leaves nothing, and it comes up again as it was.

`.ci/bed` asks the first half each time, of the bed that it takes down at its end (`python -m tests.bed down --check`);
taking it down here and starting it again costs three quarters of a minute, so that is for `PRIMUS_PROOF=all`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests import proof
from tests.bed import starting, traces, up
from tests.bed.commands import run
from tests.bed.layout import cache, folder
from tests.bed.up import Bed

LINK = "pbed-left"


@pytest.mark.skipif(
    not proof.everything(), reason="the bed is down and up again with PRIMUS_PROOF=all; .ci/bed ends it so"
)
def test_down_with_all_controllers_up_leaves_nothing(bed: Bed) -> None:
    wanted = bed.options
    traces.burden(bed)
    try:
        assert traces.down(bed.folder) == []
        assert up.find() is None
    finally:
        if up.find() is None:
            starting.up(cache(), folder(), wanted)
    again = up.find()
    assert again is not None
    assert again.wrong() == []


@pytest.fixture
def left_behind() -> Iterator[str]:
    """A process and a network device that look like the bed's; the process's id."""
    run("ip", "link", "add", LINK, "type", "bridge")
    process = subprocess.Popen(["sh", "-c", "sleep 60; :", f"{folder().root}/left"])
    yield str(process.pid)
    process.kill()
    process.wait()
    run("ip", "link", "del", LINK)


def test_what_is_left_behind_is_found(left_behind: str) -> None:
    found = traces.traces()
    assert [what for what in found if what.startswith("link ") and LINK in what]
    assert [what for what in found if what.startswith(f"process {left_behind}: ")]
