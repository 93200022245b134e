"""Pre-checks on real hosts: each defect is found by its own check and stops nobody who does not have it."""

from __future__ import annotations

from typing import Literal

import pytest

from flows.decisions.bootstrap.prechecks.judge import Prechecks, prechecks
from profiles.loading.load import load_cluster, load_hardware
from tasks.bootstrap.look import look_at_hosts
from tests.lab.faults import FAULTS, broken, other
from tests.lab.lab import Lab
from tests.lab.rootfs import USER
from tests.support.cases.rows import rows, tables

KEPT = ("/etc", "/usr/local", "/opt", "/root", f"/home/{USER}", "/var/lib/etcd", "/var/lib/kubelet")
"""Where nothing may be written by looking."""


def judged(lab: Lab, user: str) -> Prechecks:
    """What all checks say after one look at all hosts, with all pairs and disks."""
    told = load_cluster(str(lab.profile))
    bootstrap = told.bootstrap
    assert bootstrap is not None
    ssh = bootstrap.ssh.model_copy(update={"user": user})
    told = told.model_copy(update={"bootstrap": bootstrap.model_copy(update={"ssh": ssh})})
    hardware = {pool.hardware: load_hardware(pool.hardware) for pool in told.pools}
    return prechecks(told, hardware, look_at_hosts(told))


def files(lab: Lab) -> set[str]:
    """Host, path, kind and digest of all that lies on hosts."""
    return {f"{host.name} {path} {what}" for host in lab.hosts for path, what in host.files_digest(KEPT).items()}


@pytest.fixture(scope="module")
def untouched(standing: Lab) -> set[str]:
    """What lies on hosts before the first look."""
    return files(standing)


def test_every_defect_has_its_check() -> None:
    [table] = tables("lab/prechecks").values()
    assert [row.columns["case"] for row in table] == list(FAULTS)


@rows("lab/prechecks")
def test_a_broken_host_is_found_before_anything_is_changed(  # noqa: PLR0917 - the columns of a row
    lab: Lab,
    untouched: set[str],
    case: str,
    check: str,
    found: str,
    whose: Literal["own", "twin", "all"] = "own",
    user: str = "root",
    alone: bool = False,
) -> None:
    names, host = lab.options.names(), lab.hosts[-1]
    hit = {"own": {host.name}, "twin": {host.name, other(lab, host).name}, "all": set(names)}[whose]
    with broken(case, lab, host):
        told = judged(lab, user)
    others = set(names) - hit
    untried = [(one, others, "unknown") for one in ("ports", "mtu")] if alone else []
    stopped = [(one.check, set(one.hosts), str(one.word)) for one in told.stopped]
    assert stopped == [(check, hit, "fail"), *untried], told.why
    assert found in told.stopped[0].found
    assert set(told.fit) == (set() if alone else others)
    assert files(lab) ^ untouched == set(), "neither a look nor a mended defect leaves anything"


@pytest.mark.parametrize("user", ["root", USER])
def test_sound_hosts_pass_everything_and_so_do_mended_ones(lab: Lab, untouched: set[str], user: str) -> None:
    told = judged(lab, user)
    assert (told.stopped, told.fit) == ((), tuple(lab.options.names())), told.why
    assert files(lab) ^ untouched == set()
