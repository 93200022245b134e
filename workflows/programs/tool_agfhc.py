"""Reads AGFHC, AMD's field health check: each test's verdict, the summary, and how the program ended.

Its image is private; the format is that of AMD's public acceptance guides (1.22 and 1.23).
"""

from __future__ import annotations

import re

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, whole_lines

_TEST = re.compile(r"(PASS|FAIL|ERROR|ABORT|SKIP): {1,4}([\w.-]{1,80})(?:\s.{0,300})?")
_COUNTS = re.compile(r"Tests: {1,4}([0-9]{1,9}) Total, ([0-9]{1,9}) Executed, ([0-9]{1,9}) Skipped.{0,200}")
_END = re.compile(r"Program exiting with return code (AGFHC_\w{1,60}) \[(-?[0-9]{1,9})\]")
_MODE = re.compile(r"Product: (.{1,60}?) \| GPUs: ([0-9]{1,4}) \| Mode: \w{1,10} ([A-Z]{3}) (NPS[0-9])\b.{0,100}")
SAID = {"PASS": "pass", "FAIL": "fail"}
"""A test that ended in an error or was aborted says nothing of the hardware."""


class _Run:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.told = Told()
        self.executed = 0.0
        self.ended = False

    def line(self, stripped: str, line: str) -> None:
        """One line."""
        test, counts, end = _TEST.fullmatch(stripped), _COUNTS.fullmatch(stripped), _END.fullmatch(stripped)
        mode = _MODE.fullmatch(stripped)
        if test:
            self.told.word("agfhc_test", test.group(1), test.group(2), line, SAID.get(test.group(1), ""))
            if test.group(1) not in SAID:
                self.told.note(f"{test.group(2)} gave no verdict: {test.group(1)}")
        elif counts:
            self.executed = amount(counts.group(2)) or 0.0
            self.told.figure("agfhc_tests_executed", self.executed, "count", "", line)
            self.told.figure("agfhc_tests_skipped", amount(counts.group(3)), "count", "", line)
            if (amount(counts.group(3)) or 0.0) > 0:
                self.told.note(f"{counts.group(3)} tests were skipped")
        elif end:
            self._end(end.group(1), line)
        elif mode:
            self.told.word("product_name", mode.group(1), "", line)
            self.told.figure("gpu_count", amount(mode.group(2)), "count", "", line)
            self.told.word("compute_partition", mode.group(3), "", line)
            self.told.word("memory_partition", mode.group(4), "", line)
        elif "agfhc version:" in stripped[:40].lower():
            self.told.version = stripped.partition(":")[2].strip()[:40]

    def _end(self, code: str, line: str) -> None:
        self.ended = True
        success = code == "AGFHC_SUCCESS"
        self.told.word("agfhc_result", code, "", line, "pass" if success and self.executed else "")
        if not success:
            self.told.note(f"the program ended with {code}")
        elif not self.executed:
            self.told.note("no test was executed")


def parse(text: str) -> Parsed:
    """Readings `agfhc_test` by the test's name, counts, and `agfhc_result`: pass only where tests were executed."""
    lines, cut = whole_lines(text)
    run = _Run()
    for line in lines:
        run.line(line.strip(), line)
    return close(run.told, "AGFHC", text, cut, "" if run.ended else "the line with the return code is missing")
