"""What a page must be in a real browser, and a window to look at it. The fixtures stand in
`tests.support.servers.browsers`.

Debian's chromium, driven by Playwright's Python side alone. Without it such tests are skipped and say how to get it;
where PRIMUS_TEST_BROWSER=1 they fail instead. Screenshots go to the folder PRIMUS_TEST_SHOTS where that is set.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WIDE, NARROW = (1280, 900), (360, 740)
HOW = "apt-get install chromium; pip install playwright axe-playwright-python"
SERIOUS = ("serious", "critical")
LOCAL = (
    "http://127.0.0.1",
    "http://localhost",
    "ws://127.0.0.1",
    "ws://localhost",
    "file:",
    "data:",
    "blob:",
    "about:",
)


def chromium() -> str:
    """Path of the browser; "" where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def missing_browser() -> str:
    """Why no page can be looked at; "" where one can."""
    missing = [] if chromium() else ["chromium"]
    missing += [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
    return f"no browser ({', '.join(missing)} missing): {HOW}" if missing else ""


@contextmanager
def window(
    browser: Browser, size: tuple[int, int] = WIDE, scheme: Any = "light", *, policy: bool = False
) -> Generator[Page]:
    """A page of this size and colour scheme; whatever it asks of another machine fails the test.

    With `policy` what a page may do is what its server's header says, as for people; axe needs more.
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, bypass_csp=not policy
    )
    asked = _kept_local(context)
    try:
        yield context.new_page()
        assert not asked, f"the page asked other machines: {asked}"
    finally:
        context.close()


def _kept_local(context: BrowserContext) -> list[str]:
    asked: list[str] = []

    def guard(route: Any) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    context.route("**/*", guard)
    return asked


def shoot(page: Page, name: str) -> None:
    """Keep a picture of the whole page where somebody wants pictures."""
    folder = os.environ.get("PRIMUS_TEST_SHOTS", "")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def violations(page: Page) -> list[str]:
    """What axe finds serious or critical, one line each."""
    from axe_playwright_python.sync_playwright import Axe

    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{item['id']} ({item['impact']}): {item['help']}: {[node['html'][:120] for node in item['nodes'][:3]]}"
        for item in found
        if item["impact"] in SERIOUS
    ]


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


OVERLAPS = """() => {
  const kinds = 'h1,h2,h3,p,dt,dd,th,td,li,summary,caption,.plot span,.plot svg,.rows > *';
  const said = e => `${e.tagName} "${e.textContent.slice(0, 40)}"`;
  const shown = [...document.querySelectorAll(kinds)]
    .filter(e => e.checkVisibility && e.checkVisibility() && !e.closest('details:not([open]) > :not(summary)'))
    .map(e => [e, e.getBoundingClientRect()]).filter(([_, r]) => r.width > 0 && r.height > 0);
  const found = [];
  for (let i = 0; i < shown.length; i++) for (let j = i + 1; j < shown.length; j++) {
    const [a, p] = shown[i], [b, q] = shown[j];
    if (a.contains(b) || b.contains(a)) continue;
    const box = a.closest('.scroll');
    if (box !== b.closest('.scroll')) continue;
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (wide > 1.5 && high > 1.5) found.push(`${said(a)} over ${said(b)}`);
  }
  return found.slice(0, 10);
}"""
"""Pairs of texts and plots that lie over each other."""

EMPTY_PLOTS = """() => [...document.querySelectorAll('main svg[role=img]')]
  .filter(svg => { const box = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll('rect,polyline,polygon,path')].some(e => {
      const b = e.getBBox(); return b.width > 0 || b.height > 0; });
    const view = svg.viewBox.baseVal;
    const outside = [...svg.querySelectorAll('rect,polyline,polygon,path')].some(e => { const b = e.getBBox();
      return b.x < -2 || b.y < -2 || b.x + b.width > view.width + 2 || b.y + b.height > view.height + 2; });
    return box.width < 20 || box.height < 8 || !drawn || outside || !svg.getAttribute('aria-label'); })
  .map(svg => svg.outerHTML.slice(0, 160))"""
"""Plots in which nothing is drawn, or beside them, that have no size, or say nothing to those who do not see them."""


def overlaps(page: Page) -> list[str]:
    """Texts and plots that lie over each other."""
    found: list[str] = page.evaluate(OVERLAPS)
    return found


def empty_plots(page: Page) -> list[str]:
    """Plots that show nothing."""
    found: list[str] = page.evaluate(EMPTY_PLOTS)
    return found
