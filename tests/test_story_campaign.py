"""A small fault campaign: twenty faults over several runs, two at once. `make campaign` plays ten times as many."""

from __future__ import annotations

import pytest

from tests.campaign.crew import play_all
from tests.campaign.plan import campaign
from tests.campaign.report import document, text

pytestmark = [pytest.mark.story, pytest.mark.alone]  # two runs at once fill the machine

SEED, FAULTS, WORKERS = 7, 20, 2


def test_twenty_faults_leave_nothing_wrong(prefect_server: str) -> None:
    plans = campaign(SEED, FAULTS)
    outcomes = play_all(plans, FAULTS, prefect_server, WORKERS)
    found = document(plans, outcomes, SEED, FAULTS)
    stories = "\n".join(one.told for one in outcomes if one.violations)
    assert found["violations"] == [], f"{text(found, plans, outcomes)}\n{stories}"
    assert (found["faults"], found["runs"]) == (FAULTS, len(plans))
    assert found["gave_up"] >= 1
