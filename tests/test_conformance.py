"""Ordinary users' workflows do on the embedded cluster what Argo's documents and source say they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from profiles.errors import Refused
from profiles.load import load_cluster
from tasks.clusters import embedded_spec
from tests.conformance_cases import Case, check, load_cases, run_all
from tests.conformance_trees import differences, tree_of
from tests.embedded_stage import cluster
from tests.once import once

CASES = load_cases()


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
