"""What a preflight's pod costs beside its tools: `probe` with tools that end at once, against these tools by hand.

Both start the same programs; by hand they are started one after the other and their output is left. Our own probes are
held against the start of a bare Python, since each is a process of its own; medians, so that one slow moment is none.
Goals: 12 ms a tool over its own time, beside one start of the program; a probe of ours within 3 starts of Python; and
nothing of what opens GPUs is imported where nobody asks for it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workflows.programs.probes import run
from workflows.programs.probes.call import Call, to_json

MAIN = str(Path(run.__file__).parents[1] / "main.py")
TOOLS, ROUNDS = 40, 7
TOOL = ("/bin/echo", "64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.03 ms")
MOST_TOOL_SECONDS = 0.012
MOST_STARTS = 3.0


def seconds(argv: list[str], times: int = ROUNDS) -> float:
    """Median wall time of a process."""
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def by_hand() -> float:
    """Median of the tools one after the other, each started and waited for."""
    return statistics.median([sum(seconds(list(TOOL), 1) for _ in range(TOOLS)) for _ in range(ROUNDS)])


def in_probe(calls: tuple[Call, ...]) -> float:
    """Median of the program with these calls."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds([sys.executable, MAIN, "probe", f"--calls={to_json(calls)}", f"--out-dir={folder}"])


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    bare = seconds([sys.executable, "-c", "pass"])
    tools, none = by_hand(), in_probe(())
    with_tools = in_probe(tuple(Call(number, command=TOOL, parser="ping") for number in range(TOOLS)))
    over = (with_tools - none - tools) / TOOLS
    own = seconds([sys.executable, MAIN, "probe-one", "--name=node-settings"])
    late = seconds([sys.executable, MAIN, "probe-one", "--name=fabric-environment"])
    gpus = seconds([sys.executable, MAIN, "probe-one", "--name=gpu-smoke"])
    print(f"bare Python                                {1e3 * bare:7.1f} ms")
    print(f"`probe` without a call                     {1e3 * none:7.1f} ms, {none / bare:.1f} x bare")
    print(f"{TOOLS} tools by hand                           {1e3 * tools:7.1f} ms")
    print(f"`probe` with {TOOLS} tools                      {1e3 * with_tools:7.1f} ms: {1e3 * over:+.1f} ms a tool")
    print(f"a probe of ours (node-settings)            {1e3 * own:7.1f} ms, {own / bare:.1f} x bare")
    print(f"the same, imported late (fabric-environment){1e3 * late:6.1f} ms, {late / bare:.1f} x bare")
    print(f"one that opens GPUs, where there is no torch{1e3 * gpus:6.1f} ms, {gpus / bare:.1f} x bare")
    missed = [
        name
        for name, bad in (
            (f"a tool over {1e3 * MOST_TOOL_SECONDS:g} ms", over > MOST_TOOL_SECONDS),
            (f"a probe of ours over {MOST_STARTS:g} starts of Python", own > MOST_STARTS * bare),
        )
        if bad
    ]
    print(f"goals missed: {', '.join(missed)}" if missed else "every goal was met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
