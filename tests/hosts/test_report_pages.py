"""Report pages in a real browser: twenty runs with faults, bootstraps of few and of very many hosts; light, dark and on
a phone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows.decisions.accounting.fleet import fleet_account
from flows.decisions.accounting.report import curve_of, report_of, summarise
from flows.pages.bootstrap import bootstrap_page
from flows.pages.fleet import fleet_page
from flows.pages.run import run_page
from tests.support.builders.bootstraps import MadeBootstrap
from tests.support.builders.simulated_runs import NOON, Simulation, resolved, twenty
from tests.support.servers.browser_checks import (
    NARROW,
    WIDE,
    empty_plots,
    overflow,
    overlaps,
    shoot,
    violations,
    window,
)
from workflows.model.runs import HeldGang, LedgerWindow, WindowIncident, WindowRun

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest_plugins = ["tests.support.servers.browsers"]
LOOKS: tuple[tuple[str, tuple[int, int], Any], ...] = (
    ("light", WIDE, "light"),
    ("dark", WIDE, "dark"),
    ("narrow", NARROW, "light"),
)
pytestmark = pytest.mark.rotation
RUNS = {run.name: run for run in twenty()}


def look_at(page: Page, name: str) -> None:
    """Every promise about the page, in each look; the incidents are opened, so that what they hold is seen too."""
    page.evaluate("document.querySelectorAll('details').forEach((one, index) => one.open = index < 3)")
    for look, (width, height), scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        shoot(page, f"{name}-{look}")
        assert overflow(page) <= 0, f"{name}, {look}: wider than the window"
        assert overlaps(page) == [], f"{name}, {look}"
        assert empty_plots(page) == [], f"{name}, {look}"
        if look != "light" or name.endswith("03"):
            assert violations(page) == [], f"{name}, {look}"


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_page_of_a_run(name: str, browser: Browser, tmp_path: Path) -> None:
    run = RUNS[name]
    path = tmp_path / "report.html"
    report = report_of(run.story, run.steps, resolved(run.nodes, run.price), run.now)
    path.write_text(run_page(report, curve_of(run.steps)), encoding="utf-8")
    with window(browser) as page:
        page.goto(path.as_uri())
        assert page.get_by_role("heading", level=1).inner_text() == f"{name}: succeeded"
        look_at(page, name)


def test_the_page_of_all_runs(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "fleet.html"
    path.write_text(fleet_page(account(list(RUNS.values()))), encoding="utf-8")
    with window(browser) as page:
        page.goto(path.as_uri())
        look_at(page, "fleet-03")


@pytest.mark.parametrize(("hosts", "faults"), [(3, False), (60, True), (2000, True)])
def test_the_page_of_a_bootstrap(hosts: int, faults: bool, browser: Browser, tmp_path: Path) -> None:
    made = MadeBootstrap(hosts, faults)
    path = tmp_path / "bootstrap.html"
    path.write_text(bootstrap_page(*made.page), encoding="utf-8")
    with window(browser) as page:
        page.goto(path.as_uri())
        assert page.get_by_role("heading", level=1).inner_text() == "made: build"
        assert page.evaluate("document.querySelectorAll('*').length") < 2000, "it opens fast"
        look_at(page, f"bootstrap-{hosts}-03")
        assert page.get_by_text("✖ fail").count() == (2 + 1 if faults else 0), "what failed, and at whom"


def test_a_printed_page_opens_what_is_folded_and_fits_the_paper(browser: Browser, tmp_path: Path) -> None:
    run = RUNS["run-03"]
    path = tmp_path / "report.html"
    report = report_of(run.story, run.steps, resolved(run.nodes, run.price), run.now)
    path.write_text(run_page(report, curve_of(run.steps)), encoding="utf-8")
    with window(browser, (718, 1000), "dark") as page:  # A4 without margins of 1 cm, at 96 dots an inch
        page.goto(path.as_uri())
        page.emulate_media(media="print", color_scheme="dark")
        assert page.locator("details pre").first.is_visible()
        assert overflow(page) <= 0
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shoot(page, "print")


BAD = """<!doctype html><html lang=en><head><title>bad</title></head><body><main><h1>bad</h1>
<p style="color:#bbb;background:#fff">hardly to be read</p><p style="position:absolute;top:30px">over it</p>
<svg role=img aria-label="nothing" width=200 height=50></svg><p style="width:3000px">wide</p></main></body></html>"""


def test_the_checks_find_what_they_look_for(browser_page: Page) -> None:
    browser_page.set_content(BAD)
    assert overflow(browser_page) > 1000
    assert any("over it" in line for line in overlaps(browser_page))
    assert len(empty_plots(browser_page)) == 1
    assert any(line.startswith("color-contrast") for line in violations(browser_page))


def account(runs: list[Simulation]) -> dict[str, Any]:
    """The account of simulated runs over the day they lived in."""
    found = LedgerWindow(
        NOON,
        NOON + 86400.0,
        tuple(WindowRun(run.name, "local", "succeeded", run.begin, run.now, None) for run in runs),
        tuple(HeldGang(run.name, item.applied_at or 0.0, item.ended_at) for run in runs for item in run.attempts),
        tuple(
            WindowIncident(
                run.name,
                item.detected_at,
                str(item.fault_class),
                str(item.action),
                tuple(node for node, _ in item.culprits),
            )
            for run in runs
            for item in run.incidents
        ),
    )
    summaries = [summarise(run.story, run.steps, resolved(run.nodes, run.price), run.now) for run in runs]
    return fleet_account(found, summaries, 512, "local")
