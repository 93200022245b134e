"""Report pages as text: what is said, and that nothing comes from elsewhere."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.accounting.report import curve_of, report_of
from flows.pages.fleet import fleet_page
from flows.pages.frame import POLICY, duration, number
from flows.pages.plots import BUCKETS, CELLS, blocks_of, thin, waterfall
from flows.pages.run import run_page
from flows.pages.style import LOOKS, MEANINGS, fill_of
from profiles.resolve import Resolved
from profiles.vocabulary import RunState, Tile
from tests.support.builders.simulated_runs import NOON, Simulation, resolved
from tests.support.cases.rows import rows
from workflows.model.records import RunRecord, StepRow, Story

EMPTY = {
    "cluster": "local",
    "since": "2026-01-01T00:00:00.000Z",
    "until": "2026-01-08T00:00:00.000Z",
    "run_count": 0,
}
VOID = frozenset({"meta", "br"})


class Outline(HTMLParser):
    """Checks that tags close in order and keeps what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.wrong == []
    assert found.open == []
    assert found.links == [], "a page holds everything it shows"
    assert not re.search(r"url\((?!#)|@import|https?://", page)
    return found


def page_of(run: Simulation, price: bool = True) -> str:
    found = resolved(run.nodes, run.price)
    return run_page(report_of(run.story, run.steps, found, run.now), curve_of(run.steps))


def test_a_page_is_whole_tells_everything_and_brings_everything() -> None:
    run = Simulation("run-03", 3, nodes=5)
    page = page_of(run)
    text = " ".join(outline(page).text)
    assert POLICY in page.replace("&#x27;", "'")
    for said in ("run-03: succeeded", "Save more often", "thrown away and done again", "node-00", "USD", "fabric"):
        assert said in text
    assert text.count("a second line") == len(run.incidents), "the evidence of every incident"
    assert "something <bad> & long happened" in text
    assert "<bad>" not in page, "what a log says is never markup"


def test_a_run_that_has_not_begun_gets_sentences_instead_of_empty_plots() -> None:
    waiting = RunRecord(
        **{**Simulation("a", 1).record.__dict__, "state": RunState.PENDING, "ended_at": None, "why": "submitted"}  # type: ignore[union-attr]
    )
    found = resolved(4)
    page = run_page(report_of(Story(waiting), {}, found, waiting.created_at), ())
    text = " ".join(outline(page).text)
    assert "<svg role=img" not in page
    for said in (
        "Nothing has happened yet",
        "No time has passed yet",
        "No loss was reported",
        "Fewer than three steps",
        "Nothing went wrong",
        "There was no attempt yet",
        "No checkpoint was looked at yet",
        "The pool has no price",
    ):
        assert said in text, said


def test_losses_that_are_no_numbers_are_told_not_drawn() -> None:
    run = Simulation("broken", 2)
    run.steps[1] = [replace(row, loss=math.nan if row.step > 50 else row.loss) for row in run.steps[1]]
    page = page_of(run)
    assert not re.search(r"\bnan\b", "".join(re.findall(r'points="([^"]*)"', page)))
    assert "steps had a loss that is no number" in page


def test_a_long_run_stays_a_small_page() -> None:
    run = Simulation("long", 5, steps_to_do=20_000, mttf_seconds=2_000, save_every=200)
    page = page_of(run)
    assert len(run.steps) > 10
    assert len(page) < 600_000, len(page)


def test_each_state_has_a_look_of_its_own_and_words() -> None:
    assert set(LOOKS) == set(MEANINGS) == {state.value for state in Tile}
    assert len(set(LOOKS.values())) == len(LOOKS)
    drawn = fleet_page(EMPTY)
    for state, look in LOOKS.items():
        assert (f'id="p-{state}"' in drawn) == bool(look.pattern)
        assert fill_of(state) == (f"url(#p-{state})" if look.pattern else look.colour)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e6, 1e6)), max_size=5000))
def test_a_thinned_line_keeps_its_extremes(points: list[tuple[float, float]]) -> None:
    points.sort()
    found = thin(points)
    assert len(found) <= max(2 * BUCKETS, min(len(points), 2 * BUCKETS))
    if points:
        for choose in (min, max):
            assert choose(y for _, y in found) == choose(y for _, y in points)


@given(st.lists(st.tuples(st.floats(0.5, 500), st.sampled_from(sorted(LOOKS))), min_size=1, max_size=300))
def test_blocks_of_a_bar_never_overlap_and_leave_nothing_out(parts: list[tuple[float, str]]) -> None:
    from flows.decisions.text import timestamp

    tiles: list[dict[str, Any]] = []
    now = NOON
    for seconds, state in parts:
        tiles.append({"from": timestamp(now), "to": timestamp(now + seconds), "attempt": 1, "state": state})
        now += seconds
    blocks = blocks_of(tiles, NOON, now)
    assert blocks[0].first == 0
    assert blocks[-1].last == CELLS - 1
    assert all(a.last + 1 == b.first for a, b in pairwise(blocks))


def test_a_waterfall_ends_where_the_productive_part_begins() -> None:
    drawn = waterfall(50.0, {"queue": 30.0, "rollback": 20.0}, 1.0, "GPU-seconds")
    bars = [(row["bar"].x, row["bar"].width) for row in drawn.rows]
    assert bars == [(0.0, 1000.0), (700.0, 300.0), (500.0, 200.0), (0.0, 500.0)]


@rows("flows/pages")
def test_durations_are_told_in_two_units(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_numbers_have_as_many_digits_as_matter() -> None:
    assert [number(value) for value in (0.0, 0.01234, 1.234, 12.34, 1234.5)] == ["0", "0.0123", "1.23", "12.3", "1,234"]


def test_a_window_without_runs_says_so() -> None:
    assert "No run lived in this time" in fleet_page(EMPTY)


def test_the_curve_knows_which_copy_of_a_step_was_kept() -> None:
    steps = {1: [StepRow(1, 1.0, 1.0, 3.0), StepRow(2, 2.0, 1.0, 2.0)], 2: [StepRow(2, 5.0, 1.0, 2.1)]}
    assert curve_of(steps) == [(1, 1.0, 3.0, True), (2, 2.0, 2.0, False), (2, 5.0, 2.1, True)]


def test_the_advice_names_what_it_stands_on() -> None:
    run = Simulation("run-03", 3, nodes=5)
    found: Resolved = resolved(5)
    advice = report_of(run.story, run.steps, found, run.now)["advice"]
    assert advice["failures"] == len(run.incidents)
    assert advice["stall_seconds"] == pytest.approx(run.save_seconds, rel=0.4)
    assert advice["interval_seconds"] == pytest.approx(run.save_every * run.step_seconds + run.save_seconds, rel=0.1)
    held = sum((item.ended_at or 0) - (item.applied_at or 0) for item in run.attempts)
    assert advice["counted_mttf_hours"] == pytest.approx(held / 3600 / len(run.incidents), abs=1e-5)
    assert advice["counted_mttf_hours_low"] < advice["counted_mttf_hours"] < advice["counted_mttf_hours_high"]
    assert 0 < advice["expected_ettr"] < advice["best_ettr"] < 1
    never = Simulation("calm", 18, mttf_seconds=1e9)
    calm = report_of(never.story, never.steps, found, never.now)["advice"]
    assert calm["expected_ettr"] is None, "it never came back, so nobody knows how long that takes"
    assert "Save less often" in calm["text"]


def test_the_guide_tells_every_state() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)
    assert set(rows) == {state.value for state in Tile}
    for word in ("best_interval_steps", "counted_mttf_hours", "incidents_by_day", "held_gpu_hours"):
        assert f"`{word}`" in guide
