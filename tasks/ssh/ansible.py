"""Ansible as a process of its own: started, listened to, and ended with all that it started.

It has its own configuration and next to nothing of our environment: a crash, a hang or a kill of it leaves hosts
unknown and us alive; a kill of us ends it, too (`ansible_child`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tasks.embedded.engine.json_values import as_map
from tasks.ssh.inventory import PERSIST_SECONDS

CHILD = "tasks.ssh.ansible_child"
KEPT_OF_OURS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")
"""Of our environment: it is written down beside the run, and holds tokens otherwise."""
ENDING_SECONDS = 20.0
"""For Ansible to end when it is told to: twice what `ansible_child` takes at most."""
_NO_WORD = "non-zero return code"
"""What `command` says of a program that failed; the code stands beside it."""
BEGINS = "runner_on_start"
_ENDINGS = {"runner_on_ok": "ok", "runner_on_failed": "failed", "runner_on_unreachable": "unreachable"}


def missing_program() -> str:
    """Why no host can be reached by Ansible from here; "" where one can."""
    missing = [name for name in ("ansible_runner", "ansible") if importlib.util.find_spec(name) is None]
    if missing:
        return "ansible-core and ansible-runner are not installed beside primus: install them into its environment"
    return "" if shutil.which("ssh") else "there is no ssh here: install OpenSSH's client"


def environment(folder: Path, at_once: int, connect_seconds: float, compressed: bool = True) -> dict[str, str]:
    """Ansible's own: no configuration of the machine's is taken over but that of ssh.

    `compressed`: connections are; programs and images of hundreds of megabytes go faster without.
    """
    kept = {name: os.environ[name] for name in KEPT_OF_OURS if name in os.environ}
    programs = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_FORKS": str(at_once),
        "ANSIBLE_TIMEOUT": str(max(1, round(connect_seconds))),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": f"{'-C ' if compressed else ''}-o ControlMaster=auto -o ControlPersist={PERSIST_SECONDS}s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "control"),
        "ANSIBLE_NO_TARGET_SYSLOG": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


def write_run(folder: Path, hosts: str, project: Mapping[str, bytes]) -> None:
    """The folder that ansible-runner reads, which is empty; only we can look into it.

    Args:
        folder: where.
        hosts: the inventory, YAML.
        project: content of playbooks and what they include, by file name.
    """
    for name in ("inventory", "project", "env", "control"):
        (folder / name).mkdir(mode=0o700)
    (folder / "inventory" / "hosts.yaml").write_text(hosts, encoding="utf-8")
    for name, content in project.items():
        (folder / "project" / name).write_bytes(content)
    (folder / "env" / "settings").write_text("suppress_env_files: true\n", encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")


@contextlib.contextmanager
def ansible(
    folder: Path, playbook: str, own: Mapping[str, str], limit_seconds: float, words: tuple[str, ...] = ()
) -> Generator[tuple[subprocess.Popen[str], threading.Event]]:
    """Ansible as a process; it and what it started here has ended afterwards. The event: its time was up."""
    late = threading.Event()
    what = ["run", str(folder), "--playbook", playbook, "--json", *words]
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", CHILD, str(os.getpid()), *what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=dict(own),
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


def lines(process: subprocess.Popen[str]) -> Generator[str]:
    """What it prints, as it comes."""
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
    ignored: bool = False
    """It failed and the playbook goes on all the same."""


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
    ignored = bool(data.get("ignore_errors"))
    return TaskEnd(str(data.get("task", "")), str(data["host"]), ending, as_map(data.get("res")), ignored)


def begin_of(line: str) -> tuple[str, str] | None:
    """Host (as the inventory has it) and task in a line that says that one has begun; None: it says something else."""
    if BEGINS not in line:  # every line is read twice, and few say this
        return None
    try:
        found = as_map(json.loads(line))
    except (ValueError, RecursionError):
        return None
    data = as_map(found.get("event_data"))
    if found.get("event") != BEGINS or not data.get("host"):
        return None
    return str(data["host"]), str(data.get("task", ""))


def said_of(result: Mapping[str, Any]) -> str:
    """All that a result says, the most significant last."""
    names = ("stdout", "module_stdout", "msg", "module_stderr", "stderr")
    return "\n".join(str(result[name]) for name in names if result.get(name) and result[name] != _NO_WORD)
