"""When a drill knows that nothing more comes before a person acts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.drill import in_words, waits_for
from profiles.errors import ProfileError
from profiles.vocabulary import Action, Mode, RunState
from tasks.runs import faults
from tests.support.builders.ledgers import a_run, an_incident
from workflows.model.records import ApprovalRecord, Story

ASKED = ApprovalRecord("demo-a1-i1-approval", "demo", "demo-a1-i1", "may node-1 leave?", "waiting", 1.0, 9.0)
DECIDED = an_incident(action=Action.NEW_ATTEMPT)


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (
            Story(a_run(), incidents=(DECIDED,), approvals=(ASKED,)),
            "a person's answer: may node-1 leave?: `primus approve",
        ),
        (Story(a_run(), incidents=(DECIDED,), paused=True), "`primus unpause demo`: paused"),
        (
            Story(a_run(mode=Mode.OBSERVE), incidents=(DECIDED,)),
            "`primus resume demo --mode act`: mode observe",
        ),
        (Story(a_run(), incidents=(DECIDED,)), ""),
        (Story(a_run(), incidents=(replace(DECIDED, action=None),), paused=True), ""),
        (Story(a_run(), incidents=(replace(DECIDED, action=Action.RESTART_IN_PLACE),), paused=True), ""),
        (Story(a_run(), incidents=(replace(DECIDED, resumed_at=2.0),), paused=True), ""),
        (Story(a_run(), incidents=(DECIDED,), approvals=(replace(ASKED, state="approved"),)), ""),
    ],
    ids=["asked", "paused", "observed", "acts", "not decided yet", "in place", "is back", "answered"],
)
def test_a_drill_waits_for_a_person_only_where_it_is_a_persons_turn(story: Story, words: str) -> None:
    found = waits_for(story, list(story.incidents))
    assert found.startswith(words) if words else found == ""


def test_what_a_drill_waits_for_is_said_in_its_one_sentence() -> None:
    row = {"detected_after_seconds": 0.4, "class": "node_lost", "resumed_after_seconds": None, "waits_for": "you"}
    assert in_words(row) == "noticed after 0.4 s as node_lost, waits for you"


@pytest.mark.parametrize("paused", [True, False])
def test_nothing_is_waited_for_that_only_a_person_can_begin(paused: bool) -> None:
    asked = Story(replace(a_run(), state=RunState.WAITING_FOR_APPROVAL))
    with pytest.raises(ProfileError, match="waits for a person's answer, nothing trains"):
        faults._refuse_to_wait(asked)  # pyright: ignore[reportPrivateUsage]
    pending = Story(a_run(), paused=paused)
    if paused:
        with pytest.raises(ProfileError, match="is paused and nothing of it trains: `primus unpause demo` first"):
            faults._refuse_to_wait(pending)  # pyright: ignore[reportPrivateUsage]
    else:
        faults._refuse_to_wait(pending)  # pyright: ignore[reportPrivateUsage]
