"""The run that proves a cluster: begun by its fingerprint, resumed where it failed, and its words are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.vocabulary import RunState
from tasks.bootstrap.proof_run import find_proof_run, proof_run_name, train_proof
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.builders.ledgers import a_run

WANTED = "0123456789abcdef"
ECHO = (sys.executable, "-c", "import os, sys; print(*sys.argv[1:]); print(os.environ['PRIMUS_HOME']); sys.exit(%d)")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger = Ledger(settings.ledger_url)
    with standing_in(World(settings, ledger)) as world:
        yield world
    ledger.close()


def asked(code: int) -> tuple[str, list[str]]:
    told: list[str] = []
    why = train_proof("./made.yaml", "demo", WANTED, told.append, (*ECHO[:2], ECHO[2] % code))
    return why, told


def test_it_is_begun_under_the_name_of_what_it_proves(here: World) -> None:
    why, told = asked(0)
    assert why == ""
    assert told == [
        "training: train demo --name proof-0123456789ab --cluster ./made.yaml",
        f"training: {here.settings.home}",
    ]
    assert proof_run_name(WANTED) == "proof-0123456789ab"
    assert len(proof_run_name("f" * 64)) <= 30


def test_how_it_failed_is_said_in_its_own_last_words(here: World) -> None:
    why, _ = asked(1)
    assert why == f"primus train ended with 1: {here.settings.home}"


@pytest.mark.parametrize(
    ("state", "verb"), [(RunState.FAILED, "resume"), (RunState.STOPPED, "resume"), (RunState.RUNNING, "train")]
)
def test_one_that_failed_before_is_resumed_and_one_that_lives_is_watched(
    here: World, state: RunState, verb: str
) -> None:
    assert find_proof_run(WANTED) is None
    here.ledger.open_run(a_run(proof_run_name(WANTED), state=state))
    _, told = asked(0)
    assert told[0].startswith(f"training: {verb} ")
    found = find_proof_run(WANTED)
    assert found is not None
    assert found.state is state
