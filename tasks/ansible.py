"""Nodes without Kubernetes are tested by SSH: Ansible copies the programs, runs the probe, and brings its report back.

It runs in a process of its own (`ansible_child`), with its own configuration and next to nothing of our environment: a
crash, a hang or a kill of it leaves nodes unknown and us alive; a kill of us ends it, too. On a host everything lies in
one folder of the user who logs in; it is removed at the end, or by the next test where nobody was left to do it. What
runs there ends by itself: the host limits it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO

from profiles.admission import BareMetal
from profiles.errors import Unavailable
from tasks.ansible_answers import Reader, event_of, short
from tasks.ansible_inventory import PERSIST_SECONDS, Archive, aim, inventory, whole_seconds
from tasks.preflighting import Told
from tasks.programs import programs_archive
from workflows.preflight import PreflightPlan

CHILD = "tasks.ansible_child"
PLAYBOOK = Path(__file__).with_name("preflight_playbook.yaml")
KEPT_OF_OURS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")
"""Of our environment: it is written down beside the run, and holds tokens otherwise."""
ENDING_SECONDS = 20.0
"""For Ansible to end when it is told to: twice what `ansible_child` takes at most."""
RUNNING = "Running"


def run_over_ssh(plan: PreflightPlan, settings: BareMetal, home: Path, tell: Callable[[str, int], None]) -> list[Told]:
    """Test the plan's nodes by SSH and return what each told, in the plan's order.

    Args:
        plan: what is tested; `launcher` is `ansible`.
        settings: where the nodes are and how they are reached.
        home: PRIMUS_HOME; the program archive lies there.
        tell: gets a phase and how many nodes have told, after each change.

    Raises:
        ProfileError: a field of `bare_metal` cannot be used; nothing was started.
        Unavailable: the program archive or the folder of the run cannot be written.
    """
    found = aim(plan, settings)
    reader, ended = Reader(settings, found.nodes), dict[str, str]()
    asked = found.nodes
    while asked:  # at most twice: whom the first time could not tell, see `Reader.again`
        why = _ask(plan, settings, asked, home, reader, tell)
        ended.update(dict.fromkeys(asked.values(), why))
        untold = reader.again - reader.told.keys()
        asked = {name: node for name, node in found.nodes.items() if node in untold} if asked is found.nodes else {}
    silent = {node: Told(node, why=f"it was not reached: {why}") for node, why in ended.items()}
    unknown = {node: Told(node, why=reason) for node, reason in found.unknown.items()}
    told = {**silent, **reader.told, **unknown}
    return [told[node] for node in plan.nodes]


def _ask(
    plan: PreflightPlan,
    settings: BareMetal,
    nodes: Mapping[str, str],
    home: Path,
    reader: Reader,
    tell: Callable[[str, int], None],
) -> str:
    """Let Ansible test these once (name in the inventory -> node); why those that told nothing did not."""
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


def missing_program() -> str:
    """Why no node can be tested by SSH from here; "" where one can."""
    missing = [name for name in ("ansible_runner", "ansible") if importlib.util.find_spec(name) is None]
    if missing:
        return "ansible-core and ansible-runner are not installed beside primus: install them into its environment"
    return "" if shutil.which("ssh") else "there is no ssh here: install OpenSSH's client"


def _follow(
    hosts: str, settings: BareMetal, reader: Reader, limit_seconds: float, tell: Callable[[str, int], None]
) -> str:
    """Run Ansible and take in what it says; why hosts that told nothing did not, if any did not."""
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
    """Told to end it takes everything along."""
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
