"""A real browser for tests of pages: `pytest_plugins = ["tests.support.servers.browsers"]` gives `browser` and
`browser_page`.

What can be asked of a page stands in `tests.support.servers.browser_checks`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.browser_checks import chromium, missing_browser, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the session."""
    reason = missing_browser()
    if reason:
        if os.environ.get("PRIMUS_TEST_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    # Root may not use the browser's own sandbox; what is opened is loopback and files of ours.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def browser_page(browser: Browser) -> Iterator[Page]:
    """A page of a wide, light window that reaches nothing but this machine."""
    with window(browser) as page:
        yield page
