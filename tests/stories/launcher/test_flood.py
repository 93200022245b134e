"""A rank that floods its output holds up neither itself nor the rank beside it."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.harness.launcher_harness import GangOnLoopback

FLOOD_BYTES = {"lines": 100_000_000, "long lines": 100_000_000, "binary": 30_000_000, "returns": 30_000_000}
STEPS = 60
"""The flood lasts so many steps of the other rank at least."""
STEPS_AT_MOST = 1200
"""A rank that is held up takes longer, or for ever."""
LATE_STEPS = 20
"""So many steps may be printed before one is read."""
RANKS = """
import json, os, sys, time
folder, kind, size, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
blocks = {
    "lines": b"".join(b"line %d of a flood that nobody wants to read\\n" % number for number in range(20_000)),
    "long lines": b"y" * 10_000_000 + b"\\n",
    "binary": os.urandom(1 << 20),
    "returns": b"\\r" * (1 << 20),
}
over = os.path.join(folder, "over")
def printed():
    try:
        with open(os.path.join(folder, "printed")) as file:
            return file.read().count("\\n")
    except OSError:
        return 0
def flood(block):
    done = 0
    while done < size or printed() < steps:
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(1, rest):]
        done += len(block)
    with open(over + ".new", "w") as file:
        json.dump(time.time(), file)
    os.rename(over + ".new", over)
def step_by_step():
    number = 0
    with open(os.path.join(folder, "printed"), "w") as file:
        while not os.path.exists(over):
            number += 1
            print(f"step {number}/100000 | loss 1.0 | tokens/s 5 | step time 0.0500 s", flush=True)
            file.write(f"{time.time()}\\n")
            file.flush()
            time.sleep(0.05)
if os.environ["RANK"] == "0":
    flood(blocks[kind])
else:
    step_by_step()
"""


@pytest.mark.story
@pytest.mark.parametrize("kind", list(FLOOD_BYTES))
def test_steps_of_the_other_rank_are_read_while_one_floods(gang: GangOnLoopback, kind: str) -> None:
    words = [str(gang.folder), kind, str(FLOOD_BYTES[kind]), str(STEPS)]
    pod = gang.launch(0, processes=2, command=[sys.executable, "-S", "-c", RANKS, *words], PRIMUS_COORDINATOR_URL="")
    assert pod.end() == 0
    over = json.loads((gang.folder / "over").read_text())
    printed = [float(line) for line in (gang.folder / "printed").read_text().split()]
    record = [json.loads(line) for line in (gang.folder_of(0) / "steps.jsonl").read_text().splitlines()]
    assert [one["step"] for one in record] == list(range(1, len(printed) + 1)), "none is lost"
    assert STEPS <= len([at for at in printed if at < over]) <= STEPS_AT_MOST
    for one in record:
        later = [at for at in printed[one["step"] :] if at < one["at"]]
        assert len(later) <= LATE_STEPS
