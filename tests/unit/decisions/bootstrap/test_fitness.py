"""What a command that was cut off has measured stands for those who go on, and for nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from flows.decisions.bootstrap.fitness import FRESH_SECONDS, lately_fit
from flows.decisions.bootstrap.judge import Wanted, judged
from flows.decisions.bootstrap.plans import plan_of
from profiles.bootstrap.request import BootstrapRequest
from profiles.loading.load import load_run
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.kubeadm_cluster import HOSTS, kubeadm_cluster, release, sight_of
from workflows.bootstrap.building import BuildingSight
from workflows.model.bootstrap import Stage, Step, StepRecord
from workflows.model.host_sight import LookFailure

CLUSTER, RELEASE = kubeadm_cluster(), release()
WANTED = Wanted(CLUSTER, RELEASE, {})
PLAN = plan_of(WANTED, BootstrapRequest(cluster="made"), {})
NOW = 5000.0


def record(step: Step, state: str, ended_at: float | None) -> StepRecord:
    return StepRecord("made", step.stage, step.subject, step.wanted, state, 1, 4000.0, ended_at, "seen")  # type: ignore[arg-type]


def cut_off(age: float = 40.0) -> dict[str, StepRecord]:
    """What the ledger remembers of a command that was killed amid the first stage."""
    checks = {step.id: record(step, "proven", NOW - age) for step in PLAN if step.stage is Stage.PRECHECKS}
    return checks | {step.id: record(step, "began", None) for step in PLAN if step.id == "hosts/c1"}


def test_hosts_that_a_command_found_fit_before_it_was_cut_off_are_not_measured_again() -> None:
    assert lately_fit(PLAN, cut_off(), NOW) == dict.fromkeys(HOSTS, 40.0)


@pytest.mark.parametrize(
    "other",
    [
        replace(WANTED, cluster=kubeadm_cluster(mirror={"files_url": "http://192.0.2.6:8080"})),
        replace(WANTED, forced={"swap": "it is never used"}),
    ],
)
def test_another_profile_and_what_somebody_passed_over_are_checked_anew(other: Wanted) -> None:
    plan = plan_of(other, BootstrapRequest(cluster="made"), {})
    assert lately_fit(plan, cut_off(), NOW) == {}
    assert {step.id for step, own in zip(plan, PLAN, strict=True) if step.wanted != own.wanted} == {
        f"prechecks/{name}" for name in HOSTS
    }


def test_what_a_run_proves_is_the_same_whatever_else_the_profile_says() -> None:
    found = cluster_with(["metrics-server"])
    whole = Wanted(found, None, {}, chosen_of(found), run=load_run("demo"))
    other = replace(whole, cluster=found.model_copy(update={"description": "other words"}), forced={"swap": "unused"})
    proofs = {plan_of(one, BootstrapRequest(cluster="made"), {})[-1].wanted for one in (whole, other)}
    assert len(proofs) == 1


OTHERS: Mapping[str, dict[str, StepRecord]] = {
    "nothing was ever begun": {},
    "long ago": cut_off(FRESH_SECONDS + 1.0),
    "a clock that was put back": cut_off(-1.0),
    "one host was not fit": cut_off() | {"prechecks/w1": replace(cut_off()["prechecks/w1"], state="failed")},
    "one host was never checked": {key: one for key, one in cut_off().items() if key != "prechecks/w1"},
    "the command came to its end": cut_off() | {"hosts/c1": replace(cut_off()["hosts/c1"], state="failed")},
    "all of it held": cut_off() | {"hosts/c1": replace(cut_off()["hosts/c1"], state="proven")},
}


@pytest.mark.parametrize("case", OTHERS)
def test_all_others_are_measured(case: str) -> None:
    assert lately_fit(PLAN, OTHERS[case], NOW) == {}


def test_who_was_found_fit_must_answer_all_the_same() -> None:
    looked = host_sights.sight_of(CLUSTER, pairs=False)
    silent = replace(looked.hosts["w1"], failure=LookFailure.UNREACHABLE, why="no route")
    seen = BuildingSight(NOW, replace(looked, hosts={**looked.hosts, "w1": silent}), sight_of(CLUSTER, RELEASE))
    wanted = replace(WANTED, fit=lately_fit(PLAN, cut_off(), NOW))
    checks = {name: proof for name, proof in judged(wanted, PLAN, seen).items() if name.startswith("prechecks/")}
    assert {name: one.word for name, one in checks.items() if one.word != "pass"} == {"prechecks/w1": "unknown"}
    assert checks["prechecks/c1"].why == "every check passed 40 s before, and it answers"
    assert checks["prechecks/w1"].why == "no route"
