"""A program that trains on without a replica: each replica group is a world of its own and copies its peers' state.

Run as a rank; standard library only. The state is the number of steps done, shared through files in PRIMUS_RUN_DIR.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(steps: int, seconds: float) -> int:
    """Train to the last step, from what the peers have done where this group begins again."""
    mine = os.environ
    group, groups = int(mine["REPLICA_GROUP_ID"]), int(mine["NUM_REPLICA_GROUPS"])
    folder = Path(mine["PRIMUS_RUN_DIR"]) / "state"
    folder.mkdir(exist_ok=True)
    peers = [folder / str(other) for other in range(groups) if other != group]
    done = 0
    if int(mine["PRIMUS_INCARNATION"]) > 1:
        done = max((int(path.read_text()) for path in peers if path.exists()), default=0)
    for step in range(done + 1, steps + 1):
        time.sleep(seconds)
        draft = folder / f".{group}"
        draft.write_text(str(step))
        draft.replace(folder / str(group))
        print(f"step {step}/{steps} | loss {9 / step:.4f} | tokens/s 5 | step time {seconds:.4f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
