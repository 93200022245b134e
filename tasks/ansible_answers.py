"""From what Ansible says of its tasks to what each node told, or why it told nothing. Pure.

Any text may come from a host. What cannot be read is a reason, never an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.admission import BareMetal
from tasks.embedded.engine.json_values import as_map
from tasks.preflighting import Told
from workflows.programs.probe import unpacked

FOLDER, PROGRAMS, PROBE, REPORT, REMOVAL = "folder", "programs", "probe", "report", "removal"
"""Tasks of the playbook, in their order."""
_NO_CONNECTION = "over ssh:"
"""Ends what Ansible says of an unreachable host, before what ssh says."""
MOST_REPORT_BYTES = 1 << 20
"""A report is some kilobytes; nobody unpacks what else a host may send."""
SAID_CHARACTERS = 300
_UNHEARD = "Broken pipe"
"""Ansible wrote to an ssh that was ending: it takes that for the reason, and what ssh said is lost."""
_NO_WORD = "non-zero return code"
"""What `command` says of a program that failed; the code stands beside it."""
_ENDINGS = {"runner_on_ok": "ok", "runner_on_failed": "failed", "runner_on_unreachable": "unreachable"}


@dataclass(frozen=True)
class Event:
    """How one task ended on one host."""

    task: str
    host: str
    """Its name in the inventory."""
    ending: str
    """`ok`, `failed`, `unreachable`."""
    result: Mapping[str, Any]


def event_of(line: str) -> Event | None:
    """The ending that a line of ansible-runner's output tells; None: it tells something else."""
    try:
        told: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = as_map(told)
    ending = _ENDINGS.get(str(found.get("event", "")))
    data = as_map(found.get("event_data"))
    if ending is None or not data.get("host"):
        return None
    return Event(str(data.get("task", "")), str(data["host"]), ending, as_map(data.get("res")))


class Reader:
    """Follows the endings of tasks and keeps what each host has told."""

    def __init__(self, settings: BareMetal, nodes: Mapping[str, str]) -> None:
        """`nodes`: name in the inventory -> node."""
        self._settings, self._nodes = settings, nodes
        self.told: dict[str, Told] = {}
        """By node, once its answer or the reason for its silence is known."""
        self.again: set[str] = set()
        """Nodes whose ssh ended before Ansible heard why: worth one more try, whose end is told whatever it is."""
        self._printed: dict[str, str] = {}
        """By node, what its probe printed: told where it left no report."""

    def take(self, event: Event) -> bool:
        """Take it in; whether a node has now told something, or never will."""
        node = self._nodes.get(event.host)
        if node is None or node in self.told or event.task == REMOVAL:
            return False
        if event.ending == "ok" and event.task != REPORT:
            self._printed[node] = _said(event.result) if event.task == PROBE else ""
            return False
        if node not in self.again and _is_unheard(event):
            self.again.add(node)
            return False
        self.told[node] = _told(node, event) if event.ending == "ok" else Told(node, why=self._why(node, event))
        return True

    def _why(self, node: str, event: Event) -> str:
        said = _said(event.result)
        if event.ending == "unreachable":
            host = self._settings.hosts[node]
            where = f"{host.address} port {host.port}"
            if event.task == FOLDER:
                return _unreachable(said, where, self._settings)
            # Connections are shared by the steps: what ssh itself says of a lost one does not come through.
            more = short(said.rpartition(_NO_CONNECTION)[2])
            lost = f"the connection to {where} was lost while it was tested: the host died or stopped answering"
            return f"{lost} ({more})" if more else lost
        if event.task == REPORT and "not found" in said:
            return f"its probe left no report; it said: {short(self._printed.get(node, '')) or 'nothing'}"
        return _failed(event, said, self._settings)


def _is_unheard(event: Event) -> bool:
    return (event.task, event.ending) == (FOLDER, "unreachable") and _UNHEARD in _said(event.result)


def report_of(node: str, text: str) -> Told:
    """What a probe's report says of a node; `why` where it cannot be read."""
    try:
        report: Any = json.loads(text)
        at, seconds = float(report["at"]), float(report["seconds"])
        answers = unpacked(str(report["answers"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return Told(node, why=f"its report cannot be read: {short(str(error)) or type(error).__name__}")
    if not (math.isfinite(at) and math.isfinite(seconds) and at > 0):
        return Told(node, why=f"its report cannot be read: it was made at {at}")
    return Told(node, at, seconds, answers)


def _told(node: str, event: Event) -> Told:
    content = str(event.result.get("content", ""))
    if len(content) > MOST_REPORT_BYTES:
        return Told(node, why=f"its report is longer than {MOST_REPORT_BYTES} bytes")
    try:
        text = base64.b64decode(content, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        return Told(node, why=f"its report cannot be read: {error}")
    return report_of(node, text)


def short(text: str) -> str:
    """The end of what was said, in one line."""
    said = " ".join(text.split())
    return said if len(said) <= SAID_CHARACTERS else f"… {said[-SAID_CHARACTERS:]}"


def _said(result: Mapping[str, Any]) -> str:
    """All that a result says, the most telling last."""
    names = ("stdout", "module_stdout", "msg", "module_stderr", "stderr")
    return "\n".join(str(result[name]) for name in names if result.get(name) and result[name] != _NO_WORD)


def _unreachable(said: str, where: str, settings: BareMetal) -> str:
    file = settings.known_hosts_file or "~/.ssh/known_hosts"
    reasons = (
        (
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            f"the key of {where} is another than the one in {file}: find out why",
        ),
        ("Host key verification failed", f"the key of {where} is not in {file}: compare it on the host, then add it"),
        ("host key is known for", f"the key of {where} is not in {file}: compare it on the host, then add it"),
        ("Permission denied", f"{where} does not let {settings.user} in: look at bare_metal.user and private_key_file"),
        ("Could not resolve hostname", f"the name of {where} cannot be resolved"),
        ("Connection refused", f"{where} refuses the connection: no SSH server listens there"),
        ("No route to host", f"there is no route to {where}"),
        ("Network is unreachable", f"there is no route to {where}"),
        ("banner exchange", f"{where} did not greet as an SSH server within {settings.connect_seconds:g} s"),
        ("timed out", f"{where} did not answer within {settings.connect_seconds:g} s"),
    )
    return next(
        (why for words, why in reasons if words.lower() in said.lower()),
        f"{where}: {short(said.rpartition(_NO_CONNECTION)[2])}",
    )


def _failed(event: Event, said: str, settings: BareMetal) -> str:
    if any(part in said for part in _no_python(settings.python)):
        return f"it has no {settings.python}: install Python 3.9 or later there, or name it in bare_metal.python"
    if event.task == FOLDER and ("minimum of Python version" in said or "deserialization failed" in said):
        return f"its {settings.python} cannot be used, 3.9 or later can: {short(said)}"
    if event.result.get("timedout"):
        period = as_map(event.result["timedout"]).get("period", "?")
        return f"it could not {_STEPS.get(event.task, event.task)} within {period} s"
    code = event.result.get("rc")
    if event.task == PROBE and isinstance(code, int):
        return f"its probe ended with {code}: {short(said) or 'it said nothing'}"
    return f"it could not {_STEPS.get(event.task, event.task)}: {short(said) or 'it said nothing'}"


_STEPS = {
    FOLDER: "make a folder",
    PROGRAMS: "take the programs",
    PROBE: "run the probe",
    REPORT: "hand out the report",
}


def _no_python(python: str) -> Iterator[str]:
    for form in ("'{}' was not found", "{}: not found", "{}: command not found", "{}: No such file or directory"):
        yield form.format(python)
