"""Whether a cluster is fit: every check is pass, fail or unknown, and unknown never counts as healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.explain.doctor import checkup, overall
from profiles.vocabulary import VerdictWord
from tests.support.builders.attempt_plans import AMD, a_cluster
from workflows.model.checkup import Attempted, CheckupFacts, HomeFacts, PoolFacts, RightFacts

PASS, FAIL, UNKNOWN = VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN
YES, NO, PERHAPS = Attempted(True, "yes"), Attempted(False, "no"), Attempted(None, "nobody knows")
POOL = PoolFacts("main", "amd.com/gpu", 8, 2, gpus={"node-0": 8, "node-1": 8})
WELL = CheckupFacts(
    profile=a_cluster(AMD, engine="kubernetes", queue="team"),
    answers=YES,
    versions={"engine": "kubernetes", "kubernetes": "v1.36.3"},
    served={"jobset.x-k8s.io/v1alpha2 jobsets": YES},
    rights=(RightFacts("get", "pods", True), RightFacts("delete", "jobsets.jobset.x-k8s.io", True)),
    pools=(POOL,),
    claims={"datasets": "Bound"},
    skew_seconds=0.4,
    jobset=YES,
    argo=YES,
    queue=YES,
)
SERVICES: dict[str, Attempted] = dict.fromkeys(("server", "runner", "monitor"), YES)
HOME = HomeFacts(YES, services=SERVICES)
LAPTOP = CheckupFacts(a_cluster(), YES, skew_seconds=0.0, namespaces="mount", free_bytes=60 << 30, nodes=YES, home=HOME)
DENIED = (RightFacts("get", "pods", True), RightFacts("delete", "pods", False), RightFacts("watch", "pods", False))


def test_a_cluster_that_is_fit_passes_everything() -> None:
    for facts in (WELL, LAPTOP):
        assert {item.verdict for item in checkup(facts)} == {PASS}
        assert {item.advice for item in checkup(facts)} == {""}


def test_the_home_is_told_also_where_the_cluster_does_not_answer() -> None:
    found = checkup(replace(WELL, answers=NO, home=replace(HOME, ledger=NO)))
    assert [item.check for item in found] == ["answers", "ledger", "server", "runner", "monitor"]
    assert [item.verdict for item in found] == [FAIL, FAIL, PASS, PASS, PASS]


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "words"),
    [
        (replace(LAPTOP, nodes=NO), "nodes", FAIL, "no"),
        (replace(LAPTOP, home=replace(HOME, ledger=NO)), "ledger", FAIL, "no"),
        (replace(LAPTOP, home=replace(HOME, ledger=PERHAPS)), "ledger", UNKNOWN, "nobody knows"),
        (replace(LAPTOP, home=replace(HOME, no_room="disk full: 0.0 MB")), "disk", FAIL, "disk full"),
        (replace(LAPTOP, home=replace(HOME, services={**SERVICES, "server": NO})), "server", FAIL, "no"),
        (replace(LAPTOP, home=replace(HOME, services={**SERVICES, "monitor": NO})), "monitor", FAIL, "no"),
        (replace(WELL, home=replace(HOME, ledger=NO)), "ledger", FAIL, "no"),
        (replace(WELL, versions={"kubernetes": "v1.33.1"}), "version", UNKNOWN, "v1.33.1"),
        (replace(WELL, versions={"kubernetes": "main"}), "version", UNKNOWN, "main"),
        (replace(WELL, served={"kueue.x-k8s.io/v1beta2 workloads": NO}), "serves kueue", FAIL, "no"),
        (replace(WELL, rights=DENIED), "rights pods", FAIL, "may not delete, watch"),
        (replace(WELL, rights=(RightFacts("get", "pods", None),)), "rights pods", UNKNOWN, "not known whether"),
        (replace(WELL, rights=()), "rights", UNKNOWN, "0 of 0"),
        (replace(WELL, pools=None), "nodes", UNKNOWN, "may not be read"),
        (replace(WELL, pools=(replace(POOL, gpus={}),)), "nodes main", FAIL, "0 ready of 2"),
        (
            replace(WELL, pools=(replace(POOL, gpus={"node-0": 8}, not_ready=("node-1",)),)),
            "nodes main",
            FAIL,
            "not ready: node-1",
        ),
        (replace(WELL, pools=(replace(POOL, gpus={"node-0": 8, "node-1": 7}),)), "gpus main", FAIL, "node-1: 7"),
        (replace(WELL, claims={"datasets": "Pending"}), "claim datasets", FAIL, "Pending"),
        (replace(WELL, claims={"datasets": ""}), "claim datasets", FAIL, "does not exist"),
        (replace(WELL, claims={"datasets": None}), "claim datasets", UNKNOWN, "may not be read"),
        (replace(WELL, skew_seconds=-9.0), "clock", FAIL, "-9.0 s"),
        (replace(WELL, skew_seconds=None), "clock", UNKNOWN, "does not tell"),
        (replace(WELL, jobset=NO), "JobSet", FAIL, "no"),
        (replace(WELL, argo=PERHAPS), "Argo", UNKNOWN, "nobody knows"),
        (replace(WELL, queue=NO), "queue team", FAIL, "no"),
        (replace(LAPTOP, namespaces="none"), "namespaces", FAIL, "no name spaces"),
        (replace(LAPTOP, free_bytes=1 << 20), "disk", FAIL, "0.0 GiB free"),
        (replace(LAPTOP, free_bytes=None), "disk", UNKNOWN, "not known"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(
    facts: CheckupFacts, check: str, verdict: VerdictWord, words: str
) -> None:
    [found] = [item for item in checkup(facts) if item.verdict is not PASS]
    assert found.check.startswith(check)
    assert (found.verdict, words in found.measured) == (verdict, True), found
    assert found.advice


def test_a_cluster_that_does_not_answer_is_asked_nothing_more() -> None:
    [found] = checkup(replace(WELL, answers=NO))
    assert (found.check, found.verdict) == ("answers", FAIL)


def test_a_cluster_without_a_queue_is_not_asked_for_one() -> None:
    plain = replace(WELL, profile=a_cluster(AMD, engine="kubernetes"), queue=NO)
    assert not [item for item in checkup(plain) if item.check.startswith("queue")]


@given(st.lists(st.sampled_from([YES, NO, PERHAPS]), min_size=3, max_size=3))
def test_unknown_never_counts_as_healthy(tried: list[Attempted]) -> None:
    jobset, argo, queue = tried
    found = overall(checkup(replace(WELL, jobset=jobset, argo=argo, queue=queue)))
    assert found is (FAIL if NO in tried else UNKNOWN if PERHAPS in tried else PASS)
