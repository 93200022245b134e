"""What a test of nodes shows."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.preflight import preflight_document, preflight_text
from deployments.screen.tables import WIDEST_REASON, rows_of
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.preflight import PreflightRequest, depths_of, in_words, prove_requested, trial_of
from flows.testing.nodes import Outcome
from flows.testing.trials import of_pool
from profiles.checks.catalogue import Launcher
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_suite, resolve
from profiles.vocabulary import VerdictWord
from tasks.settings import Settings


def reason(check: str, verdict: str = "pass", measured: Any = 1.5, **more: Any) -> dict[str, Any]:
    told = {"check": check, "verdict": verdict, "measured": measured, "limit": 1.0, "unit": "GB/s", "evidence": "seen"}
    return {**told, **more}


GOOD = NodeGrade("node-0", VerdictWord.PASS, (reason("copy"), reason("disk", measured=123456.789)))
BAD = NodeGrade(
    "node-1", VerdictWord.FAIL, (reason("copy"), reason("disk", "fail"), reason("w", "fail", severity="warning"))
)
SILENT = NodeGrade("node-2", VerdictWord.UNKNOWN, (reason("copy", "unknown", measured=None),))
OUTCOME = Outcome(
    suite="any-machine",
    depth="device",
    grades={item.node: item for item in (GOOD, BAD, SILENT)},
    seconds=12.34,
    checks=2,
    why={"node-2": "its pod was never started"},
    left_out={"agfhc": "our images lack it"},
)


def test_of_a_good_node_everything_is_shown_and_of_a_bad_one_what_is_wrong() -> None:
    assert [row["check"] for row in rows_of("node-0", "pass", GOOD.reasons)] == ["copy", "disk"]
    assert [row["check"] for row in rows_of("node-1", "fail", BAD.reasons)] == ["disk: fail", "w: fail (warning)"]
    assert [row["measured"] for row in rows_of("node-0", "pass", GOOD.reasons)] == ["1.5 GB/s", "1.235e+05 GB/s"]
    [row] = rows_of("node-2", "unknown", SILENT.reasons)
    assert row["measured"] == "-"


def test_a_long_word_is_cut() -> None:
    [row] = rows_of("node-0", "pass", [reason("boot", measured="quiet " * 50, unit="")])
    assert len(row["measured"]) <= WIDEST_REASON


def test_the_table_says_how_many_and_what_was_not_told() -> None:
    shown = preflight_text(OUTCOME, 0)
    assert shown.startswith("any-machine, device: 1 pass, 1 fail, 1 unknown; 2 checks a node, 12.3 s\n")
    assert "no answer from node-2: its pod was never started" in shown
    assert "not tested: agfhc: our images lack it" in shown
    assert max(len(line) for line in preflight_text(OUTCOME, 80).splitlines()[1:5]) <= 80


def test_many_nodes_that_passed_everything_are_counted_and_no_other_is_left_out() -> None:
    good = {f"good-{number}": GOOD for number in range(9)}
    warned = replace(GOOD, reasons=(reason("copy"), reason("w", "fail", severity="warning")))
    many = replace(OUTCOME, grades={**good, "warned": warned, **OUTCOME.grades})
    shown = preflight_text(many, 0)
    assert "\n10 nodes passed every check; --all shows each" in shown
    assert [name for name in many.grades if name in shown] == ["warned", "node-1", "node-2"]
    assert all(name in preflight_text(many, 0, every=True) for name in many.grades)
    few = replace(OUTCOME, grades=dict(list(good.items())[:8]))
    assert "--all" not in preflight_text(few, 0)
    assert (
        preflight_text(replace(few, grades=good), 0).splitlines()[1] == "9 nodes passed every check; --all shows each"
    )


def test_the_document_has_all_of_it() -> None:
    told = preflight_document("local", OUTCOME)
    assert [(node["node"], node["verdict"], len(node["reasons"])) for node in told["nodes"]] == [
        ("node-0", "pass", 2),
        ("node-1", "fail", 3),
        ("node-2", "unknown", 1),
    ]
    assert told["left_out"] == [{"check": "agfhc", "why": "our images lack it"}]


def test_depths_are_those_of_which_nodes_of_the_cluster_make_checks() -> None:
    suite, local = load_suite("any-machine"), load_cluster("local")
    assert depths_of(suite, local, "") == ("smoke", "device", "fabric", "storage")
    assert depths_of(suite, local, "device") == ("device",)
    for wanted, field in (("training", "suite"), ("deep", "depth")):
        with pytest.raises(ProfileError, match=field):
            depths_of(suite, local, wanted)


def test_a_run_is_tried_on_nodes_of_its_pool_by_pods_only() -> None:
    local = load_cluster("local")
    found = trial_of("demo", local, "kubernetes", {"node-0": "cpu"})
    assert found is not None
    assert found.name == "demo"
    assert trial_of("", local, "slurm", {}) is None
    refused: list[tuple[str, Launcher, dict[str, str], str]] = [
        ("demo", "slurm", {}, "trial"),
        ("demo", "ansible", {}, "trial"),
        ("no-such-run", "kubernetes", {}, "no-such-run"),
        ("demo", "kubernetes", {"node-9": "others"}, "node-9: not of pool cpu"),
    ]
    for run, launcher, named, told in refused:
        with pytest.raises(ProfileError, match=told):
            trial_of(run, local, launcher, named)
    with pytest.raises(ProfileError, match="none of them is of pool cpu"):
        of_pool(resolve(found, local), {"node-9": "others"})


def test_tests_in_one_line() -> None:
    assert in_words([OUTCOME]) == "device: 1 of 3 pass (node-1: fail, node-2: unknown)"
    assert in_words([]) == "no node was to be tested"


def test_what_is_due_is_tested_alone_and_where_no_node_is_idle_nothing_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local, settings = load_cluster("local"), Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    calls: list[tuple[Any, ...]] = []

    def due(_profile: object, _tell: object, *, nightly: bool) -> list[Outcome]:
        calls.append(("due", nightly))
        return [OUTCOME]

    def nothing(_profile: object) -> dict[str, str]:
        return {}

    def reached(*_: object) -> nullcontext[None]:
        return nullcontext()

    def prove(*words: Any) -> list[Outcome]:
        calls.append(("prove", *words[2:4]))
        return []

    monkeypatch.setattr("flows.preflight.reached", reached)
    monkeypatch.setattr("flows.preflight.prove_due", due)
    monkeypatch.setattr("flows.preflight.prove", prove)
    monkeypatch.setattr("flows.preflight.stream_nodes", nothing)
    monkeypatch.setattr("flows.preflight.users", nothing)
    for wanted in ("occasions", "nightly"):
        assert prove_requested(local, settings, PreflightRequest(due=wanted), print) == [OUTCOME]
    assert calls == [("due", False), ("due", True)]
    for wanted in (PreflightRequest(depth="training", idle_only=True), PreflightRequest(trial="demo", idle_only=True)):
        assert prove_requested(local, settings, wanted, print) == []
    assert calls[2:] == [("prove", (), {}), ("prove", (), {})]
    prove_requested(local, settings, PreflightRequest(trial="demo"), print)
    prove_requested(local, settings, PreflightRequest(trial="demo", depth="device"), print)
    assert calls[4:] == [("prove", (), {}), ("prove", ("device",), {})]
    with pytest.raises(ProfileError, match="no check of depth training"):
        prove_requested(local, settings, PreflightRequest(depth="training"), print)
