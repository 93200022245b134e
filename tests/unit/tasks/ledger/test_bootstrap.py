"""Steps of bootstraps in the ledger: written before they are carried out, and only by who builds the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles.errors import Fenced
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import HERE, THERE, everyone_died, nobody_knows
from workflows.model.bootstrap import Stage, Step, StepProof, builder_of

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

ONE = Step(Stage.HOSTS, "n1", "w1", "programs and units on n1")
TWO = Step(Stage.HOSTS, "n2", "w1", "programs and units on n2")
GOOD, BAD = StepProof(VerdictWord.PASS, "all digests fit"), StepProof(VerdictWord.FAIL, "containerd does not answer")
SILENT = StepProof(VerdictWord.UNKNOWN, "no answer")


def builder(ledger: Ledger) -> int:
    return ledger.acquire(builder_of("made"), HERE, 100.0, nobody_knows).fencing


def test_a_step_is_written_before_it_is_done_and_after_its_proof(ledger: Ledger) -> None:
    fencing = builder(ledger)
    ledger.begin_steps("made", [ONE, TWO], fencing, 101.0, since=100.0)
    begun = ledger.bootstrap_steps("made")["hosts/n1"]
    assert (begun.state, begun.tries, begun.began_at, begun.ended_at) == ("began", 1, 101.0, None)
    ledger.end_steps("made", [ONE, TWO], {ONE.id: GOOD, TWO.id: BAD}, fencing, 102.0)
    ended = ledger.bootstrap_steps("made")
    assert {name: (item.state, item.why) for name, item in ended.items()} == {
        "hosts/n1": ("proven", "all digests fit"),
        "hosts/n2": ("failed", "containerd does not answer"),
    }
    assert ledger.bootstrap_steps("other") == {}
    told = [line.why for line in ledger.history() if line.kind == "bootstrap" and line.subject == "hosts/n1"]
    assert told == ["began: programs and units on n1", "proven: all digests fit"]


def test_tries_are_counted_within_a_command_and_what_holds_already_was_not_tried(ledger: Ledger) -> None:
    fencing = builder(ledger)
    for now in (101.0, 103.0):
        ledger.begin_steps("made", [ONE], fencing, now, since=100.0)
        ledger.end_steps("made", [ONE, TWO], {ONE.id: BAD, TWO.id: GOOD}, fencing, now + 1)
    found = ledger.bootstrap_steps("made")
    assert (found["hosts/n1"].tries, found["hosts/n2"].tries) == (2, 0)
    ledger.begin_steps("made", [ONE], fencing, 201.0, since=200.0)
    assert ledger.bootstrap_steps("made")["hosts/n1"].tries == 1
    ledger.begin_steps("made", [replace(ONE, wanted="w2")], fencing, 202.0, since=200.0)
    assert ledger.bootstrap_steps("made")["hosts/n1"].tries == 1


def test_the_same_proof_again_is_not_written_again(ledger: Ledger) -> None:
    fencing = builder(ledger)
    for now in (101.0, 102.0, 103.0):
        ledger.end_steps("made", [ONE, TWO], {ONE.id: GOOD, TWO.id: SILENT}, fencing, now)
    found = ledger.bootstrap_steps("made")
    assert list(found) == ["hosts/n1"]  # what never held and was never begun is not remembered
    assert found["hosts/n1"].ended_at == 101.0
    ledger.end_steps("made", [ONE], {ONE.id: SILENT}, fencing, 104.0)
    assert ledger.bootstrap_steps("made")["hosts/n1"].state == "failed"
    assert len([line for line in ledger.history() if line.kind == "bootstrap"]) == 2


def test_who_lost_the_lease_writes_nothing(ledger: Ledger) -> None:
    old = builder(ledger)
    ledger.acquire(builder_of("made"), THERE, 200.0, everyone_died)
    with pytest.raises(Fenced):
        ledger.begin_steps("made", [ONE], old, 201.0, since=200.0)
    with pytest.raises(Fenced):
        ledger.end_steps("made", [ONE], {ONE.id: GOOD}, old, 201.0)
    assert ledger.bootstrap_steps("made") == {}
