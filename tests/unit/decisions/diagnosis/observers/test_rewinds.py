"""Training that begins again, told from epochs, first runs and resumes that worked."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.observers.resume import rewinds
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

AGAIN = {
    "steps and loss fall back": """step 4200 loss 2.10
step 4210 loss 2.09
step 10 loss 10.80
step 20 loss 10.52
step 30 loss 10.21""",
    "a resume that ends at step 0": """Resuming training from checkpoint /ckpt/checkpoint-3000
  Continuing training from epoch 0
  Continuing training from global step 0""",
    "nothing where the resume looked": """launched with --resume gs://bucket/run1/step_12000
Warning: latest checkpoint not found; initializing from scratch
step=0 loss=10.9
step=1 loss=10.8""",
}
NOT_AGAIN = {
    "a new epoch keeps its loss": """epoch 1 step 990 loss 2.10
epoch 1 step 1000 loss 2.09
epoch 2 step 10 loss 2.08
epoch 2 step 20 loss 2.07""",
    "a resume that worked": """Resuming training from checkpoint /ckpt/checkpoint-3000
  Continuing training from global step 3000
step 3001 loss 2.1
step 3002 loss 2.1""",
    "a first run": """no checkpoint found, starting from scratch
step 1 loss 10.9
step 2 loss 10.8""",
    "one odd line": """step 4200 loss 2.10
step 1 loss 9.0
step 4210 loss 2.08
step 4220 loss 2.07""",
}


@pytest.mark.parametrize("name", AGAIN)
def test_training_that_begins_again(name: str) -> None:
    found = diagnose(evidence_of([("train.log", AGAIN[name].split("\n"))]))
    assert found.fault_class is FaultClass.STARTED_OVER, found


@pytest.mark.parametrize("name", NOT_AGAIN)
def test_training_that_goes_on(name: str) -> None:
    evidence = evidence_of([("train.log", NOT_AGAIN[name].split("\n"))])
    assert list(rewinds(evidence.lines)) == []
