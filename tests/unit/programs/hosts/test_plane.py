"""What is done to etcd of a control plane, and what is told of pods and DNS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workflows.bootstrap import leaving
from workflows.programs.hosts import plane


def member(name: str, host: int, *, learner: bool = False, number: int = 0) -> dict[str, Any]:
    """As etcd tells it; one that never began has no name and serves nobody."""
    urls = {"clientURLs": [f"https://192.0.2.{host}:2379"]} if name else {}
    own = {"isLearner": True} if learner else {}
    return {"ID": str(number or host), "name": name, "peerURLs": [f"https://192.0.2.{host}:2380"], **urls, **own}


class Etcd:
    """Stands in for etcd; those in `sick` do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *members: dict[str, Any], sick: tuple[int, ...] = ()) -> None:
        self.members, self.sick, self.removed = members, sick, list[str]()
        monkeypatch.setattr(plane, "post", self.post)

    def post(self, path: str, body: dict[str, Any], where: str = plane.ETCD) -> dict[str, Any]:
        if path.endswith("/list"):
            return {"members": list(self.members)}
        if path.endswith("/remove"):
            self.removed.append(body["ID"])
        elif any(where == f"192.0.2.{host}:2379" for host in self.sick):
            raise OSError("connection refused")
        return {}


def test_a_member_that_never_began_is_removed_by_its_host_s_address(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = Etcd(monkeypatch, member("c1", 11), member("", 12, learner=True), member("", 13, learner=True))
    assert plane.remove("c2", "192.0.2.12") == {"removed": True}
    assert etcd.removed == ["12"]


def test_a_member_with_a_name_is_known_by_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = Etcd(monkeypatch, member("c1", 11), member("c2", 12), member("c3", 13))
    assert plane.remove("c9", "192.0.2.12") == {"removed": False}
    assert plane.remove("c3", "192.0.2.99") == {"removed": True}
    assert etcd.removed == ["13"]


def test_no_majority_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = Etcd(monkeypatch, member("c1", 11), member("c2", 12), member("", 13), sick=(12,))
    with pytest.raises(OSError, match="only 1 of 2 members answer"):
        plane.remove("c3", "192.0.2.13")
    assert etcd.removed == []


def test_what_a_killed_snapshot_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "SNAPSHOTS", str(tmp_path))
    (tmp_path / "20260101T000000Z-1.db.half").write_bytes(b"half of it")

    def receive(half: str) -> str:
        Path(half).write_bytes(b"all of it")
        return "a" * 64

    monkeypatch.setattr(plane, "_receive", receive)
    kept = Path(plane.snapshot(5)["path"])
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, f"{kept.name}.sha256"}


def test_a_host_that_left_keeps_no_snapshot_and_one_that_joins_again_all() -> None:
    assert leaving.SNAPSHOTS == plane.SNAPSHOTS
    assert f"rm -rf {plane.SNAPSHOTS}" in leaving.FAREWELL
    assert plane.SNAPSHOTS not in leaving.SWEEP


def test_what_dns_tolerates_is_told_and_that_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tolerations = [{"key": "a/b", "operator": "Exists"}, {"operator": "Exists"}]
    found: dict[str, Any] = {"items": [{"spec": {"template": {"spec": {"tolerations": tolerations}}}}]}
    assert dns_of(found, monkeypatch, tmp_path) == ["a/b", ""]
    assert dns_of({"items": []}, monkeypatch, tmp_path) == []
    assert dns_of(None, monkeypatch, tmp_path) is None


def dns_of(found: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """What a look tells of DNS where the API says this of its deployments."""

    def get(where: str, context: object, path: str) -> str:
        del where, context
        if path != plane.DNS:
            return '{"items": []}'
        if found is None:
            raise OSError("503")
        return plane.json.dumps(found)

    (folder / "admin.conf").touch()
    monkeypatch.setattr(plane, "ADMIN", str(folder / "admin.conf"))
    monkeypatch.setattr(plane, "admin", lambda: ("", None))
    monkeypatch.setattr(plane, "get", get)
    monkeypatch.setattr(plane, "members", list)
    monkeypatch.setattr(plane, "_certified", lambda where, context: [])
    return plane.look("192.0.2.10:6443", "192.0.2.11:6443")["dns"]


def test_of_a_node_is_told_what_it_offers_and_our_notes_alone() -> None:
    node = {
        "metadata": {"name": "n1", "annotations": {"primus-flows.io/verdict-evidence": "{}", "other/note": "x" * 999}},
        "spec": {"taints": [{"key": "primus-flows.io/startup"}]},
        "status": {"allocatable": {"amd.com/gpu": "8"}, "images": ["x" * 999], "conditions": [{"type": "Ready"}]},
    }
    told = plane._slim(node)
    assert told["metadata"]["annotations"] == {"primus-flows.io/verdict-evidence": "{}"}
    assert told["status"] == {"allocatable": {"amd.com/gpu": "8"}, "conditions": [{"type": "Ready"}]}
