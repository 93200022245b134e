"""What a retry is worth: priors, what the ledger adds to them, and what follows for giving up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.policy import POLICY
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import Situation
from flows.decisions.recovery.odds import FUTILE, Tally, chance, odds, restart_seconds, tallies
from profiles.vocabulary import Action, FaultClass
from workflows.model.records import IncidentRecord

F = FaultClass


def incident(
    run: str,
    at: float,
    resumed: float | None,
    fault_class: FaultClass = F.FABRIC,
    step: int = 40,
    fingerprint: str = "x",
) -> IncidentRecord:
    return IncidentRecord(
        f"{run}-{at}", run, 1, at, at, "pod-failed", fault_class, 0.9, fingerprint=fingerprint, step=step,
        action=Action.NEW_ATTEMPT, resumed_at=resumed,
    )  # fmt: skip


def test_every_class_has_a_prior() -> None:
    priors = {kind: policy.prior for kind, policy in POLICY.items()}
    assert set(priors) == set(F)
    assert all(0 < share < 1 and weight > 0 for share, weight in priors.values())


def test_the_ledger_outweighs_the_prior() -> None:
    assert chance(F.DATA, Tally()) == pytest.approx(0.30)
    assert chance(F.DATA, Tally(40, 36)) > 0.8
    assert chance(F.FABRIC, Tally(40, 0)) < 0.1


def test_a_retry_succeeded_when_the_run_got_beyond_its_failure() -> None:
    seen = tallies(
        [
            incident("a", 10, 12),  # trained again, then failed at another step
            incident("a", 50, 52, step=90),  # trained again and never failed since
            incident("b", 10, 12),  # trained again, failed the same way at the same step
            incident("b", 20, None),  # has not trained again yet: says nothing
            incident("c", 10, None),  # never trained again before the next failure
            incident("c", 20, 25, F.STORAGE),
        ]
    )
    assert seen == {F.FABRIC: Tally(4, 2), F.STORAGE: Tally(1, 1)}


def test_restarts_are_measured() -> None:
    assert restart_seconds([]) is None
    assert restart_seconds([incident("a", 10, 12), incident("a", 20, 29), incident("a", 30, None)]) == 9.0


def test_alternatives_count_with_their_share_and_the_rest_is_unknown() -> None:
    sure = odds(F.USER_CODE, 1.0, (), {}, 8, 30.0, 10.0)
    unsure = odds(F.USER_CODE, 0.5, ((F.GPU_DRIVER, 0.3),), {}, 8, 30.0, 10.0)
    assert sure.success == pytest.approx(0.05)
    assert unsure.success == pytest.approx(0.5 * 0.05 + 0.3 * 0.75 + 0.2 * 0.60)
    assert sure.cost_gpu_seconds == 8 * 40
    assert sure.words == "a retry succeeds in 5%, costs 320 GPU-seconds if not"
    known = odds(F.FABRIC, 1.0, (), {F.FABRIC: Tally(6, 5)}, 1, None, 0.0)
    assert "(5 of 6 here)" in known.words


@given(
    st.sampled_from(list(F)),
    st.floats(0, 1),
    st.lists(st.tuples(st.sampled_from(list(F)), st.floats(0, 1)), max_size=4),
    st.dictionaries(st.sampled_from(list(F)), st.integers(0, 50).map(lambda n: Tally(n, n // 2)), max_size=5),
)
def test_odds_are_probabilities(
    kind: FaultClass, confidence: float, rest: list[tuple[FaultClass, float]], known: dict[FaultClass, Tally]
) -> None:
    assert 0.0 <= odds(kind, confidence, rest, known, 1, None, 0.0).success <= 1.0


@pytest.mark.parametrize("kind", [F.USER_CODE, F.CONFIG, F.GPU_OOM, F.CHECKPOINT_MISMATCH])
def test_a_run_is_given_up_on_only_where_a_retry_is_futile(kind: FaultClass) -> None:
    sure, unsure = Diagnosis(kind, 0.95, why="w"), Diagnosis(kind, 0.4, why="w")
    assert decide(sure, Situation(0.0)).action is Action.GIVE_UP
    assert decide(unsure, Situation(0.0)).action is Action.NEW_ATTEMPT
    lucky = Situation(0.0, tallies={kind: Tally(30, 15)})
    assert chance(kind, Tally(30, 15)) > FUTILE
    assert decide(sure, lucky).action is Action.NEW_ATTEMPT, "the ledger knows that it helps here"
    assert "15 of 30 here" in decide(sure, lucky).why


def test_a_node_is_moved_away_from_but_not_evicted_on_ambiguous_text() -> None:
    def blames(confidence: float) -> Diagnosis:
        return Diagnosis(
            F.GPU_HARDWARE, confidence, culprits=(("node-1", None),), nodes=("node-1",), node_suspect=True, why="w"
        )

    sure, unsure = decide(blames(0.95), Situation(0.0)), decide(blames(0.6), Situation(0.0))
    assert [step.node for step in sure.node_actions] == ["node-1"]
    assert unsure.node_actions == ()
    assert unsure.avoid_nodes == ("node-1",)
