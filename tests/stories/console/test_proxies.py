"""Behind a proxy of the site, with no word on this machine: nothing of ours asks this machine through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.harness.consoles import Console, console
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import until
from tests.support.servers.prefect_servers import give_database
from tests.support.servers.proxies import proxy

pytestmark = pytest.mark.story
UNSAID = {"NO_PROXY": "", "no_proxy": ""}
NOBODY = "127.0.0.1:9"
"""The port that throws everything away: nobody listens there."""


def everything_by(address: str) -> dict[str, str]:
    """As sites set it."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return UNSAID | {one: address for name in names for one in (name, name.lower())}


def trained(made: Console, name: str) -> None:
    """A short run, given to a driver and followed to its end."""
    made.primus("train", str(PROFILE), "--name", name, "--set", "steps=4", "--detach")
    until(f"{name} succeeds", lambda: "succeeded" in made.primus("status", name).stdout.splitlines()[0], made.told)


def test_a_living_proxy_is_never_asked_for_this_machine(tmp_path: Path) -> None:
    give_database(tmp_path)
    with proxy() as living, console(tmp_path, **everything_by(living.url)) as made:
        made.up()
        trained(made, "first")
        [flow_run] = made.flow_runs("train/local")
        assert made.ended(flow_run["id"])["type"] == "COMPLETED"
        tasks = {"task_runs": {"flow_run_id": {"any_": [flow_run["id"]]}}}
        until("its tasks stand on the pages", lambda: made.post("/task_runs/filter", tasks), made.told)
    assert living.asked == []


@pytest.mark.parametrize("address", [f"http://{NOBODY}", f"socks5://{NOBODY}", f"socks://{NOBODY}/"])
def test_a_proxy_that_is_dead_or_that_nobody_can_use_is_no_matter(tmp_path: Path, address: str) -> None:
    give_database(tmp_path)
    with console(tmp_path, **everything_by(address)) as made:
        trained(made, "first")
