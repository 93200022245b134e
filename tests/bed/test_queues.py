"""Two workspaces of one cohort: what the product's queues do on a real Kueue, as its own objects say.

All pods are played: nothing runs, everything is decided.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.decisions.explain.queue import Entry, entries
from profiles.loading.load import load_cluster
from profiles.workspace import WorkspaceProfile
from tasks.observe.run import read_queues
from tests.bed import samples, up
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.ground import BedCluster
from tests.bed.up import Bed
from workflows.platform.workspace import KUEUE

A, B, ALONE = "bed-team-a", "bed-team-b", "bed-team-alone"
CPUS = 4
"""What each of them owns."""


@pytest.fixture(scope="module")
def teams(standing: None) -> Iterator[Bed]:
    """Two that lend each other what is idle, and one of the cohort that neither borrows nor lends."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    profiles = [
        WorkspaceProfile(name=name, queue=samples.QUEUE, cohort="bed-cohort", flavors=(samples.played(CPUS, **limits),))
        for name, limits in ((A, {}), (B, {}), (ALONE, {"borrowing_limit": "0", "lending_limit": "0"}))
    ]
    with samples.workspaces(bed, *profiles):
        yield bed


@pytest.fixture
def bed(teams: Bed) -> Iterator[Bed]:
    """With empty queues."""
    yield teams
    for space in (A, B, ALONE):
        for name in samples.workloads(teams, space):
            teams.api.delete(samples.jobset_named(name, space))
    until("empty queues", lambda: not any(samples.workloads(teams, one) for one in (A, B, ALONE)), 60, 0.2)


def submit(bed: Bed, space: str, name: str, priority: str = "normal", pods: int = 1, cpu: str = "1") -> Manifest:
    """A gang in a workspace's queue."""
    spec = samples.pod_spec(samples.BUSYBOX, ["true"], cpu=cpu, memory="1Gi")
    made = samples.jobset(name, space, pods, spec, queued=priority)
    bed.api.ensure(made)
    return made


def state(bed: Bed, space: str, name: str) -> dict[str, str]:
    """True conditions of a gang's workload with their reasons."""
    return samples.conditions(samples.workloads(bed, space).get(name))


def admitted(bed: Bed, space: str, *names: str) -> None:
    """Wait until all of them are."""
    until(
        f"{', '.join(names)} admitted",
        lambda: all("Admitted" in state(bed, space, name) for name in names),
        samples.LIMIT_S,
        0.2,
    )


def usage(bed: Bed, space: str) -> tuple[str, str]:
    """CPUs that a workspace's admitted gangs hold, and how many of them are borrowed."""
    found = bed.api.get(f"/apis/{KUEUE}/clusterqueues/{space}")["status"]["flavorsReservation"]
    [cpu] = [one for flavor in found for one in flavor["resources"] if one["name"] == "cpu"]
    return cpu["total"], cpu["borrowed"]


def reason_to_wait(bed: Bed, space: str, name: str) -> str:
    """Kueue's own words on a gang that it has no room for."""
    listed: list[Manifest] = samples.workloads(bed, space).get(name, {}).get("status", {}).get("conditions", [])
    return "".join(one["message"] for one in listed if one["type"] == "QuotaReserved" and one["status"] == "False")


def in_line(bed: Bed, space: str) -> dict[str, Entry]:
    """What `primus queue` shows of a workspace."""
    profile = load_cluster("bed", (f"namespace={space}", f"queue={samples.QUEUE}"))
    cluster = BedCluster(profile, bed.options, bed.folder)
    return {entry.name: entry for entry in entries(read_queues(cluster, profile), 0.0)}


def test_what_is_idle_is_borrowed_and_taken_back(bed: Bed) -> None:
    submit(bed, A, "own", cpu=str(CPUS))
    admitted(bed, A, "own")
    submit(bed, A, "borrowing", cpu=str(CPUS))
    admitted(bed, A, "borrowing")
    until("the loan counted", lambda: usage(bed, A) == ("8", "4"), samples.LIMIT_S, 0.2)
    submit(bed, B, "owner", "low", cpu=str(CPUS))
    admitted(bed, B, "owner")
    reclaimed = {name: state(bed, A, name) for name in ("own", "borrowing")}
    [victim] = [name for name, conditions in reclaimed.items() if "Evicted" in conditions]
    assert reclaimed[victim]["Evicted"] == "Preempted"
    assert reclaimed[victim]["Preempted"] == "InCohortReclamation"
    [kept] = [name for name in reclaimed if name != victim]
    assert "Admitted" in reclaimed[kept], "one victim was enough, although its priority is higher than the owner's"
    until("both within their own", lambda: (usage(bed, A), usage(bed, B)) == (("4", "0"),) * 2, samples.LIMIT_S, 0.2)


def test_a_workspace_that_may_not_borrow_waits_and_lends_nothing(bed: Bed) -> None:
    submit(bed, ALONE, "own", cpu="3")
    admitted(bed, ALONE, "own")
    submit(bed, ALONE, "too-much", cpu="2")
    submit(bed, A, "of-everybody", cpu="9")
    until("refused by quota", lambda: bool(reason_to_wait(bed, A, "of-everybody")), samples.LIMIT_S, 0.2)
    until("waits", lambda: bool(reason_to_wait(bed, ALONE, "too-much")), samples.LIMIT_S, 0.2)
    assert "Admitted" not in state(bed, ALONE, "too-much")
    until("its own counted", lambda: usage(bed, ALONE) == ("3", "0"), samples.LIMIT_S, 0.2)


def test_a_high_priority_preempts_as_few_as_it_needs(bed: Bed) -> None:
    names = ["low-1", "low-2", "low-3"]
    for name in names:
        submit(bed, ALONE, name, "low")
    submit(bed, ALONE, "normal", "normal")
    admitted(bed, ALONE, *names, "normal")
    submit(bed, ALONE, "urgent", "high", cpu="2")
    admitted(bed, ALONE, "urgent")
    victims = [name for name in names if "Evicted" in state(bed, ALONE, name)]
    assert len(victims) == 2, "two of one CPU each make room for one of two"
    for name in victims:
        assert state(bed, ALONE, name)["Preempted"] == "InClusterQueue"
    untouched = {*names, "normal"} - set(victims)
    assert all("Evicted" not in state(bed, ALONE, name) for name in untouched)
    until("all of it used", lambda: usage(bed, ALONE) == ("4", "0"), samples.LIMIT_S, 0.2)


def test_equal_priorities_wait_for_each_other(bed: Bed) -> None:
    submit(bed, ALONE, "first", cpu="3")
    admitted(bed, ALONE, "first")
    submit(bed, ALONE, "second", cpu="3")
    until("second waits", lambda: bool(reason_to_wait(bed, ALONE, "second")), samples.LIMIT_S, 0.2)
    assert "Evicted" not in state(bed, ALONE, "first")
    waiting, running = (in_line(bed, ALONE)[name] for name in ("second", "first"))
    assert waiting.state == "waiting"
    assert waiting.position == 1
    assert waiting.reasons, "`primus queue` says what blocks it"
    assert not running.reasons


def test_whoever_comes_back_after_a_failure_keeps_its_place(bed: Bed) -> None:
    submit(bed, ALONE, "bystander")
    first = submit(bed, ALONE, "attempt-1", cpu="3")
    admitted(bed, ALONE, "bystander", "attempt-1")
    submit(bed, ALONE, "waiting", cpu="3")
    until("it waits", lambda: bool(reason_to_wait(bed, ALONE, "waiting")), samples.LIMIT_S, 0.2)
    bed.api.delete(first)
    admitted(bed, ALONE, "waiting")  # between two attempts the quota is free, and Kueue is quick
    submit(bed, ALONE, "attempt-2", "normal-returning", cpu="3")
    admitted(bed, ALONE, "attempt-2")
    assert state(bed, ALONE, "waiting")["Preempted"] == "InClusterQueue"
    assert "Evicted" not in state(bed, ALONE, "bystander"), "who ran before it is left alone"


def test_a_gang_that_does_not_fit_waits_whole(bed: Bed) -> None:
    blocker = submit(bed, ALONE, "blocker", cpu="2")
    admitted(bed, ALONE, "blocker")
    gang = submit(bed, ALONE, "gang", pods=CPUS)
    until("the gang waits", lambda: bool(reason_to_wait(bed, ALONE, "gang")), samples.LIMIT_S, 0.2)
    found = bed.find(gang)
    assert found is not None
    assert found["spec"]["suspend"] is True
    assert pods_of(bed, "gang") == 0, "room for two of four: none is made"
    submit(bed, ALONE, "small", cpu="1")
    admitted(bed, ALONE, "small")  # what fits goes past what does not
    bed.api.delete(blocker)
    bed.api.delete(samples.jobset_named("small", ALONE))
    admitted(bed, ALONE, "gang")
    until("all pods", lambda: pods_of(bed, "gang") == CPUS, samples.LIMIT_S, 0.2)


def pods_of(bed: Bed, name: str) -> int:
    """How many pods of a gang there are."""
    return len(samples.pods(bed, ALONE, f"jobset.sigs.k8s.io/jobset-name={name}"))


def test_a_gang_larger_than_everything_never_starts_and_says_so(bed: Bed) -> None:
    submit(bed, ALONE, "giant", pods=CPUS + 1)
    until("the giant waits", lambda: bool(reason_to_wait(bed, ALONE, "giant")), samples.LIMIT_S, 0.2)
    assert "cpu" in reason_to_wait(bed, ALONE, "giant")
    assert pods_of(bed, "giant") == 0
    assert in_line(bed, ALONE)["giant"].state == "waiting"
