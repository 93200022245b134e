from __future__ import annotations

from typing import Any

import pytest

from profiles.loading import load
from profiles.resolve import Resolved, differences, digest
from tests.support.cases.rows import rows


def _resolved(*overrides: str) -> Resolved:
    return load.resolve(load.load_run("demo", overrides), load.load_cluster("local"))


@rows("profiles/compare")
def test_differences_name_fields_as_overrides_do(overrides: list[str], lines: list[str]) -> None:
    old, new = _resolved(), _resolved(*overrides)
    assert differences(old, new) == lines
    assert (digest(old) == digest(new)) == (lines == [])


def test_differences_go_both_ways() -> None:
    old, new = _resolved(), _resolved("roles.trainer.environment.NEW=1")
    assert differences(new, old) == ['roles.trainer.environment.NEW: "1" -> (not set)']


def test_long_values_are_cut() -> None:
    (line,) = differences(_resolved(), _resolved("roles.trainer.command=[" + "x" * 500 + "]"))
    assert len(line) < 250
    assert "…" in line


def test_another_cluster_is_a_difference() -> None:
    run = load.load_run("demo")
    far = load.resolve(run, load.load_cluster("local", ["pools.cpu.nodes=9"]))
    assert differences(_resolved(), far) == ["cluster.pools.cpu.nodes: 6 -> 9", "pool.nodes: 6 -> 9"]


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [("source", "/elsewhere", False), ("mount_path", "/elsewhere", False)],
)
def test_the_folder_of_a_storage_is_no_citation(path: str, value: Any, same: bool) -> None:
    old = _resolved()
    storage = old.cluster.storage[0].model_copy(update={path: value})
    cluster = old.cluster.model_copy(update={"storage": (storage,)})
    assert (digest(old.model_copy(update={"cluster": cluster})) == digest(old)) == same


def test_words_for_people_inside_free_keys_count() -> None:
    old, new = _resolved(), _resolved("roles.trainer.environment.description=x")
    assert digest(old) != digest(new)
    assert differences(old, new) == ['roles.trainer.environment.description: (not set) -> "x"']


def test_the_digest_ignores_what_stands_at_its_default() -> None:
    spelt_out = _resolved("budget.gpu_hours=0", "queue=", "topology={level: none, required: false}")
    assert digest(spelt_out) == digest(_resolved())
    assert len(digest(spelt_out)) == 64
