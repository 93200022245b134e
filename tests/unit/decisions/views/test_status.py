"""The document of `primus status`, as far as stories do not show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.screen.views import status_text
from flows.decisions.views.status import Surroundings, status_of
from profiles.cluster import Endpoints
from profiles.resolve import Resolved
from profiles.vocabulary import Mode, RunState
from tests.support.builders.attempt_plans import a_gpu_plan
from workflows.model.records import AttemptRecord, RunRecord, Story

RESOLVED = a_gpu_plan().resolved
FIRST = AttemptRecord("demo-1", 1, 1.0, "first", submitted_at=2.0)


def resolved(argo_url: str) -> Resolved:
    cluster = RESOLVED.cluster.model_copy(update={"endpoints": Endpoints(argo_url=argo_url)})
    return RESOLVED.model_copy(update={"cluster": cluster})


def story(*attempts: AttemptRecord) -> Story:
    run = RunRecord("demo-1", RunState.RUNNING, "attempt 1", "demo", {}, "d", "mi300x", Mode.ACT, 1.0)
    return Story(run, attempts=attempts)


@pytest.mark.parametrize("base", ["https://argo.example.org", "https://argo.example.org/"])
def test_an_attempt_leads_to_its_workflow_where_an_argo_server_is_named(base: str) -> None:
    planned = replace(FIRST, number=2, submitted_at=None)
    document = status_of(story(FIRST, planned), resolved(base), Surroundings(now=3.0))
    link = f"https://argo.example.org/workflows/{RESOLVED.cluster.namespace}/demo-1-a1"
    assert [row.get("link") for row in document["attempts"]] == [link, None], "what was not sent is nowhere"
    assert f"1: {link}" in status_text(document).splitlines()


def test_without_one_there_is_no_link() -> None:
    [row] = status_of(story(FIRST), resolved(""), Surroundings(now=3.0))["attempts"]
    assert "link" not in row
