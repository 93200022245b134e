"""How fast parsers of tools' output are, beside a plain loop over the same lines, and that time grows with the text.

Each sample is repeated to about 0.4 MB; seconds are those of this process, so that a loaded machine is no finding. JSON
is repeated inside a document of another name: its reading is what takes time. Goals: none below 2 MB/s (the longest
output of a tool is some MB), and four times the text takes at most seven times as long, also for lines made to be hard.
Name parsers to see only those: `python -m tests.benchmarks.tool_parsers rvs fio`.
"""

from __future__ import annotations

import sys
import time

from tests.support.cases.tool_samples import SAMPLES, printed
from workflows.programs.parsers.registry import PARSERS, Parse

BYTES = 400_000
SLOWEST_MB_PER_SECOND = 2.0
LONGEST_FACTOR = 7.0
HARD = (
    "[" * 50 + "\n",
    " " * 2000 + "x\n",
    "1 " * 1000 + "\n",
    ":" * 2000 + "\n",
    '{"a":' * 300 + "\n",
    "9" * 3000 + "\n",
)


def seconds(parse: Parse, text: str, times: int = 2) -> float:
    """The shortest of some runs."""
    taken: list[float] = []
    for _ in range(times):
        start = time.process_time()
        parse(text)
        taken.append(time.process_time() - start)
    return min(taken)


def plain(text: str) -> float:
    """Seconds of a loop that only looks at each line."""
    start = time.process_time()
    found = 0
    for line in text.split("\n"):
        if line.strip():
            found += 1
    return time.process_time() - start


def repeated(text: str, size: int) -> str:
    """The text as often as it fits; JSON is one document, so that its first beginning is all there is to read."""
    return text * max(1, size // max(1, len(text.encode())))


def document(text: str, size: int) -> str:
    """A JSON sample with its own content again and again beside it."""
    return '{"rest": [' + ",".join([text] * max(1, size // max(1, len(text)))) + "]}\n"


def main(names: list[str]) -> int:
    """Print the table; 1 where a goal was missed."""
    missed: list[str] = []
    print(f"{'parser':16} {'sample':36} {'MB':>5} {'MB/s':>8} {'loop MB/s':>10} {'x loop':>7} {'4x text':>8}")
    for tool, name in SAMPLES:
        text = printed(tool, name)
        if len(text) < 300 or (names and tool not in names):
            continue
        grown = document if name.endswith(".json") else repeated
        small, large = grown(text, BYTES // 4), grown(text, BYTES)
        parse = PARSERS[tool]
        once, four = seconds(parse, small), seconds(parse, large)
        megabytes = len(large.encode()) / 1e6
        rate, loop = megabytes / four, megabytes / max(plain(large), 1e-9)
        growth = four / max(once, 1e-9)
        print(f"{tool:16} {name:36} {megabytes:5.1f} {rate:8.1f} {loop:10.1f} {loop / rate:7.1f} {growth:8.1f}")
        if rate < SLOWEST_MB_PER_SECOND or growth > LONGEST_FACTOR:
            missed.append(f"{tool}/{name}")
    for tool, parse in PARSERS.items():
        for hard in HARD if not names or tool in names else ():
            once, four = seconds(parse, repeated(hard, BYTES // 4), 1), seconds(parse, repeated(hard, BYTES), 1)
            if four > 1.0 or (four > 0.05 and four / once > LONGEST_FACTOR):
                missed.append(f"{tool} on {hard[:10]!r}: {once:.3f} s, {four:.3f} s")
    print(f"goals missed: {', '.join(missed)}" if missed else "every goal was met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
