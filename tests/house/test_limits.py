"""What a single test may take, and that whoever takes more fails."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.rotation import BUDGET, ROOT
from tests.support.running.limits import limit_of

pytest_plugins = ["pytester"]
KNOWN = {
    "test_cpu_seconds": {"unit": 2, "story": 25},
    "costly_tests": {"tests/test_a.py::test_b": [9, "many examples"]},
}
CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests.support.running.limits import Limits

def pytest_configure(config):
    config.addinivalue_line("markers", "story: x")
    config.pluginmanager.register(Limits({{"test_cpu_seconds": {{"unit": 0.05}}, "costly_tests": {{}}}}))
"""
TESTS = """
from tests.support.running.waiting import work

def test_it_takes_too_much():
    for _ in range(12):
        work()

def test_it_takes_little():
    pass
"""


@pytest.mark.parametrize(
    ("node_id", "kind", "seconds"),
    [
        ("tests/test_a.py::test_c", "unit", 2.0),
        ("tests/test_a.py::test_b[1]", "unit", 9.0),
        ("tests/test_s.py::test_c", "story", 25.0),
        ("tests/test_s.py::test_c", "whole", float("inf")),
    ],
)
def test_a_limit_goes_by_the_kind_unless_a_test_has_its_own(node_id: str, kind: str, seconds: float) -> None:
    assert limit_of(node_id, kind, KNOWN) == seconds


def test_who_takes_more_than_its_limit_fails_and_the_others_pass(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.format(root=str(ROOT)))
    pytester.makepyfile(TESTS)
    told = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    told.assert_outcomes(passed=1, failed=1)
    told.stdout.fnmatch_lines(["*s of processors, its limit is *"])


def test_every_costly_test_exists_and_says_why() -> None:
    for name, (seconds, why) in tomllib.loads(BUDGET.read_text(encoding="utf-8"))["costly_tests"].items():
        file, _, function = name.partition("::")
        assert f"def {function.rpartition('::')[2]}(" in Path(ROOT / file).read_text(encoding="utf-8"), name
        assert seconds >= 4
        assert why
