"""The table of what tests with real processes take stands in the documents as `tests/seconds.tsv` has it."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from tests.rotation import Tables, file_of, is_core, seconds_of

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BEGIN, END = "<!-- seconds: generated -->", "<!-- seconds: end -->"


def table(seconds: dict[str, float], core: frozenset[str]) -> str:
    """A row for each folder: how many functions are measured, what they take, what the core takes, the longest."""
    folders: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for name, took in seconds.items():
        folders[file_of(name).rpartition("/")[0]].append((took, name))
    rows = ["| folder | measured | seconds, all | of them core | the longest |", "|---|---|---|---|---|"]
    for folder, found in sorted(folders.items()):
        whole = sum(took for took, _ in found)
        kept = sum(took for took, name in found if is_core(name, core))
        longest, name = max(found)
        shown = name.removeprefix(f"{folder}/").replace("::", ": ")
        rows.append(f"| {folder} | {len(found)} | {whole:.0f} | {kept:.0f} | {longest:.0f} s, `{shown}` |")
    return "\n".join(rows)


def test_the_page_has_the_measured_seconds() -> None:
    tables = Tables.read()
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n{table(dict(tables.seconds), tables.core)}\n{END}{after}"
    if os.environ.get("PRIMUS_GOLDEN") == "1":
        PAGE.write_text(fresh, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == fresh, "run `make golden` and look at the difference"


def test_a_folder_has_its_sum_its_core_and_its_longest_test() -> None:
    seconds = seconds_of(
        "# comment\ntests/a/test_x.py::test_one\t2\ntests/a/test_x.py::test_two\t40\ntests/b/test_y.py\t7\n"
    )
    core = frozenset({"tests/a/test_x.py::test_one"})
    assert table(seconds, core).splitlines()[2:] == [
        "| tests/a | 2 | 42 | 2 | 40 s, `test_x.py: test_two` |",
        "| tests/b | 1 | 7 | 0 | 7 s, `test_y.py` |",
    ]
