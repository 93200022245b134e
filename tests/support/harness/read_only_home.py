"""A home that this process may read and not write: `python -m tests.support.harness.read_only_home HOME`.

It makes the mount read-only in a namespace that nobody else sees, says every command that only reads, and prints what
each said as JSON. Run it by `unshare --user --map-root-user --mount`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.harness.commands import primus_here

READING = (
    "runs",
    "runs --json",
    "status demo",
    "logs demo",
    "checkpoints demo",
    "report demo",
    "report --since 7d",
    "incidents",
    "approvals",
    "ledger",
    "why demo",
    "queue",
    "fleet",
    "nodes",
    "doctor",
    "gc --dry-run",
    "clusters list",
    "profiles list",
    "render train demo",
    "train demo --dry-run",
    "down",
)


def main(home: Path) -> int:
    for options in (["--bind", str(home)], ["-o", "remount,ro,bind"]):
        subprocess.run(["mount", *options, str(home)], check=True)
    said: dict[str, tuple[int, str]] = {}
    for words in (*READING, "pause demo"):
        done = primus_here(*words.split(), environment={"PRIMUS_HOME": str(home)})
        said[words] = (done.returncode, done.stderr)
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("DO_NOT_TRACK", "1")
    sys.exit(main(Path(sys.argv[1])))
