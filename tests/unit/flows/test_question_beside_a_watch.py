"""While a question about a living gang waits, whoever asks for a new look gets one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from flows import train
from tests.support.builders.attempt_plans import a_plan
from tests.support.builders.ledgers import an_attempt, an_incident
from tests.support.builders.why_cases import story
from workflows.model.attempt import LIVING, AttemptView
from workflows.model.records import ApprovalRecord

APPROVAL = ApprovalRecord("demo-a1-i1-approval", "demo", "demo-a1-i1", "leave the node?", "waiting", 10.0, 99.0)


@pytest.mark.parametrize(("woken", "ends"), [("a person uncordoned node-1", True), ("", False)])
def test_a_request_for_a_new_look_ends_the_watch(monkeypatch: pytest.MonkeyPatch, woken: str, ends: bool) -> None:
    seen: list[bool] = []

    class Watch:
        def with_options(self, **_: Any) -> Callable[..., tuple[str, None]]:
            def watch(resolved: Any, attempt: Any, over: Callable[..., str | None]) -> tuple[str, None]:
                seen.append(over(AttemptView("demo", 1, 20.0, woken=woken), attempt) is not None)
                return "", None

            return watch

    incident = replace(an_incident(), signal=min(LIVING))
    asked_about = story(attempts=(an_attempt(),), incidents=(incident,))
    answers: dict[str, object] = {"read_story": asked_about, "look_for_answer": None, "settled": ""}
    for name, answer in answers.items():
        monkeypatch.setattr(train, name, partial(_give, answer))
    monkeypatch.setattr(train, "watch_attempt", Watch())
    train.ask(APPROVAL, a_plan().resolved)
    assert seen == [ends]


def _give(answer: object, *_: object) -> object:
    return answer
