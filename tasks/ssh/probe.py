"""Nodes without Kubernetes are tested by SSH: Ansible copies the programs, runs the probe, and brings its report back.

It runs in a process of its own (`tasks.ssh.ansible`): a crash, a hang or a kill of it leaves nodes unknown and us
alive; a kill of us ends it, too. On a host everything lies in one folder of the user who logs in; it is removed at the
end, or by the next test where none could do it. What runs there ends by itself: the host limits it.

From what Ansible says of its tasks follows what each node reported, or why it reported nothing. Any text may come from
a host: what cannot be read is a reason, never an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profiles.admission import BareMetal
from profiles.errors import Unavailable
from tasks.embedded.engine.json_values import as_map
from tasks.programs_archive import programs_archive
from tasks.ssh.ansible import TaskEnd, ansible, environment, event_of, lines, missing_program, said_of, write_run
from tasks.ssh.failures import short
from tasks.ssh.inventory import Archive, aim, inventory, whole_seconds
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan
from workflows.programs.probes.run import unpack_answers

FOLDER, PROGRAMS, PROBE, REPORT, REMOVAL = "folder", "programs", "probe", "report", "removal"
"""Tasks of the playbook, in their order."""
_NO_CONNECTION = "over ssh:"
"""Ends what Ansible says of an unreachable host, before what ssh says."""
MOST_REPORT_BYTES = 1 << 20
"""A report is some kilobytes; nobody unpacks what else a host may send."""
_UNHEARD = "Broken pipe"
"""Ansible wrote to an ssh that was ending: it takes that for the reason, and what ssh said is lost."""
PLAYBOOK = Path(__file__).with_name("preflight_playbook.yaml")
RUNNING = "Running"


def run_over_ssh(
    plan: PreflightPlan, settings: BareMetal, home: Path, tell: Callable[[str, int], None]
) -> list[NodeResult]:
    """Test the plan's nodes by SSH and return what each reported, in the plan's order.

    The plan's launcher is `ansible`; the program archive lies in `home`. `tell` gets a phase and how many nodes have
    told, after each change.

    Raises:
        ProfileError: a field of `bare_metal` cannot be used; nothing was started.
        Unavailable: the program archive or the folder of the run cannot be written.
    """
    found = aim(plan, settings)
    reader, ended = HostResults(settings, found.nodes), dict[str, str]()
    asked = found.nodes
    while asked:  # at most twice: whom the first time could not tell, see `Reader.again`
        why = _ask(plan, settings, asked, home, reader, tell)
        ended.update(dict.fromkeys(asked.values(), why))
        untold = reader.again - reader.told.keys()
        asked = {name: node for name, node in found.nodes.items() if node in untold} if asked is found.nodes else {}
    silent = {node: NodeResult(node, why=f"it was not reached: {why}") for node, why in ended.items()}
    unknown = {node: NodeResult(node, why=reason) for node, reason in found.unknown.items()}
    told = {**silent, **reader.told, **unknown}
    return [told[node] for node in plan.nodes]


def _ask(
    plan: PreflightPlan,
    settings: BareMetal,
    nodes: Mapping[str, str],
    home: Path,
    reader: HostResults,
    tell: Callable[[str, int], None],
) -> str:
    """Let Ansible test these once (name in the inventory -> node); returns why nodes without a report have none."""
    path = programs_archive(home)
    archive = Archive(path, hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest())
    hosts = inventory(plan, settings, nodes, archive)
    why = missing_program()
    if why:
        return why
    tell("", sum(bool(item.at) for item in reader.told.values()))
    try:
        return _follow(hosts, settings, reader, whole_seconds(plan, settings, len(nodes)), tell)
    except OSError as error:
        raise Unavailable(f"Ansible cannot be started here ({error}); free some space or processes") from error


def _follow(
    hosts: str, settings: BareMetal, reader: HostResults, limit_seconds: float, tell: Callable[[str, int], None]
) -> str:
    """Run Ansible and take in what it says; returns why hosts without a report have none."""
    with tempfile.TemporaryDirectory(prefix="primus-ssh-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_run(folder, hosts, {PLAYBOOK.name: PLAYBOOK.read_bytes()})
        own = environment(folder, settings.at_once, settings.connect_seconds)
        last = ""
        with ansible(folder, PLAYBOOK.name, own, limit_seconds) as (process, late):
            for line in lines(process):
                event = event_of(line)
                last = last if event or not line.strip() or line.startswith("{") else line
                if event and reader.take(event):
                    tell(RUNNING, sum(bool(item.at) for item in reader.told.values()))
            code = process.wait()
    return f"time was up after {limit_seconds:g} s" if late.is_set() else f"Ansible ended with {code}: {short(last)}"


class HostResults:
    """Follows the ends of tasks and keeps what each host has reported."""

    def __init__(self, settings: BareMetal, nodes: Mapping[str, str]) -> None:
        """`nodes`: name in the inventory -> node."""
        self._settings, self._nodes = settings, nodes
        self.told: dict[str, NodeResult] = {}
        """By node, once its answer or the reason for its silence is known."""
        self.again: set[str] = set()
        """Nodes whose ssh ended before Ansible heard why: worth one more try, whose end is told whatever it is."""
        self._printed: dict[str, str] = {}
        """By node, what its probe printed: told where it left no report."""

    def take(self, event: TaskEnd) -> bool:
        """Take it in; returns whether a node has now reported something, or never will."""
        node = self._nodes.get(event.host)
        if node is None or node in self.told or event.task == REMOVAL:
            return False
        if event.ending == "ok" and event.task != REPORT:
            self._printed[node] = said_of(event.result) if event.task == PROBE else ""
            return False
        if node not in self.again and _is_unheard(event):
            self.again.add(node)
            return False
        self.told[node] = _told(node, event) if event.ending == "ok" else NodeResult(node, why=self._why(node, event))
        return True

    def _why(self, node: str, event: TaskEnd) -> str:
        said = said_of(event.result)
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


def _is_unheard(event: TaskEnd) -> bool:
    return (event.task, event.ending) == (FOLDER, "unreachable") and _UNHEARD in said_of(event.result)


def report_of(node: str, text: str) -> NodeResult:
    """What a probe's report says of a node; `why` where it cannot be read."""
    try:
        report: Any = json.loads(text)
        at, seconds = float(report["at"]), float(report["seconds"])
        answers = unpack_answers(str(report["answers"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return NodeResult(node, why=f"its report cannot be read: {short(str(error)) or type(error).__name__}")
    if not (math.isfinite(at) and math.isfinite(seconds) and at > 0):
        return NodeResult(node, why=f"its report cannot be read: it was made at {at}")
    return NodeResult(node, at, seconds, answers)


def _told(node: str, event: TaskEnd) -> NodeResult:
    content = str(event.result.get("content", ""))
    if len(content) > MOST_REPORT_BYTES:
        return NodeResult(node, why=f"its report is longer than {MOST_REPORT_BYTES} bytes")
    try:
        text = base64.b64decode(content, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        return NodeResult(node, why=f"its report cannot be read: {error}")
    return report_of(node, text)


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


def _failed(event: TaskEnd, said: str, settings: BareMetal) -> str:
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
