"""A person in front of the Prefect server's pages: fills in a form, watches the run, answers a question."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tests.support.harness.consoles import Console, console
from tests.support.harness.many_runs import cause_kill
from tests.support.running.waiting import until
from tests.support.servers.browser_checks import shoot, window
from tests.support.servers.prefect_servers import give_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.story
pytest_plugins = ["tests.support.servers.browsers"]
PATIENCE_MS, PRESSES = 60_000.0, 3
TOLD = count(1)
"""A story that is told again is told of another run: the first one stands in the ledger."""


@pytest.fixture(scope="module")
def served() -> Iterator[Console]:
    folders = tempfile.TemporaryDirectory(prefix="primus-", ignore_cleanup_errors=True)
    with folders as folder, console(Path(folder)) as made:
        give_database(made.home)
        made.up()
        yield made


@pytest.fixture
def page(browser_page: Page) -> Page:
    browser_page.set_default_timeout(PATIENCE_MS)
    browser_page.set_viewport_size({"width": 1280, "height": 1500})
    return browser_page


def test_the_newer_pages_ask_no_other_machine(served: Console, browser: Browser) -> None:
    ui = str(served.api.base_url).removesuffix("/").removesuffix("/api")
    refused: list[str] = []
    with window(browser, policy=True) as page:
        page.on("console", lambda told: refused.append(told.text) if "Content Security Policy" in told.text else None)
        page.goto(f"{ui}/v2/dashboard", timeout=PATIENCE_MS)
        page.get_by_role("link", name="Deployments").first.wait_for(timeout=PATIENCE_MS)
        page.wait_for_load_state("networkidle", timeout=PATIENCE_MS)
        page.goto(f"{ui}/v2/deployments", timeout=PATIENCE_MS)
        page.get_by_text("local-demo").first.wait_for(timeout=PATIENCE_MS)
    assert any("Connecting to" in one for one in refused), f"the page tried it, and its policy forbade it: {refused}"


def form(page: Page, served: Console, deployment: str) -> None:
    """Open the form of a deployment."""
    ui = str(served.api.base_url).removesuffix("/").removesuffix("/api")
    page.goto(f"{ui}/deployments/deployment/{served.deployment(deployment)['id']}/run")
    page.get_by_text("Validate parameters").wait_for()


def choose(page: Page, word: str) -> None:
    """From the form's first list of words."""
    page.locator(".schema-form-property__fields .p-select-button__control").first.focus()
    page.keyboard.press("ArrowDown")
    page.locator(".p-select-option").get_by_text(word, exact=True).click()


def submit(page: Page, served: Console, deployment: str) -> None:
    """Send the form and open the page of the flow run that came of it.

    A server with its hands full answers 503; the form then stays, and a person presses the button again.
    """
    from playwright.sync_api import TimeoutError as NotYet

    before = {one["id"] for one in served.flow_runs(deployment)}
    for presses_left in range(PRESSES, 0, -1):
        # By the keyboard: the server's own notice may lie over the button.
        page.get_by_role("button", name="Submit").press("Enter")
        try:
            # The browser moves only while Playwright waits: whatever sleeps here holds its requests up.
            page.wait_for_url(lambda url: not url.partition("?")[0].endswith("/run"), timeout=PATIENCE_MS / PRESSES)
            break
        except NotYet:
            if presses_left == 1 or {one["id"] for one in served.flow_runs(deployment)} != before:
                raise
    [made] = [one["id"] for one in served.flow_runs(deployment) if one["id"] not in before]
    page.goto(f"{page.url.partition('/deployments/')[0]}/runs/flow-run/{made}")


def ask_for_a_run(page: Page, served: Console, name: str) -> None:
    """Fill the form of a run in, so that a person is asked before each attempt."""
    form(page, served, "train/local-demo")
    areas = page.locator("textarea")
    assert areas.nth(0).input_value() == "demo", "the preset is filled in"
    assert "torchtitan-llama3-8b" in page.inner_text("body"), "the form names the shipped profiles"
    areas.nth(1).fill(name)
    page.get_by_text("Mode", exact=True).last.click()
    known = areas.count()
    page.get_by_role("button", name="Add item").click()
    areas.nth(known).wait_for()
    areas.nth(3).fill('recovery.ask_before=["new-attempt"]')
    choose(page, "ask")
    shoot(page, "form-of-a-run")


def test_a_run_is_started_watched_and_helped_from_the_pages(served: Console, page: Page) -> None:
    ledger, name = Ledger(f"sqlite:///{served.home}/ledger.sqlite"), f"seen-{next(TOLD)}"
    ask_for_a_run(page, served, name)
    submit(page, served, "train/local-demo")

    until("the run trains", lambda: ledger.run(name) and len(ledger.steps(name)) > 25, served.told)
    cause_kill(name, served.home, ledger, launcher=True)  # a rank alone would begin again in place
    [approval] = until("a question is asked", lambda: ledger.approvals(name, waiting_only=True), served.told)
    key = f"approval-{approval.id}".lower()
    until(
        "it has a page", lambda: served.post("/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}}), served.told
    )
    page.get_by_text("Artifacts", exact=True).last.click()  # lists what is there then, and nothing that comes later
    page.get_by_text(f"run-{name}-progress").wait_for()
    page.get_by_text(key).first.click()
    page.get_by_text(f"primus approve {approval.id}").first.wait_for()
    shoot(page, "question")

    with page.context.expect_page() as beside:
        page.get_by_role("link", name="approve it").first.click()
    page = beside.value  # links of a page open one beside it
    page.set_default_timeout(PATIENCE_MS)
    page.get_by_text("Validate parameters").wait_for()
    assert page.locator("textarea").nth(0).input_value() == approval.id, "the link fills the form in, but for why"
    page.locator("textarea").nth(1).fill("the rack is back")
    shoot(page, "form-of-an-answer")
    submit(page, served, "approve/local")
    page.get_by_text("Completed").first.wait_for()

    story = until("the end of the run", lambda: s if (s := ledger.story(name)).run.ended_at else None, served.told)
    assert story.run.state is RunState.SUCCEEDED, served.told()
    assert [attempt.outcome for attempt in story.attempts] == ["process_killed", "succeeded"]
    [answered] = story.approvals
    assert (answered.state, answered.why) == ("approved", "the rack is back")

    [flow_run] = [one for one in served.flow_runs("train/local-demo") if f"run:{name}" in one["tags"]]
    assert served.ended(flow_run["id"])["type"] == "COMPLETED"
    ui = page.url.partition("/runs/")[0]
    page.goto(f"{ui}/runs/flow-run/{flow_run['id']}")
    page.get_by_text(f"{name} succeeded").first.wait_for()
    shoot(page, "run")
    page.get_by_text("Task Runs", exact=True).last.click()
    page.get_by_text("watches attempt 2").first.wait_for()
    page.get_by_text("Artifacts", exact=True).last.click()
    page.get_by_text(f"run-{name}", exact=True).first.click()
    page.get_by_text("process_killed").first.wait_for()
    curves = page.locator("img[src^='data:image/svg']")
    curves.first.wait_for()
    assert curves.first.evaluate("image => image.complete && image.naturalWidth > 100")
    shoot(page, "page-of-a-run")
    ledger.close()
