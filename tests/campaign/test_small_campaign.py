"""Small fault campaigns over several runs, two at once: six faults in every run of the tests, twenty in rotation.

`make campaign` plays two hundred.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaign.crew import play_all
from tests.campaign.plan import campaign
from tests.campaign.report import document, text

pytestmark = [pytest.mark.story, pytest.mark.alone]  # two runs at once fill the machine

WORKERS = 2


def test_six_faults_leave_nothing_wrong(prefect_server: str) -> None:
    """Of this seed: ranks, a node, a flow and a save are struck; one run may restart in place, the other may not."""
    played(125, 6, prefect_server)


def test_twenty_faults_leave_nothing_wrong(prefect_server: str) -> None:
    assert played(7, 20, prefect_server)["gave_up"] >= 1


def played(seed: int, faults: int, server: str) -> dict[str, Any]:
    """The report of a campaign that left nothing wrong."""
    plans = campaign(seed, faults)
    outcomes = play_all(plans, faults, server, WORKERS)
    found = document(plans, outcomes, seed, faults)
    stories = "\n".join(one.told for one in outcomes if one.violations)
    assert found["violations"] == [], f"{text(found, plans, outcomes)}\n{stories}"
    assert (found["faults"], found["runs"]) == (faults, len(plans))
    return found
