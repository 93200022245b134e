from __future__ import annotations

from dataclasses import replace

import pytest

from profiles.errors import NotFound
from profiles.vocabulary import Action, NodeAction
from tasks.ledger import Ledger
from tests.ledgers import an_incident, driven
from workflows.records import ActionRecord, ApprovalRecord

pytest_plugins = ["tests.ledger_fixtures"]

DECIDED = replace(
    an_incident(), action=Action.NEW_ATTEMPT, why="the node is gone", would_change="a living node", charged=True
)
ACTIONS = (
    ActionRecord("i-drain-node-1", "demo", DECIDED.id, NodeAction.DRAIN, "node-1", "planned", "gone", 1003.0),
    ActionRecord("i-new-attempt", "demo", DECIDED.id, Action.NEW_ATTEMPT, "", "waiting", "gone", 1003.0),
)
QUESTION = ApprovalRecord("i-approval", "demo", DECIDED.id, "Drain node-1?", "waiting", 1003.0, 2003.0)


def test_a_decision_is_written_whole_and_twice_is_once(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.open_incident(fencing, an_incident())
    for _ in range(2):
        assert ledger.decide(fencing, DECIDED, ACTIONS, QUESTION) == DECIDED
    story = ledger.story("demo")
    assert (story.incidents, story.actions, story.approvals) == ((DECIDED,), ACTIONS, (QUESTION,))
    assert story.open_incident is None


def test_a_decision_about_an_unknown_incident_leaves_nothing_behind(ledger: Ledger) -> None:
    fencing = driven(ledger)
    before = ledger.story("demo")
    with pytest.raises(NotFound, match=DECIDED.id):
        ledger.decide(fencing, DECIDED, ACTIONS, QUESTION)
    assert ledger.story("demo") == before
