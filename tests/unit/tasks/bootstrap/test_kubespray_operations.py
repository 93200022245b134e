"""What a dead driver left of an operation is told once, judged by its end, and never begun anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import VerdictWord
from tasks.bootstrap import kubespray_operations
from tasks.bootstrap.kubespray import KubesprayOutcome, KubespraySite
from tasks.bootstrap.kubespray_operations import Listeners, has_passed, operate, still_runs, take_up, unfinished
from tasks.bootstrap.kubespray_source import KubesprayCopy
from tasks.ssh.plays import PlayEvent
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows.bootstrap import kubespray
from workflows.bootstrap.kubespray import KubesprayScope

Json = dict[str, Any]
EVENTS: tuple[tuple[str, Json], ...] = (
    ("playbook_on_play_start", {"play": "Prepare"}),
    ("runner_on_ok", {"host": "c1", "task": "Write", "res": {"changed": True}}),
    ("runner_on_ok", {"host": "localhost", "task": "Fetch", "res": {}}),
    ("runner_on_failed", {"host": "w1", "task": "Get", "res": {"msg": "no secret-word"}}),
    ("playbook_on_stats", {"ok": {"c1": 1}, "failures": {"w1": 1}}),
)


class Heard:
    """Who listens, with a log for each host."""

    def __init__(self, logs: Path) -> None:
        self.lines: list[str] = []
        self.events: list[PlayEvent] = []
        self.listeners = Listeners(self.lines.append, self.events.append, logs, ("c1", "w1"))


def left_behind(home: Path, name: str, playbooks: int = 1, *, begun: int = 1, code: str | None = "2") -> Path:
    """An operation whose driver died, and whose playbooks that were begun have ended meanwhile."""
    folder = home / name
    for number in range(1, begun + 1):
        run = folder / f"{number:02d}" / "artifacts" / "run"
        (run / "job_events").mkdir(parents=True)
        for place, (kind, data) in enumerate(EVENTS, start=1):
            raw = {"counter": place, "event": kind, "event_data": data}
            (run / "job_events" / f"{place}-ab.json").write_text(json.dumps(raw))
        if code is not None:
            (run / "rc").write_text(code)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operation.json").write_text(json.dumps([{"playbook": "cluster.yml"}] * playbooks))
    return folder


@pytest.mark.parametrize(
    ("playbooks", "begun", "code", "word", "why"),
    [
        (1, 1, "2", "fail", "w1: Get: no ***"),
        (1, 1, "0", "pass", ""),
        (2, 1, "0", "unknown", "1 of its playbooks were not begun"),
        (2, 1, "2", "fail", "w1: Get: no ***"),
        (1, 1, None, "unknown", "ansible-runner left no word"),
        (1, 0, None, "unknown", "nothing of it was begun"),
    ],
)
def test_what_was_left_behind_is_followed_to_its_end_and_nothing_is_begun(
    tmp_path: Path, playbooks: int, begun: int, code: str | None, word: str, why: str
) -> None:
    folder = left_behind(tmp_path, "0001-up-ab", playbooks, begun=begun, code=code)
    assert unfinished(tmp_path) == ("0001-up-ab",)
    assert not still_runs(tmp_path, "0001-up-ab")
    heard = Heard(tmp_path / "logs")
    outcome = take_up(tmp_path, "0001-up-ab", frozenset({"secret-word"}), heard.listeners)
    assert outcome.word == word
    assert outcome.why.startswith(why)
    assert unfinished(tmp_path) == ()
    assert not (folder / f"{begun + 1:02d}").exists()


def test_events_are_told_once_and_hosts_have_them_in_their_logs(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, "0001-up-ab")
    heard = Heard(tmp_path / "logs")
    take_up(tmp_path, "0001-up-ab", frozenset({"secret-word"}), heard.listeners)
    assert heard.lines == ["Prepare …", "Prepare: 2 ok, 1 changed, 1 failed"]
    assert [(one.host, one.ending, one.said) for one in heard.events] == [
        ("c1", "changed", ""),
        ("localhost", "ok", ""),
        ("w1", "failed", "no ***"),
    ]
    logs = {path.name: path.read_text().split(" ", 1)[1] for path in (tmp_path / "logs").iterdir()}
    assert logs == {"c1.log": "changed     Write\n", "w1.log": "failed      Get: no ***\n"}
    (folder / "told.json").write_text(json.dumps({"place": "01/00000003"}))
    again = Heard(tmp_path / "logs")
    take_up(tmp_path, "0001-up-ab", frozenset(), again.listeners)
    assert ([one.host for one in again.events], again.lines) == (["w1"], ["Prepare: 2 ok, 1 changed, 1 failed"])


@pytest.fixture
def site(tmp_path: Path) -> KubespraySite:
    engine = {"kind": "kubespray", "version": "1.36.3", "environment": "/opt/k"}
    cluster = kubeadm_cluster(engine={**engine, "source": {"archive": "/k.tar", "sha256": "a" * 64}})
    return KubespraySite(cluster, KubesprayCopy(tmp_path / "copy", tmp_path), tmp_path / "operations")


def test_each_operation_has_a_folder_that_says_what_it_does(
    site: KubespraySite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    carried: list[tuple[str, str]] = []
    words = iter([VerdictWord.FAIL, *[VerdictWord.PASS] * 20])

    def carry_out(site: KubespraySite, name: str, playbooks: Sequence[Any], tell: object, after: str) -> Any:
        carried.append((name, after))
        left_behind(site.home, name, begun=0)
        return KubesprayOutcome(next(words), "")

    monkeypatch.setattr(kubespray_operations, "carry_out", carry_out)
    listeners = Heard(tmp_path / "logs").listeners
    up = kubespray.cluster_up()
    for _ in range(2):
        assert not has_passed(site, "up", up)
        operate(site, "up", up, listeners)
    assert has_passed(site, "up", up)
    other = KubespraySite(site.cluster, site.copy, site.home, KubesprayScope(("c1", "w1")))
    assert not has_passed(other, "up", up), "other hosts are another operation"
    operate(other, "up of c1 & w1", up, listeners)
    names = [name for name, _ in carried]
    assert [name[:4] for name in names] == ["0001", "0002", "0003"], "one that failed is begun anew under another name"
    assert names[0][5:] == names[1][5:]
    assert names[2].startswith("0003-up-of-c1-w1-")
    left_behind(site.home, "0004-" + names[0][5:], begun=0)
    operate(site, "up", up, listeners)
    assert carried[-1] == ("0004-" + names[0][5:], ""), "that of a driver that died is gone on with"
    for _ in range(15):
        operate(site, "up", up, listeners)
    assert len(list(site.home.iterdir())) == kubespray_operations.KEPT
