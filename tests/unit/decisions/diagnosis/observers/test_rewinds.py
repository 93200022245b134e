"""Training that begins again, told from epochs, first runs and resumes that worked."""

from __future__ import annotations

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.observers.resume import rewinds
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows


@rows("diagnosis/observers/rewinds")
def test_training_that_begins_again(text: str) -> None:
    found = diagnose(evidence_of([("train.log", text.split("\n"))]))
    assert found.fault_class is FaultClass.STARTED_OVER, found


@rows("diagnosis/observers/rewinds")
def test_training_that_goes_on(text: str) -> None:
    evidence = evidence_of([("train.log", text.split("\n"))])
    assert list(rewinds(evidence.lines)) == []
