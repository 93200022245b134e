"""Limits of a single test: seconds of processors, which a loaded machine does not change, and a watchdog by the clock.

Whoever takes more fails, with the stacks of all threads where it hung. The numbers stand in `tests/budget.toml`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import pytest

from tests.phases import processor, processors
from tests.proof import kind_of
from tests.rotation import function_of
from tests.support.running.meter import waited_for
from tests.support.running.waiting import patience

HANGS_SECONDS = {"unit": 120.0, "story": 300.0, "alone": 900.0, "bed": 900.0, "lab": 900.0, "whole": 900.0}
"""No test of its kind takes half of that on a calm machine; those that tell many runs at once are `alone`."""


def limit_of(node_id: str, kind: str, budget: Mapping[str, Any]) -> float:
    """Seconds of processors that a test may take, on the processors of the budget.

    Args:
        node_id: as pytest calls it.
        kind: see `kind_of`.
        budget: the parsed `budget.toml`.
    """
    costly: tuple[float, str] | None = budget["costly_tests"].get(function_of(node_id))
    return float(costly[0] if costly else budget["test_cpu_seconds"].get(kind, float("inf")))


class Limits:
    """The plug-in."""

    def __init__(self, budget: Mapping[str, Any]) -> None:
        self.budget, self.factor = budget, processor()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A watchdog for each test, with what it stands on."""
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(patience(HANGS_SECONDS[kind_of(item)]), method="signal"))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """What a test itself takes."""
        before = waited_for()
        outcome: Any = yield
        used, limit = waited_for() - before, limit_of(item.nodeid, kind_of(item), self.budget)
        if outcome.excinfo is not None or used <= limit * self.factor:
            return
        limit *= max(self.factor, processors())  # others share a core with this one, or fill caches that it needed
        if used > limit:
            text = f"it took {used:.1f} s of processors, its limit is {limit:.1f} s (tests/budget.toml)"
            outcome.force_exception(pytest.fail.Exception(text, pytrace=False))
