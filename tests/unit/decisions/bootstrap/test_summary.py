"""Many hosts in few words: nobody is lost in folding, and those that are alike are said once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.drift import Difference
from flows.decisions.bootstrap.summary import (
    alike,
    folded_names,
    group_name,
    open_steps,
    parts_of,
    said_once,
    stages_of,
)
from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import StepOutcome


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["gpu-0999", "gpu-1000", "gpu-0001"], "gpu-[0001,0999-1000]"),
        (["gpu-01", "gpu-001", "gpu-1"], "gpu-1, gpu-01, gpu-001"),
        (["r1-n01", "r1-n02", "r2-n01"], "r1-n[01-02], r2-n01"),
        (["n1.a2.site", "n2.a2.site", "n1.a3.site"], "n[1-2].a2.site, n1.a3.site"),
        (["argo-workflows", "jobset", "n2"], "argo-workflows, jobset, n2"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1, 10.0.0.2"),
    ],
)
def test_names_are_folded_as_schedulers_write_them(names: list[str], folded: str) -> None:
    assert folded_names(names) == folded


def unfolded(text: str) -> list[str]:
    """What a scheduler makes of it."""
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[\s]|\[[^\]]*\])+", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if not match:
            found.append(part)
            continue
        for run in match[2].split(","):
            low, _, high = run.partition("-")
            numbers = range(int(low), int(high or low) + 1)
            found += [f"{match[1]}{number:0{len(low)}}{match[3]}" for number in numbers]
    return found


@given(st.lists(st.from_regex(r"[a-c]{0,2}-?[0-9]{0,3}[a-c]?(\.[a-b]1)?", fullmatch=True).filter(bool), unique=True))
def test_whoever_reads_the_folded_names_can_name_every_host(names: list[str]) -> None:
    assert sorted(unfolded(folded_names(names))) == sorted(names)


TABLE = {
    "cluster": {"proof": "not yet"},
    "n1": {"prechecks": "pass", "hosts": "pass", "control-plane": "pass"},
    "w1": {"prechecks": "pass", "hosts": "pass", "workers": "pass"},
    "w2": {"prechecks": "pass", "hosts": "fail", "workers": "not yet"},
    "w3": {"prechecks": "pass", "hosts": "pass", "workers": "pass"},
    "jobset": {"components": "pass"},
}


def test_hosts_are_apart_from_components_and_those_that_are_alike_are_one() -> None:
    hosts, others = parts_of(TABLE)
    assert (list(hosts), list(others)) == (["n1", "w1", "w2", "w3"], ["cluster", "jobset"])
    assert stages_of(hosts) == ["prechecks", "hosts", "control-plane", "workers"]
    assert [group.names for group in alike(hosts)] == ["w2", "n1", "w[1,3]"]
    assert alike(hosts)[2].words == TABLE["w1"]


def step(name: str, word: VerdictWord, why: str) -> StepOutcome:
    return StepOutcome(name, "does it", word, why, None)


def test_the_same_failure_of_many_hosts_is_said_once() -> None:
    steps = [
        *(step(f"hosts/w{index:02}", VerdictWord.FAIL, "no containerd") for index in range(1, 31)),
        step("hosts/w31", VerdictWord.UNKNOWN, "no containerd"),
        step("hosts/w32", VerdictWord.PASS, "fits"),
        step("workers/w01", VerdictWord.FAIL, "no containerd"),
    ]
    found = open_steps(steps)
    assert [(one.id, one.word) for one in found] == [
        ("hosts/w[01-30]", "fail"),
        ("hosts/w31", "unknown"),
        ("workers/w01", "fail"),
    ]


def test_where_very_many_fail_those_are_one_whose_reasons_differ_in_numbers_alone() -> None:
    steps = [
        *(step(f"hosts/w{index}", VerdictWord.UNKNOWN, f"10.0.0.{index}:22 does not answer") for index in range(30)),
        step("hosts/w99", VerdictWord.UNKNOWN, "it is mute"),
    ]
    assert len(open_steps(steps)) == 31
    first, second = open_steps(steps, most=12)
    assert (first.id, len(first.subjects)) == ("hosts/w[0-29]", 30)
    assert first.why == "10.0.0.0:22 does not answer (and 29 more that differ in numbers)"
    assert second.id == "hosts/w99"


def test_a_group_has_a_short_name() -> None:
    assert group_name([f"gpu-{index:03}" for index in range(1, 51)]) == "gpu-[001-050]"
    assert group_name([f"gpu-{index:03}" for index in range(1, 400, 7)]) == "gpu-001 and 56 more"
    assert group_name(["x" * 200]) == "x" * 200


def test_a_difference_of_many_hosts_is_said_once() -> None:
    found = [Difference(f"w{index}", "kernel", "6.1", "6.2") for index in range(1, 4)]
    found += [Difference("w4", "kernel", "6.1", "6.3"), Difference("w5", "the host", "", "mute", VerdictWord.UNKNOWN)]
    assert said_once(found) == (
        "w[1-3]: kernel: wanted 6.1, found 6.2",
        "w4: kernel: wanted 6.1, found 6.3",
        "w5: the host: unknown: mute",
    )
