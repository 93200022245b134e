"""Ordinary users' workflows do on the embedded cluster what Argo's documents and source say they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Refused
from profiles.loading.load import load_cluster
from tasks.clusters import embedded_spec
from tests.support.cases import conformance_recorded
from tests.support.cases.conformance_cases import Case, check, load_cases, run_all
from tests.support.cases.conformance_recorded import A_RACE, GOLDEN, IN_TURN, asked_anew, folder, tree_by_argo
from tests.support.cases.conformance_trees import differences, tree_of
from tests.support.harness.embedded_stage import cluster
from tests.support.running.once import once

CASES = load_cases()
RUN = [case for case in CASES if not case.refused]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every case, run side by side on one embedded cluster with the shipped profile's images: once for all workers."""

    def run() -> dict[str, dict[str, Any]]:
        home = tmp_path_factory.mktemp("conformance")
        profile = load_cluster("local")
        with cluster(home / "cluster", embedded_spec(profile, home)) as one:
            found = run_all(one, CASES, profile.namespace)
        return {name: one if "refused" not in one else refusal(one["refused"]) for name, one in found.items()}

    told = once(tmp_path_factory, "conformance", run)
    return {name: one if "refused" not in one else {"refused": Refused(**one["refused"])} for name, one in told.items()}


def refusal(error: Refused) -> dict[str, Any]:
    return {"refused": {"path": error.path, "reason": error.reason}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_workflow_ends_as_argo_says(case: Case, ended: dict[str, dict[str, Any]]) -> None:
    check(case, ended[case.name])


@pytest.mark.parametrize("case", [case for case in RUN if case.name not in A_RACE], ids=lambda case: case.name)
def test_argo_itself_told_the_same_tree(case: Case, ended: dict[str, dict[str, Any]]) -> None:
    recorded = tree_by_argo(case.name)
    assert recorded is not None, "Argo was not asked about this case yet: make bed-golden, on a machine with a bed"
    assert differences(tree_of(ended[case.name]), recorded) == []


def test_a_tree_is_recorded_for_each_case_that_runs_and_for_no_other() -> None:
    assert list(GOLDEN.glob("argo-*")) == [folder()]
    assert {path.stem for path in folder().iterdir()} == {case.name for case in RUN}


def test_each_case_that_changed_and_in_turn_every_case_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [case.name for case in RUN]
    monkeypatch.setattr(conformance_recorded, "changed", lambda name: name == names[-1])
    turns = [[case.name for case in asked_anew(RUN, turn, everything=False)] for turn in range(-(-len(RUN) // IN_TURN))]
    assert all(names[-1] in turn and len(turn) <= IN_TURN + 1 for turn in turns)
    assert {name for turn in turns for name in turn} == set(names)
    assert [case.name for case in asked_anew(RUN, 5, everything=True)] == names


def test_a_case_that_was_changed_or_never_recorded_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance_recorded, "CASES", tmp_path)
    monkeypatch.setattr(conformance_recorded, "GOLDEN", tmp_path)
    (tmp_path / "one.yaml").write_text("says: a\n")
    assert conformance_recorded.changed("one")
    assert tree_by_argo("one") is None
    conformance_recorded.record("one", {"phase": "Succeeded"})
    assert not conformance_recorded.changed("one")
    (tmp_path / "one.yaml").write_text("says: b\n")
    assert conformance_recorded.changed("one")
    assert tree_by_argo("one") == {"phase": "Succeeded"}


def test_the_corpus_is_large_enough() -> None:
    assert len([case for case in CASES if not case.refused]) >= 80


def wrong(case: Case) -> Iterator[dict[str, Any]]:
    """The expectations of a case, each with one thing changed that is then not so."""
    yield {"phase": "Running"}
    yield {"nodes": {"[9].nowhere": "Succeeded"}}
    yield {"seconds": [1000, 2000]}
    for name in case.expected.get("nodes", {}):
        yield {"absent": [name]}
        yield {"nodes": {name: "Running"}}
        for field in ("result", "exitCode"):
            yield {"nodes": {name: {field: "never"}}}
        for field in ("parameters", "inputs"):
            yield {"nodes": {name: {field: {"text": "never", "out": "never"}}}}
    for first, second in case.expected.get("order", ()):
        yield {"order": [[second, first]]}


def test_a_change_of_a_tree_is_noticed(ended: dict[str, dict[str, Any]]) -> None:
    for case in CASES:
        if case.refused:
            continue
        tree = tree_of(ended[case.name])
        assert differences(tree, tree_of(ended[case.name])) == []
        for name, node in tree["nodes"].items():
            for key in node:
                changed = {**tree, "nodes": {**tree["nodes"], name: {**node, key: "other"}}}
                assert len(differences(tree, changed)) == 1
        assert differences(tree, {**tree, "nodes": {}}) != []
        assert differences(tree, {**tree, "phase": "Running"}) != []


def test_a_wrong_expectation_is_noticed(ended: dict[str, dict[str, Any]]) -> None:
    for case in CASES:
        for change in wrong(case) if not case.refused else [{"refused": "spec.elsewhere"}]:
            with pytest.raises(AssertionError):
                check(replace(case, expected={**case.expected, **change}), ended[case.name])
