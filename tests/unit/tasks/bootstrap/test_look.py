"""What each host of a profile is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from profiles.errors import ProfileError
from tasks.bootstrap import look
from tasks.ssh.looking import Pairing, Question, Tell
from tests.support.builders.host_sights import profile
from workflows.model.host_facts import Unread
from workflows.model.host_sight import HostSight
from workflows.programs.hosts.options import Options

Asked = list[tuple[Sequence[Question], int, Pairing | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    calls: Asked = []

    async def look_at(
        questions: Sequence[Question], at_once: int, pairing: Pairing | None, tell: Tell
    ) -> dict[str, HostSight]:
        calls.append((questions, at_once, pairing))
        return {one.target.name: HostSight(one.target.name) for one in questions}

    monkeypatch.setattr(look, "look_at", look_at)
    return calls


def test_a_deep_look_asks_for_what_the_roles_need(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("PEM")
    mirror = {
        "files_url": "http://mirror.site:8080/k",
        "registry": "registry.site:5000/k8s",
        "ca_file": str(tmp_path / "ca"),
    }
    told = profile(mirror=mirror, endpoint={"address": "api.site", "kind": "external"}, ssh={"at_once": 7})
    seen = look.look_at_hosts(told, more=Options(names=("more.site",), files=("/etc/x",), units=("kubelet.service",)))
    [(questions, at_once, pairing)] = asked
    assert (at_once, list(seen.hosts), seen.pairs) == (7, ["c1", "c2", "c3", "w1", "w2", "w3", "w4"], True)
    plane, worker = questions[0], questions[3]
    assert (plane.address, plane.ports, worker.ports) == ("10.0.0.11", (6443, 10250, 2379, 2380), (10250,))
    assert (plane.options.fsync, worker.options.fsync) == ("/var/lib/etcd", "")
    assert plane.options.names == ("api.site", "mirror.site", "registry.site", "more.site")
    assert (plane.options.registry, plane.options.authority) == ("https://registry.site:5000", "PEM")
    assert [url for url, _ in plane.options.fetch] == ["http://mirror.site:8080/k/kubernetes/v1.36.3/kubectl"]
    assert (plane.options.files, plane.options.units) == (("/etc/x",), ("kubelet.service",))
    assert "vm.max_map_count" in plane.options.sysctls
    assert pairing is not None
    assert pairing.mtu == 9000
    assert (pairing.ports("w1", "c1"), pairing.ports("c1", "c2")) == ((6443, 10250), (6443, 10250, 2379, 2380))
    assert (pairing.ports("c1", "w1"), pairing.ports("w1", "w2")) == ((10250,), (10250,))


def test_a_shallow_look_writes_nothing_and_fetches_nothing(asked: Asked) -> None:
    seen = look.look_at_hosts(profile(), ("w2", "c1"), deep=False)
    [(questions, _, pairing)] = asked
    assert (list(seen.hosts), seen.pairs, pairing) == (["c1", "w2"], False, None)
    assert {(one.options.fsync, one.options.fetch) for one in questions} == {("", ())}


def test_ways_that_should_be_tried_and_are_not_are_unknown(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = look.look_at_hosts(profile(), ("w2",))
    monkeypatch.setattr(look, "MOST_PAIRED", 6)
    many = look.look_at_hosts(profile())
    assert [pairing for _, _, pairing in asked] == [None, None]
    assert alone.pairs == Unread("nobody tried: no other host was looked at")
    assert many.pairs == Unread("nobody tried: 7 hosts were looked at, and no more than 6 stay connected")


def test_what_cannot_be_used_is_refused_before_anybody_is_asked(asked: Asked) -> None:
    with pytest.raises(ProfileError, match=r"bootstrap.mirror.ca_file: /no/such cannot be read"):
        look.look_at_hosts(profile(mirror={"registry": "r.site", "ca_file": "/no/such"}))
    with pytest.raises(ProfileError, match=r"bootstrap: cluster made has no such section"):
        look.look_at_hosts(profile().model_copy(update={"bootstrap": None}))
    assert asked == []
