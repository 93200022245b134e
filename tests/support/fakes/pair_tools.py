"""Tools between two nodes that are made up: a server that waits for one client, and a client that prints a sample."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples" / "tools"
PROGRAM = '''#!{python} -IS
"""Listens on -p without a last word, else connects there at once and prints the figure of the slower of both."""
import json, os, socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
device = words[words.index("-d") + 1] if "-d" in words else ""
node = os.environ["PRIMUS_NODE"]
slow = json.loads({slow!r})
if len(words) % 2 == 0:
    own = os.environ.get("PRIMUS_POD_IP") or "127.0.0.1"
    with socket.create_server((own, port)) as server, server.accept()[0] as client:
        client.sendall(node.encode())
    sys.exit(0)
with socket.create_connection((words[-1], port), 5) as connection:
    other = connection.recv(99).decode()
rate = min(slow.get(one + "/" + device, {rate}) for one in (node, other))
print(open({sample!r}).read().replace("181.32", "%.2f" % rate), end="")
'''


def tool(folder: Path, name: str, sample: str, *, slow: str = "{}", rate: float = 181.32) -> Path:
    """A tool of that name in `folder`.

    Args:
        folder: made where it is not there.
        name: as it is called.
        sample: file below `samples/tools` that its client prints.
        slow: JSON of node/device -> figure that stands in place of the sample's 181.32.
        rate: figure of all others.
    """
    text = PROGRAM.format(python=sys.executable, slow=slow, rate=rate, sample=str(SAMPLES / sample))
    return script(folder, name, text)


def script(folder: Path, name: str, text: str) -> Path:
    """An executable file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
