"""Probes of what a node reaches: its own clock's right time, names, its SSH server, and the vendor's tool.

Standard library only, Python 3.9. What cannot be asked is unknown; a silence that was waited for counts.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from typing import List, Mapping

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.measure import storage_times
from workflows.programs.probes.node import STORAGE_VARIABLE

REACH_ANSWER_SECONDS = 3.0
SSH_PORT = 22
LISTING = {
    "amd-smi": ("amd-smi", "list"),
    "rocm-smi": ("rocm-smi", "--showid"),
    "nvidia-smi": ("nvidia-smi", "-L"),
}
"""How each vendor's tool lists its devices."""

Arguments = Mapping[str, str]


def clock(_: Arguments) -> ParsedOutput:
    """This node's clock against that of the shared storage, by the time of a file that is written there now.

    Raises:
        OSError: the storage cannot be written.
    """
    folder = os.environ.get(STORAGE_VARIABLE)
    if not folder:
        return ParsedOutput(unknown="there is no shared storage to compare with")
    before, after, there = storage_times(folder)
    # The storage's moment lies between ours; only what lies outside is skew.
    skew = max(0.0, before - there, there - after)
    line = f"this node says {before:.3f} to {after:.3f}, the storage {there:.3f} (Unix seconds)"
    return ParsedOutput((Reading("clock_skew", skew, "s", line=line),))


def names(arguments: Arguments) -> ParsedOutput:
    """Whether names can be resolved: those of `names`, with commas between, or the node's own."""
    wanted = [name for name in arguments.get("names", "").split(",") if name] or [os.uname().nodename]
    lost: List[str] = []
    for name in wanted:
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            lost.append(f"{name}: {error.strerror or error}")
    line = "; ".join(lost) or f"resolved {', '.join(wanted)}"
    return ParsedOutput((Reading("names_unresolved", float(len(lost)), "count", line=line),))


def ssh(arguments: Arguments) -> ParsedOutput:
    """Whether the SSH server of this node greets."""
    port = int(arguments.get("port", str(SSH_PORT)))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=REACH_ANSWER_SECONDS) as connection:
            connection.settimeout(REACH_ANSWER_SECONDS)
            greeting = connection.recv(255)
    except OSError as error:
        return _ssh(1.0, f"port {port}: {error.strerror or error}")
    output = greeting.decode("ascii", "replace").strip()
    return _ssh(0.0 if output.startswith("SSH-") else 1.0, f"port {port} says {output!r}")


def _ssh(silent: float, line: str) -> ParsedOutput:
    return ParsedOutput((Reading("ssh_silent", silent, "count", line=line),))


def tool_time(arguments: Arguments) -> ParsedOutput:
    """How long a vendor's tool takes to list its devices; it is waited for by whoever started this probe."""
    tool = arguments.get("tool", "")
    command = LISTING.get(tool)
    if command is None:
        return ParsedOutput(unknown=f"tool: must be one of {', '.join(LISTING)}, got {tool!r}")
    if shutil.which(command[0]) is None:
        return ParsedOutput(unknown=f"{command[0]} is not there")
    began = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())
        return ParsedOutput(unknown=f"{' '.join(command)} ended with {done.returncode}: {output[-200:]}")
    return ParsedOutput((Reading("tool_seconds", seconds, "s", line=" ".join(command)),))


REACH_PROBES = {"clock": clock, "names": names, "ssh": ssh, "tool-time": tool_time}
"""By the names of `profiles/checks/catalogue.py`."""
