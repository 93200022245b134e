"""Nodes without Kubernetes are tested by SSH: Ansible copies the programs, runs the probe, and brings its report back.

It runs in a process of its own (`ansible_child`), with its own configuration and next to nothing of our environment: a
crash, a hang or a kill of it leaves nodes unknown and us alive; a kill of us ends it, too. On a host everything lies in
one folder of the user who logs in; it is removed at the end, or by the next test where none could do it. What runs
there ends by itself: the host limits it.

From what Ansible says of its tasks follows what each node reported, or why it reported nothing. Any text may come from
a host: what cannot be read is a reason, never an error.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from profiles.admission import BareMetal
from profiles.errors import Unavailable
from tasks.embedded.engine.json_values import as_map
from tasks.programs_archive import programs_archive
from tasks.ssh.inventory import PERSIST_SECONDS, Archive, aim, inventory, whole_seconds
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan
from workflows.programs.probes.run import unpack_answers

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

CHILD = "tasks.ssh.ansible_child"
PLAYBOOK = Path(__file__).with_name("preflight_playbook.yaml")
KEPT_OF_OURS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")
"""Of our environment: it is written down beside the run, and holds tokens otherwise."""
ENDING_SECONDS = 20.0
"""For Ansible to end when it is told to: twice what `ansible_child` takes at most."""
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


def missing_program() -> str:
    """Why no node can be tested by SSH from here; "" where one can."""
    missing = [name for name in ("ansible_runner", "ansible") if importlib.util.find_spec(name) is None]
    if missing:
        return "ansible-core and ansible-runner are not installed beside primus: install them into its environment"
    return "" if shutil.which("ssh") else "there is no ssh here: install OpenSSH's client"


def environment(folder: Path, settings: BareMetal) -> dict[str, str]:
    """Ansible's own: no configuration of the machine's is taken over but that of ssh."""
    kept = {name: os.environ[name] for name in KEPT_OF_OURS if name in os.environ}
    programs = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_FORKS": str(settings.at_once),
        "ANSIBLE_TIMEOUT": str(max(1, round(settings.connect_seconds))),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": f"-C -o ControlMaster=auto -o ControlPersist={PERSIST_SECONDS}s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "control"),
        "ANSIBLE_NO_TARGET_SYSLOG": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


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
        _write(folder, hosts)
        last = ""
        with _ansible(folder, settings, limit_seconds) as (process, late):
            for line in _lines(process):
                event = event_of(line)
                last = last if event or not line.strip() or line.startswith("{") else line
                if event and reader.take(event):
                    tell(RUNNING, sum(bool(item.at) for item in reader.told.values()))
            code = process.wait()
    return f"time was up after {limit_seconds:g} s" if late.is_set() else f"Ansible ended with {code}: {short(last)}"


def _write(folder: Path, hosts: str) -> None:
    """The folder that ansible-runner reads; only we can look into it."""
    for name in ("inventory", "project", "env", "control"):
        (folder / name).mkdir(mode=0o700)
    (folder / "inventory" / "hosts.yaml").write_text(hosts, encoding="utf-8")
    (folder / "project" / PLAYBOOK.name).write_bytes(PLAYBOOK.read_bytes())
    (folder / "env" / "settings").write_text("suppress_env_files: true\n", encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")


@contextlib.contextmanager
def _ansible(
    folder: Path, settings: BareMetal, limit_seconds: float
) -> Generator[tuple[subprocess.Popen[str], threading.Event]]:
    """Ansible as a process; it and what it started here has ended afterwards. The event: its time was up."""
    words = ["run", str(folder), "--playbook", PLAYBOOK.name, "--json"]
    late = threading.Event()
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", CHILD, str(os.getpid()), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(folder, settings),
        cwd=folder,
        start_new_session=True,
    )

    def end() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(limit_seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield process, late
    finally:
        timer.cancel()
        _end(process)
        if process.stdout is not None:
            process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """End Ansible; at the request it takes everything along."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _lines(process: subprocess.Popen[str]) -> Generator[str]:
    stream: IO[str] | None = process.stdout
    if stream is not None:
        yield from stream


@dataclass(frozen=True)
class TaskEnd:
    """How one task ended on one host."""

    task: str
    host: str
    """Its name in the inventory."""
    ending: str
    """`ok`, `failed`, `unreachable`."""
    result: Mapping[str, Any]


def event_of(line: str) -> TaskEnd | None:
    """The end of a task in a line of ansible-runner's output; None: the line is about something else."""
    try:
        told: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = as_map(told)
    ending = _ENDINGS.get(str(found.get("event", "")))
    data = as_map(found.get("event_data"))
    if ending is None or not data.get("host"):
        return None
    return TaskEnd(str(data.get("task", "")), str(data["host"]), ending, as_map(data.get("res")))


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
            self._printed[node] = _said(event.result) if event.task == PROBE else ""
            return False
        if node not in self.again and _is_unheard(event):
            self.again.add(node)
            return False
        self.told[node] = _told(node, event) if event.ending == "ok" else NodeResult(node, why=self._why(node, event))
        return True

    def _why(self, node: str, event: TaskEnd) -> str:
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


def _is_unheard(event: TaskEnd) -> bool:
    return (event.task, event.ending) == (FOLDER, "unreachable") and _UNHEARD in _said(event.result)


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


def short(text: str) -> str:
    """The end of what was said, in one line."""
    said = " ".join(text.split())
    return said if len(said) <= SAID_CHARACTERS else f"… {said[-SAID_CHARACTERS:]}"


def _said(result: Mapping[str, Any]) -> str:
    """All that a result says, the most significant last."""
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
