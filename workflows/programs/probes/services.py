"""Probes of what a node runs and reaches: services, variables for the fabric, its clock, names, SSH, the vendor's tool.

Nothing is started or changed. What cannot be asked is unknown; a silence that was waited for counts.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes import node
from workflows.programs.probes.measure import storage_times
from workflows.programs.probes.node import SECRET, STORAGE_VARIABLE, ArgumentError, Arguments, listed, read
from workflows.programs.runtime.bounded import run_program

ANSWER_SECONDS = 4.0
SYSTEMD = "run/systemd/system"
"""A folder that is there exactly where systemd runs the machine."""
UP, DOWN = ("active", "reloading", "refreshing"), ("inactive", "failed", "deactivating", "dead")
"""systemd's words for a unit; any other, as `activating`, leaves it open."""
PROCESSES: Mapping[str, Tuple[str, ...]] = {"nvidia-fabricmanager": ("nv-fabricmanager", "nvidia-fabricmanager")}
"""Services whose process has another name."""
INITS = ("systemd", "init", "runit", "openrc-init", "s6-svscan")
"""Names of a machine's first process; a pod that sees another one sees its own processes only."""
COMM_CHARACTERS = 15
"""The kernel keeps no more of a process's name."""
SHOWN_CHARACTERS = 60

REACH_ANSWER_SECONDS = 3.0
SSH_PORT = 22
LISTING = {
    "amd-smi": ("amd-smi", "list"),
    "rocm-smi": ("rocm-smi", "--showid"),
    "nvidia-smi": ("nvidia-smi", "-L"),
}
"""How each vendor's tool lists its devices."""
States = Dict[str, Optional[bool]]
"""Name -> whether it runs; None: nobody tells."""


def services(arguments: Arguments) -> ParsedOutput:
    """How many of the services `names` (by comma) are down, by systemd, else by the names of processes.

    Raises:
        ArgumentError: `names` names none, or something that can be no service.
    """
    names = [name.strip() for name in arguments.get("names", "").split(",") if name.strip()]
    wrong = [name for name in names if name.startswith("-") or not set(name) <= _LETTERS]
    if not names or wrong:
        raise ArgumentError(f"names: must be names of services with commas between them, got {wrong or ''!r}")
    states, source = _by_systemd(names) if os.path.isdir(os.path.join(node.ROOT, SYSTEMD)) else _by_processes(names)
    open_ones = [name for name, state in states.items() if state is None]
    down = [name for name, state in states.items() if state is False]
    if len(open_ones) == len(names):
        return ParsedOutput(unknown=f"{', '.join(names)}: {source}")
    line = f"{source}: {', '.join(down)} not running" if down else f"{source}: {', '.join(names)}"
    reading = Reading("services_down", float(len(down)), "count", line=line[:EVIDENCE_CHARACTERS])
    return ParsedOutput((reading,), f"nobody tells whether {', '.join(open_ones)} runs" if open_ones else "")


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@:\\")


def _by_systemd(names: Sequence[str]) -> Tuple[States, str]:
    nothing: States = dict.fromkeys(names)
    if shutil.which("systemctl") is None:
        return nothing, "systemd runs this machine, and systemctl is not here to ask it"
    command = ["systemctl", "is-active", "--", *names]
    ended = run_program(command, ANSWER_SECONDS)
    words = ended.output.split()
    if ended.code is None:
        return nothing, ended.problem
    if len(words) != len(names):
        reason = " ".join(ended.errors.split())[:200] or "no word for each service"
        return nothing, f"systemctl ended with {ended.code}: {reason}"
    answer = zip(names, words)  # noqa: B905  (3.9)
    return {name: word in UP if word in (*UP, *DOWN) else None for name, word in answer}, "systemctl"


def _by_processes(names: Sequence[str]) -> Tuple[States, str]:
    """A process that is seen runs; one that is not is down only where all of the node's can be seen."""
    running = _running()
    whole = (read("proc/1/comm") or "") in INITS
    states: States = {name: True if _is_among(name, running) else (False if whole else None) for name in names}
    return states, "processes" if whole else "this pod sees only its own processes, and no systemd"


def _running() -> List[str]:
    """Names of all processes that can be seen: as the kernel keeps them, and as they were started."""
    found: List[str] = []
    for pid in (name for name in listed("proc") if name.isdigit()):
        program = (read(f"proc/{pid}/cmdline") or "").partition("\0")[0]
        found += [os.path.basename(program), read(f"proc/{pid}/comm") or ""]
    return found


def _is_among(name: str, running: Sequence[str]) -> bool:
    wanted = PROCESSES.get(name, (name[: -len(".service")] if name.endswith(".service") else name,))
    return any(one in running or one[:COMM_CHARACTERS] in running for one in wanted)


def fabric_environment(arguments: Arguments) -> ParsedOutput:
    """How many variables of this pod differ from `wanted`, a JSON object of words; more of them are allowed.

    Raises:
        ArgumentError: `wanted` is no JSON object of words.
    """
    text = arguments.get("wanted")
    if text is None:
        return ParsedOutput(unknown="the variables that the fabric wants are not known: give `wanted`")
    wanted = _wanted(text)
    if not wanted:
        line = "pool and hardware want no variable"
        return ParsedOutput((Reading("fabric_environment_wrong", 0.0, "count", word="none is wanted", line=line),))
    wrong = [_difference(name, value) for name, value in sorted(wanted.items()) if os.environ.get(name) != value]
    line = "; ".join(wrong) or f"{', '.join(sorted(wanted))} as wanted"
    return ParsedOutput(
        (Reading("fabric_environment_wrong", float(len(wrong)), "count", line=line[:EVIDENCE_CHARACTERS]),)
    )


def _wanted(text: str) -> Dict[str, str]:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"wanted: must be a JSON object of words, got {text[:40]!r} ({error})") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):  # pyright: ignore
        raise ArgumentError(f"wanted: must be a JSON object of words, got {text[:40]!r}")
    return found  # pyright: ignore


def _difference(name: str, wanted: str) -> str:
    """What is wrong with a variable; one that may keep a secret is told of without its value."""
    found = os.environ.get(name)
    if any(part in name.lower() for part in SECRET):
        return f"{name} is {'not set' if found is None else 'another one'}"
    present = "not set" if found is None else repr(found[:SHOWN_CHARACTERS])
    return f"{name} is {present}, wanted {wanted[:SHOWN_CHARACTERS]!r}"


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


PROBES = {
    "services": services,
    "fabric-environment": fabric_environment,
    "clock": clock,
    "names": names,
    "ssh": ssh,
    "tool-time": tool_time,
}
"""By the names of `profiles/checks/catalogue.py`."""
