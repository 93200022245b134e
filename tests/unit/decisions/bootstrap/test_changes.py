"""Who may leave or be upgraded together: never two racks, never more than the brake allows, never below a quorum."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.changes import (
    batches,
    leave_steps,
    quorum_of,
    upgrade_steps,
    way_back,
    why_not_leave,
    why_not_upgrade,
)
from flows.decisions.bootstrap.next_move import turns_now
from profiles.bootstrap.inventory import Bootstrap
from tests.support.cases.rows import rows
from workflows.model.bootstrap import Stage


def a_bootstrap(workers: int = 4, racks: int = 2, planes: int = 3, share: float = 0.5) -> Bootstrap:
    """Control planes n1, n2, … and workers w0, w1, … of alternating racks."""
    hosts: dict[str, Any] = {
        f"n{index}": {"address": f"10.0.0.{index}", "role": "both"} for index in range(1, planes + 1)
    }
    hosts |= {
        f"w{index}": {
            "address": f"10.0.{1 + index // 200}.{10 + index % 200}",
            "rack": f"r{index % racks}" if racks else "",
        }
        for index in range(workers)
    }
    return Bootstrap.model_validate({"hosts": hosts, "endpoint": {"address": "10.0.9.1"}, "batch_share": share})


@given(st.integers(1, 120), st.integers(0, 9), st.floats(0.0, 1.0))
def test_a_batch_is_of_one_rack_and_no_larger_than_the_brake_allows(workers: int, racks: int, share: float) -> None:
    bootstrap = a_bootstrap(workers, racks, share=share)
    found = batches(bootstrap, bootstrap.workers)
    assert sorted(name for batch in found for name in batch) == sorted(bootstrap.workers)
    for batch in found:
        assert len({bootstrap.hosts[name].rack or name for name in batch}) == 1
        assert len(batch) <= max(1, int(share * workers))


@given(st.integers(0, 40), st.sampled_from([1, 3, 5, 7]), st.floats(0.0, 1.0))
def test_an_upgrade_never_takes_two_control_planes_or_two_batches_at_once(
    workers: int, planes: int, share: float
) -> None:
    bootstrap = a_bootstrap(workers, 3, planes, share)
    steps = upgrade_steps(bootstrap, "1.36.4")
    assert [step.subject for step in steps[:planes]] == list(bootstrap.control_planes)
    proven: set[str] = set()
    while len(proven) < len(steps):
        now = turns_now([step for step in steps if step.id not in proven])
        ready = [step for step in steps if step.id not in proven and step.turn == now[Stage.UPGRADE]]
        assert ready
        names = [step.subject for step in ready]
        controls = [name for name in names if bootstrap.hosts[name].controls]
        assert len(controls) <= 1
        assert not (controls and len(names) > 1)
        if not controls:
            assert len({bootstrap.hosts[name].rack for name in names}) == 1
            assert len(names) <= max(1, int(share * len(bootstrap.workers)))
        proven |= {step.id for step in ready}


@rows("bootstrap/changes")
def test_who_may_leave(leaving: list[str], members: dict[str, bool], dead: bool, refused: str) -> None:
    said = why_not_leave(a_bootstrap(), leaving, members or None, dead)
    assert (refused in said) if refused else said == ""


@given(st.sampled_from([1, 3, 5, 7]), st.data())
def test_no_control_plane_leaves_where_etcd_would_lose_its_quorum(planes: int, data: st.DataObject) -> None:
    bootstrap = a_bootstrap(planes=planes)
    members = {name: data.draw(st.booleans()) for name in bootstrap.control_planes}
    leaving = data.draw(st.sampled_from(bootstrap.control_planes))
    dead = data.draw(st.booleans())
    if why_not_leave(bootstrap, [leaving], members, dead) == "":
        staying = [serves for name, serves in members.items() if name != leaving]
        assert sum(staying) >= quorum_of(len(staying)) >= 1


def test_workers_leave_before_control_planes_and_each_batch_waits() -> None:
    steps = leave_steps(a_bootstrap(), ["n3", "w0", "w1", "w2"], dead=False)
    assert [(step.subject, step.turn) for step in steps] == [("w0", 1), ("w2", 1), ("w1", 2), ("n3", 3)]


@rows("bootstrap/changes")
def test_to_which_version_one_may_go(running: list[str], wanted: str, refused: str) -> None:
    said = why_not_upgrade(running, wanted)
    assert (refused in said) if refused else said == ""


def test_what_cannot_be_taken_back_is_said_with_what_there_is_instead() -> None:
    said = way_back(["v1.36.3", "1.35.10", ""], "1.36.4")
    assert said.startswith("from 1.35.10 to 1.36.4 there is no way back")
    assert "/var/lib/primus-flows/etcd-snapshots" in said
    assert way_back([], "1.36.4").startswith("to 1.36.4 there is no way back")
