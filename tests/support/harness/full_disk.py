"""A home on a small disk of its own, in a mount namespace that nobody else sees; its processes end with it.

`python -m tests.support.harness.full_disk HOME` says `primus up`, fills the disk, kills the server, looks on, makes
room, and says `primus down`; what it saw is printed as JSON. Run it by `unshare --user --map-root-user --mount`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.harness.consoles import Console
from tests.support.running.waiting import until
from tests.support.servers.prefect_servers import give_database

MEGABYTES = 40
WATCHED_SECONDS = 8.0
"""Long enough for four starts of who waits 1, 2 and 4 s in between, and for eight of who does not wait."""


def servers(home: Console) -> set[int]:
    return {pid for pid, words in home.processes().items() if "embedded_server" in words}


def main(folder: Path) -> int:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", str(folder)], check=True)
    home = Console(folder / "home")
    give_database(home.home)
    seen: dict[str, object] = {}
    try:
        home.up()
        with (folder / "filling").open("wb", buffering=0) as filling:
            try:
                while filling.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass
        home.kill("server")
        began, deadline = set[int](), time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < deadline:
            began |= servers(home)
            time.sleep(0.05)
        seen["servers while full"] = len(began)
        told = home.primus("up", code=None)
        seen["up"] = [told.returncode, told.stderr]
        (folder / "filling").unlink()
        seen["lives again"] = bool(until("the server lives again", lambda: home.pid("server"), home.told))
        (home.home / "server.json").unlink()  # as of one that could not be written
        seen["down"] = home.primus("down", code=None).returncode
        seen["left"] = sorted(home.processes().values())
    finally:
        home.primus("down", code=None)
    sys.stdout.write(json.dumps(seen))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("DO_NOT_TRACK", "1")
    sys.exit(main(Path(sys.argv[1])))
