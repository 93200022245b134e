"""What a host does while its pre-checks last: it tells its time, then its facts, then whom it reaches, and ends.

It is written for standard input and output, line by line; each line that it says begins with the word that the first
line of its input gave, so that nothing else a login may print is taken for it. It leaves nothing on the host.

```
->  word of the connection
->  clock                 <-  WORD clock {"time": unix seconds}          any number of times
->  facts {options}       <-  WORD facts {"items": {name: {"is": value} | {"why": reason}}}
->  listen {host}         <-  WORD ready {"listening": [port], "taken": {port: why}, "udp": port, "why": ""}
->  go {peers}            <-  WORD reached {"peers": {name: {"ports": {port: word}, "mtu": n, …}}, "why": ""}
end of input: it ends
```
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, BinaryIO, Dict, List

from workflows.programs.hosts import cluster, devices, disks, network, running, system
from workflows.programs.hosts.items import item_of, side_by_side
from workflows.programs.hosts.options import Options, from_json
from workflows.programs.hosts.reach import listen, reach

GROUPS = (system, network, disks, cluster, running, devices)


def facts(asked: Options) -> Dict[str, Any]:
    """The document: what was asked of the host, each item by itself."""
    works = {name: work for group in GROUPS for name, work in group.works(asked).items()}
    items = side_by_side(works, asked.seconds)
    if asked.fsync:  # after all else: nothing of ours shares the disk with it
        measured = side_by_side({"fsync": lambda: disks.fsync_latency(asked.root, asked.fsync)}, asked.seconds)
        items["fsync"] = measured["fsync"]
    return {"items": items}


def serve(told: BinaryIO, said: BinaryIO) -> int:
    """Answer until the input ends; 0, or 2 where a line of it cannot be understood."""
    listeners: List[Any] = []  # they listen until the end
    word = told.readline().decode("utf-8", "replace").strip()

    def say(what: str, value: Any) -> None:
        said.write(f"{word} {what} {json.dumps(value)}\n".encode())
        said.flush()

    for raw in iter(told.readline, b""):
        request, _, rest = raw.decode("utf-8", "replace").strip().partition(" ")
        if request == "clock":
            say("clock", {"time": time.time()})
        elif request == "facts":
            told_of_it = item_of(lambda line=rest: facts(from_json(line)))
            say("facts", told_of_it.get("is", told_of_it))
        elif request == "listen":
            began = item_of(lambda line=rest: listen(json.loads(line)))
            listeners.append(began)
            say("ready", began["is"][1] if "is" in began else began)
        elif request == "go":
            found = item_of(lambda line=rest: reach(json.loads(line)))
            say("reached", found.get("is", found))
        else:
            say("unknown", request)
            return 2
    return 0


def main() -> None:
    """The program as a host runs it; what hangs in it ends with it."""
    code = serve(sys.stdin.buffer, sys.stdout.buffer)
    sys.stdout.flush()
    os._exit(code)
