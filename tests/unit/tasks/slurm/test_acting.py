"""Slurm acts on verdicts: who is drained, who gets jobs again, how many at most, and what is told where nothing can be.

Slurm's commands are made up; `tests/hosts/test_slurm_acting.py` tells it with a real Slurm.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.admission import Slurm
from profiles.errors import ProfileError
from profiles.loading.load import load_text
from profiles.vocabulary import VerdictWord
from tasks.nodes.marks import VerdictMark
from tasks.slurm import commands
from tasks.slurm.nodes import act_by_slurm
from tests.support.cases.rows import rows
from tests.support.fakes.slurm_fakes import FakeSlurm

WORDS = {"p": VerdictWord.PASS, "f": VerdictWord.FAIL, "u": VerdictWord.UNKNOWN}
STATES = {
    "idle": "idle|none",
    "down": "down*|Not responding",
    "ours": "drained|primus: cpu-gemm",
    "draining": "draining|primus: cpu-gemm",
    "theirs": "drained|vendor is coming",
}


def told(node: str, letter: str, check: str = "cpu-gemm") -> VerdictMark:
    return VerdictMark(node, WORDS[letter], "device", "because", 1732300000.4, check if letter != "p" else "")


def sinfo_of(states: Mapping[str, str]) -> str:
    return "".join(f"{node}|{STATES[state]}\n" for node, state in states.items())


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path / "bin", monkeypatch)


def updates(slurm: FakeSlurm) -> list[str]:
    return [line.partition("NodeName=")[2] for line in slurm.asked("scontrol")]


def act(settings: Slurm, most: int, *verdicts: VerdictMark) -> list[str]:
    lines: list[str] = []
    act_by_slurm(settings, verdicts, lines.append, most=most)
    return lines


DRAINS = Slurm(drain=True)
DRAINED = "{} State=DRAIN Reason=primus: cpu-gemm"
RESUMED = "{} State=RESUME"


@rows("tasks/slurm/acting")
def test_what_becomes_of_a_node(slurm: FakeSlurm, state: str, letter: str, done: str) -> None:
    slurm.says("sinfo", sinfo_of({"node-0": state, "node-1": "idle"}))
    lines = act(DRAINS, 2, told("node-0", letter))
    assert updates(slurm) == ([done.format("node-0")] if done else [])
    assert len(lines) == bool(done)


def test_beyond_the_brake_nothing_more_is_drained_and_that_is_told(slurm: FakeSlurm) -> None:
    slurm.says("sinfo", sinfo_of({"old": "ours", "theirs": "theirs", "a": "idle", "b": "idle", "c": "idle"}))
    lines = act(DRAINS, 2, told("a", "f"), told("b", "f"), told("c", "f"))
    assert updates(slurm) == [DRAINED.format("a")], "one was out by us before, what others drained does not count"
    assert lines[-1].startswith("b, c failed and stay in Slurm: the brake")
    assert act(DRAINS, 0, told("a", "f"))[-1].startswith("a failed and stay in Slurm")


def test_what_passes_again_makes_room_for_what_failed(slurm: FakeSlurm) -> None:
    slurm.says("sinfo", sinfo_of({"old": "ours", "new": "idle"}))
    act(DRAINS, 1, told("new", "f"), told("old", "p"))
    assert updates(slurm) == [RESUMED.format("old"), DRAINED.format("new")]


def test_the_depth_is_named_where_no_check_is(slurm: FakeSlurm) -> None:
    slurm.says("sinfo", sinfo_of({"node-0": "idle"}))
    act(DRAINS, 1, told("node-0", "f", check=""))
    assert updates(slurm) == ["node-0 State=DRAIN Reason=primus: device"]


def test_by_itself_nothing_is_asked_of_slurm(slurm: FakeSlurm) -> None:
    assert act(Slurm(), 9, told("node-0", "f")) == []
    assert act(DRAINS, 9) == []
    assert not (slurm.folder / "asked").exists()


def test_verdicts_are_published_for_the_prolog_whatever_they_are(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.says("sinfo", sinfo_of({"a": "idle", "b": "ours", "c": "idle"}))
    folder = tmp_path / "verdicts"
    lines = act(Slurm(verdicts=str(folder)), 9, told("a", "f"), told("b", "p"), told("c", "u"))
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {
        "a": "fail cpu-gemm 1732300000\n",
        "b": "pass preflight 1732300000\n",
        "c": "unknown cpu-gemm 1732300000\n",
    }
    assert updates(slurm) == [], "without `drain` Slurm is only looked at"
    assert lines == ["b passed, but drained by our prolog before: scontrol update NodeName=… State=RESUME"]


def test_a_folder_that_cannot_be_written_is_told_once(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.says("sinfo", sinfo_of({"a": "idle", "b": "idle"}))
    (tmp_path / "file").write_text("")
    settings = Slurm(drain=True, verdicts=str(tmp_path / "file"))
    lines = act(settings, 9, told("a", "f"), told("b", "f"))
    assert lines[0].startswith("verdicts of 2 nodes were not published for the prolog: ")
    assert updates(slurm) == [DRAINED.format("a"), DRAINED.format("b")], "drains do not wait for it"


def test_a_name_that_slurm_cannot_have_costs_the_others_nothing(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.says("sinfo", sinfo_of({"good": "idle"}))
    lines = act(Slurm(drain=True, verdicts=str(tmp_path / "v")), 9, told("../etc", "f"), told("good", "f"))
    assert [path.name for path in (tmp_path / "v").iterdir()] == ["good"]
    assert lines[0].startswith("a verdict was not published for the prolog: node: '../etc' can be no node's name")
    assert lines[1] == "../etc failed and cannot be drained: Slurm has no such node"
    assert updates(slurm) == [DRAINED.format("good")]


def test_a_person_without_rights_is_told_once_for_all_nodes(slurm: FakeSlurm) -> None:
    names = [f"node-{number}" for number in range(12)]
    slurm.says("sinfo", sinfo_of(dict.fromkeys(names, "idle")))
    slurm.refuses("scontrol", "slurm_update error: Invalid user id\n")
    lines = act(DRAINS, 99, *(told(name, "f") for name in names))
    assert lines == [
        f"{', '.join(names[:8])} and 4 more could not be drained: "
        "scontrol: Invalid user id; ask as SlurmUser, root or an operator"
    ]


def test_a_slurm_that_is_away_is_told_and_not_asked_again(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.away()
    lines = act(Slurm(drain=True, verdicts=str(tmp_path / "v")), 9, told("a", "f"), told("b", "f"))
    assert lines == ["Slurm was not told all that was found: Slurm does not answer: Unable to contact slurm controller (connect failure)"]  # fmt: skip  # noqa: E501
    assert (len(slurm.asked("sinfo")), slurm.asked("scontrol")) == (1, [])
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["a", "b"], "the prolog knows it nevertheless"


def test_a_slurm_that_goes_away_meanwhile_is_not_asked_for_each_node(slurm: FakeSlurm) -> None:
    slurm.says("sinfo", sinfo_of({"a": "idle", "b": "idle"}))
    slurm.refuses("scontrol", "slurm_update error: Unable to contact slurm controller (connect failure)\n")
    assert len(act(DRAINS, 9, told("a", "f"), told("b", "f"))) == 1
    assert len(slurm.asked("scontrol")) == 1


def test_where_slurms_commands_are_missing_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert act(DRAINS, 1, told("a", "f")) == [
        "Slurm was not told all that was found: launcher: sinfo cannot be started here (No such file or directory): "
        "run this where Slurm's commands are"
    ]


@given(
    nodes=st.lists(st.tuples(st.sampled_from(sorted(STATES)), st.sampled_from("pfu")), max_size=12),
    most=st.integers(-1, 12),
)
def test_the_brake_and_other_peoples_drains_hold_for_any_fleet(nodes: list[tuple[str, str]], most: int) -> None:
    states = {f"n{number}": state for number, (state, _) in enumerate(nodes)}
    verdicts = [told(f"n{number}", letter) for number, (_, letter) in enumerate(nodes)]
    asked: list[str] = []

    def ask(words: list[str], limit_seconds: float = 0.0) -> str:
        if words[0] == "scontrol":
            node, change = words[2].partition("=")[2], words[3]
            states[node] = "idle" if change == "State=RESUME" else "ours"
            asked.append(node)
        return sinfo_of(states)

    before = {node: state for node, state in states.items() if state == "theirs"}
    ours = sum(state in ("ours", "draining") for state in states.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "ask", ask)
        act_by_slurm(DRAINS, verdicts, lambda _: None, most=most)
        once = list(asked)
        act_by_slurm(DRAINS, verdicts, lambda _: None, most=most)
    assert asked == once, "the second time nothing is left to be done"
    assert {node: states[node] for node in before} == before
    assert sum(state in ("ours", "draining") for state in states.values()) <= max(most, ours)
    unknown = {one.node for one in verdicts if one.word is VerdictWord.UNKNOWN}
    assert not unknown & set(asked)


def test_the_folder_of_verdicts_is_an_absolute_path() -> None:
    assert load_text(Slurm, "drain: true\nverdicts: /shared/v\n", "x").verdicts == "/shared/v"
    with pytest.raises(ProfileError, match="verdicts: must be an absolute path"):
        load_text(Slurm, "verdicts: shared/v\n", "x")
