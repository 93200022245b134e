"""How a play ended on each host: by Ansible's own account, with the innermost words and without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.bootstrap.inventory import ClusterHost, Ssh
from profiles.vocabulary import VerdictWord
from tasks.ssh.failures import SAID_CHARACTERS
from tasks.ssh.plays import HostEnd, Play, PlayEvent, PlayHost, innermost, play_inventory, run_play
from tests.support.cases.rows import rows

PLAYS = Path(__file__).parents[4] / "tasks" / "bootstrap" / "plays"
SECRET = "abcdef.0123456789abcdef"


def event(kind: str, host: str = "h0", task: str = "join", **result: Any) -> str:
    return json.dumps({"event": kind, "event_data": {"host": host, "task": task, "res": result}})


def account(ok: list[str], failed: list[str] = [], dark: list[str] = []) -> str:  # noqa: B006 - never changed
    data = {
        "processed": {host: 1 for host in [*ok, *failed, *dark]},
        "failures": {host: 1 for host in failed},
        "dark": {host: 1 for host in dark},
    }
    return json.dumps({"event": "playbook_on_stats", "event_data": data})


def play(*names: str, **more: Any) -> Play:
    hosts = tuple(PlayHost(name, ClusterHost(address="192.0.2.1")) for name in names)
    return Play(PLAYS / "look.yaml", {"targets": hosts}, Ssh(), **more)


def told_by(
    monkeypatch: pytest.MonkeyPatch,
    *lines: str,
    code: int = 0,
    logs: Path | None = None,
    names: tuple[str, ...] = ("n1",),
) -> tuple[dict[str, HostEnd], list[PlayEvent]]:
    """What a play tells where Ansible prints these lines."""
    import contextlib
    import threading

    class Process:
        def __init__(self) -> None:
            self.stdout = iter(lines)

        def wait(self) -> int:
            return code

    @contextlib.contextmanager
    def stand_in(*words: object) -> Any:
        yield Process(), threading.Event()

    monkeypatch.setattr("tasks.ssh.plays.ansible", stand_in)
    monkeypatch.setattr("tasks.ssh.plays.missing_program", lambda: "")
    seen: list[PlayEvent] = []
    ends = run_play(play(*names), seen.append, logs)
    return ends, seen


def test_a_host_came_through_by_the_account_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [event("runner_on_ok", changed=True, stdout="joined"), event("runner_on_ok", task="mark")]
    ends, seen = told_by(monkeypatch, *lines, account(["h0"]))
    assert ends["n1"] == HostEnd("n1", VerdictWord.PASS, "", ("join",), {"join": "joined"})
    assert [(one.host, one.ending) for one in seen] == [("n1", "changed"), ("n1", "ok")]
    ends, _ = told_by(monkeypatch, *lines, code=137)
    assert (ends["n1"].word, ends["n1"].why) == (VerdictWord.UNKNOWN, "Ansible ended with 137: ")


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        ('{"changed": ["/etc/a", "/usr/local (containerd)"], "lacking": []}', "/etc/a, /usr/local (containerd)"),
        ('{"changed": ["a", "b", "c", "d"]}', "a, b, c, d"),
        ('{"changed": ["a", "b", "c", "d", "e", "f"]}', "a, b, c, d and 2 more"),
        ('{"removed": ["member c1"]}', "member c1"),
        ('{"changed": [], "lacking": []}', ""),
        (f'{{"changed": ["{SECRET}", "\\u001b[2Ja"]}}', "***, \ufffd[2Ja"),
        ('{"removed": true}', '{"removed": true}'),
        ('["a"]', '["a"]'),
        ('{"changed": ["a"', '{"changed": ["a"'),
        ("joined", "joined"),
    ],
)
def test_what_a_program_of_ours_did_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stdout: str, said: str
) -> None:
    lines = [event("runner_on_ok", changed=True, stdout=stdout, stderr=""), account(["h0"])]
    ends, [seen] = told_by(monkeypatch, *lines, logs=tmp_path)
    assert seen.said == said
    assert (tmp_path / "n1.log").read_text().rstrip().endswith(f" join: {said}" if said else " join")
    if SECRET not in stdout:
        assert ends["n1"].told["join"] == stdout, "whoever reads it by program has it whole"
    failed = event("runner_on_failed", stdout='{"changed": ["/etc/a"]}', stderr="no space")
    ends, _ = told_by(monkeypatch, failed, account([], ["h0"]))
    assert ends["n1"].why.endswith("no space")


def test_whoever_watches_hears_what_has_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start = event("runner_on_start", task="kubeadm join")
    _, seen = told_by(monkeypatch, start, event("runner_on_start", "h7"), account(["h0"]), logs=tmp_path)
    assert seen == [PlayEvent("n1", "kubeadm join", "began", "")]
    assert list(tmp_path.iterdir()) == [], "the log has what came of it"


def test_one_host_s_failure_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [
        event("runner_on_failed", "h1", msg="non-zero return code", stderr=f"token {SECRET} is refused"),
        event("runner_on_unreachable", "h2", task="look", msg="no route"),
        event("runner_on_ok", "h0"),
        account(["h0"], ["h1"], ["h2"]),
    ]
    ends, seen = told_by(monkeypatch, *lines, logs=tmp_path, names=("n1", "n2", "n3"))
    assert [ends[name].word for name in ("n1", "n2", "n3")] == [VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN]
    assert ends["n2"].why == "join: token *** is refused"
    assert ends["n3"].why == "look: no route"
    assert SECRET not in repr(seen) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "failed      join: token *** is refused" in (tmp_path / "n2.log").read_text()


def test_no_part_of_a_token_is_left_where_words_are_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key, digest = "ab" * 32, "12" * 32
    for room in range(SAID_CHARACTERS - len(SECRET) - 4, SAID_CHARACTERS + 2):
        said = f"--certificate-key {key} {SECRET} {'x' * room}"
        lines = [event("runner_on_failed", msg=said), account([], ["h0"])]
        ends, seen = told_by(monkeypatch, *lines, logs=tmp_path)
        shown = ends["n1"].why + seen[0].said
        assert not any(SECRET[-many:] in shown for many in range(4, len(SECRET) + 1)), room
    kept = event("runner_on_ok", stdout=f"kubeadm join --token {SECRET} --discovery-token-ca-cert-hash sha256:{digest}")
    ends, _ = told_by(monkeypatch, kept, account(["h0"]), logs=tmp_path)
    assert ends["n1"].told["join"] == f"kubeadm join --token *** --discovery-token-ca-cert-hash sha256:{digest}"
    log = (tmp_path / "n1.log").read_text()
    assert SECRET not in log
    assert key not in log
    ends, _ = told_by(monkeypatch, f"{SECRET} {'x' * (SAID_CHARACTERS - 8)}", code=4)
    assert "cdef" not in ends["n1"].why


def test_no_words_of_a_host_act_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, seen = told_by(monkeypatch, event("runner_on_failed", msg="a\x1b[2Jb\x1b[31mc"), account([], ["h0"]))
    assert (ends["n1"].why, seen[0].said) == ("join: a\ufffd[2Jbc", "a\ufffd[2Jbc")


def test_a_failure_that_is_ignored_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.loads(event("runner_on_failed", msg="no"))
    line["event_data"]["ignore_errors"] = True
    ends, seen = told_by(monkeypatch, json.dumps(line), account(["h0"]))
    assert (ends["n1"].word, seen) == (VerdictWord.PASS, [])


def test_what_ansible_itself_says_is_the_reason_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    error = json.dumps({"event": "verbose", "stdout": "[ERROR]: 'serial' is undefined"})
    ends, _ = told_by(monkeypatch, error, "", code=4)
    assert ends["n1"].why == "Ansible ended with 4: [ERROR]: 'serial' is undefined"


@rows("tasks/ssh/plays")
def test_the_innermost_words_are_told(result: dict[str, Any], said: str) -> None:
    assert innermost(result) == said


def test_nothing_of_a_profile_is_a_template_and_digits_stay_text() -> None:
    reached = ClusterHost(address="192.0.2.1", user="ops", jump="gate:2222", private_key_file="/keys/100%")
    host = PlayHost("n1", reached, {"a": "{{ b }}", "c": ["1"]})
    text = play_inventory(Play(PLAYS / "look.yaml", {"targets": (host,)}, Ssh(), {"v": "1.10"}), {"n1": "h0"})
    assert '!unsafe "{{ b }}"' in text
    plain = yaml.safe_load(text.replace("!unsafe ", ""))["all"]
    own = plain["children"]["targets"]["hosts"]["h0"]
    assert (plain["vars"]["v"], own["c"], own["ansible_become"]) == ("1.10", ["1"], True)
    assert "ProxyCommand=" in own["ansible_ssh_common_args"]
    assert "-p 2222 -l ops -W [%h]:%p -- gate" in own["ansible_ssh_common_args"]
    assert "-i /keys/100%% " in own["ansible_ssh_common_args"]
    assert own["ansible_ssh_private_key_file"] == "/keys/100%"
    assert own["ansible_ssh_common_args"].count("StrictHostKeyChecking=yes") == 2, "the gate's key is compared, too"
