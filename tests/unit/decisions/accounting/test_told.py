"""What is only told counts for nobody: no end, no failure, no cause of lost time; and it is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.screen.live import Lines
from deployments.screen.views import incident_lines as shown
from flows.decisions.accounting.advice import is_failure
from flows.decisions.accounting.report import stretches
from flows.decisions.accounting.tiles import TileSpan
from flows.decisions.recovery.liveness import last_end
from flows.decisions.recovery.odds import restart_seconds, tallies
from flows.decisions.recovery.situation import ordinal
from flows.decisions.views.approvals import row, took
from flows.decisions.views.run_page import moments
from flows.decisions.views.status import incident_row, node_rows
from profiles.vocabulary import Action, FaultClass, Mode, RunState, Tile
from tasks.runs.evidence import past_incidents
from tests.support.builders.ledgers import a_run, an_attempt
from workflows.model.gang_status import GangNews
from workflows.model.incidents import ended_by, notes_of
from workflows.model.records import IncidentRecord, Story
from workflows.model.runs import IncidentLine
from workflows.status import Jump, Slower, Straggler

ATTEMPT = replace(an_attempt(), submitted_at=1001.5, nodes=("node-0", "node-1"))
NEWS = GangNews(
    stragglers=(Straggler(1, "node-1", 1.83, 40, 2.5),),
    slower=Slower(50, 1.4),
    jumps=(Jump(41, "gradient_norm", "nan", 1.0), Jump(45, "loss", 50.0, 2.0)),
)
TOLD = tuple(
    replace(note, id=f"demo-a1-n{place}", at=1003.0 + place, detected_at=1003.0 + place)
    for place, note in enumerate(notes_of(ATTEMPT, NEWS, 1003.0), 1)
)
LOST = IncidentRecord("demo-a1-i1", "demo", 1, 1002.0, 1002.5, "node-not-ready", FaultClass.NODE_LOST, 0.98,
                      (("node-0", None),), fingerprint="x", step=44, action=Action.NEW_ATTEMPT, charged=True,
                      resumed_at=1020.0)  # fmt: skip
WITH = Story(a_run(mode=Mode.ACT, state=RunState.RUNNING), (ATTEMPT,), (LOST, *TOLD))
WITHOUT = replace(WITH, incidents=(LOST,))


def test_it_is_no_end_of_an_attempt_and_no_past_of_the_run() -> None:
    assert last_end(WITH) == LOST
    assert last_end(replace(WITH, incidents=TOLD)) is None
    assert ended_by(WITH, 1) == [LOST]
    assert past_incidents(WITH) == past_incidents(WITHOUT)
    assert past_incidents(WITH)
    later = replace(LOST, id="demo-a1-i2", at=1009.0, detected_at=1009.0)
    assert ordinal(later, replace(WITH, incidents=(LOST, *TOLD, later))) == 2


def test_it_is_no_failure_and_costs_no_time() -> None:
    assert not any(map(is_failure, TOLD))
    closed = tuple(replace(item, over_at=1010.0, resumed_at=1090.0) for item in TOLD)
    assert restart_seconds([LOST, *closed]) == restart_seconds([LOST]) == 17.5
    assert tallies([LOST, *closed]) == tallies([LOST])
    unresumed = replace(LOST, resumed_at=None)
    assert tallies([unresumed, *TOLD]) == tallies([unresumed]) == {}, "nobody knows yet what became of the retry"
    spans = [
        TileSpan(1000.0, 1002.5, 1, Tile.ROLLBACK),
        TileSpan(1002.5, 1003.5, 1, Tile.DIAGNOSE),
        TileSpan(1004.0, 1019.0, 2, Tile.RESTART),
    ]
    assert {name for piece in stretches(spans, WITH.troubles) for name in piece.lost_by_class} == {"node_lost"}


def test_it_is_nobodys_record() -> None:
    blamed = {item["node"]: item["blamed"] for item in node_rows(WITH)}
    assert blamed == {"node-0": 1, "node-1": 0}


@pytest.mark.parametrize("note", TOLD, ids=lambda note: note.signal)
def test_it_is_never_open_and_says_until_when(note: IncidentRecord) -> None:
    line = IncidentLine(note, RunState.RUNNING)
    assert not line.is_open
    assert took(line, 2000.0) == "-"
    assert took(IncidentLine(replace(note, over_at=note.at + 4.0), RunState.RUNNING), 2000.0) == "4.0 s"
    said = row(line, 2000.0)
    assert (said["action"], said["class"].partition(" ")[0]) == ("none", str(note.fault_class))
    assert note.seen in said["why"]
    text = "\n".join(shown(incident_row(replace(note, over_at=1010.0))))
    assert "over since 1970-01-01T00:16:50.000Z" in text
    assert note.seen in text


def test_the_log_and_who_watches_say_it_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lags = next(item for item in TOLD if item.signal == "slow-rank")
    over = replace(WITH, incidents=(replace(lags, over_at=lags.at + 12.0),))
    assert [text for key, text in moments(over) if key.startswith(lags.id)] == [
        f"{lags.why} (straggler)",
        f"slow-rank is over after 12.0 s: {lags.seen}",
    ]
    Lines().tell(replace(WITH, incidents=(lags,)))
    assert f"straggler: {lags.why}" in capsys.readouterr().err
