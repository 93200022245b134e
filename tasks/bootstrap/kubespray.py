"""Operations of a site's Kubespray: playbooks one after the other, by ansible-runner, which outlives its driver.

Each operation has a folder of its own, named by the caller: whoever carries out an operation whose folder is there goes
on with it. ansible-runner runs in a session of its own; it writes each event to a file, and how it ended. A driver
follows these files, so a new one tells on from the place that a dead one told last, and starts nothing twice. What
the playbooks did to hosts is not believed but looked for afterwards, as with every engine.

Kubespray's own check mode does not work and is not offered.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, Unavailable
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.kubespray_events import (
    HostRecap,
    KubesprayEvent,
    KubesprayEvents,
    PlayBegan,
    PlayEnded,
    Recap,
    TaskDone,
    TaskFailed,
    secrets_in,
)
from tasks.bootstrap.kubespray_source import KubesprayCopy
from tasks.processes import last_words, record, record_or_end, recorded, spawn, stop, write_whole, written
from tasks.ssh.masking import masked
from workflows.bootstrap.kubespray import KubesprayPlaybook, KubesprayScope, kubespray_files, section_of

OPERATION, PROCESS, LOG, ENDED = "operation.json", "runner.json", "runner.log", "rc"
FOLLOW_SECONDS = 0.5
"""Between two looks at the files of a living run."""
FORKS = 50
"""Hosts at the same time, as Kubespray's page on large clusters advises."""
STOP_SECONDS = 60.0
"""For Ansible to end its connections and workers."""
KEPT_OF_OURS = ("HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")
_EVENT_FILE = re.compile(r"([0-9]+)-[0-9a-fA-F-]+\.json")


@dataclass(frozen=True)
class KubesprayOutcome:
    """How an operation ended. `unknown`: ansible-runner left no word (killed, no memory, the machine went down)."""

    word: VerdictWord
    why: str
    """In one line; empty where all is well."""
    failures: tuple[TaskFailed, ...] = ()
    hosts: Mapping[str, HostRecap] = field(default_factory=dict[str, HostRecap])
    """What became of each host in the last playbook that ran."""

    def why_of(self, host: str) -> str:
        """Why a host is not what it was to be; "" where all is well. One that failed stops the others, too."""
        own = next((f"{failed.task}: {failed.message}" for failed in self.failures if failed.host == host), "")
        return f"{host}: {own}" if own else self.why


def _nobody(event: KubesprayEvent) -> None:
    del event


@dataclass(frozen=True)
class KubespraySite:
    """Whose hosts, by which copy, and where operations are kept."""

    cluster: ClusterProfile
    copy: KubesprayCopy
    home: Path
    """Operations of this cluster lie below; only we may look into it."""
    scope: KubesprayScope = field(default_factory=KubesprayScope)
    """Which hosts an operation knows."""


def fingerprint_of(site: KubespraySite, playbooks: Sequence[KubesprayPlaybook]) -> str:
    """Of all that an operation is: inventory and variables, playbooks, and the copy with its Ansible.

    Raises:
        Refused: see `carry_out`.
    """
    files = kubespray_files(site.cluster, site.scope, site.copy.removed)
    said = [files, [asdict(playbook) for playbook in playbooks], site.copy.image or str(site.copy.folder)]
    said.append(str(site.copy.environment))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def carry_out(
    site: KubespraySite,
    name: str,
    playbooks: Sequence[KubesprayPlaybook],
    tell: Callable[[KubesprayEvent], None] = _nobody,
    after: str = "",
) -> KubesprayOutcome:
    """Carry out the operation `name`, or go on with it; the playbooks that already ended well are not run again.

    `tell` gets each event behind the place `after` (`KubesprayEvent.place`; "": all). One that failed is begun anew
    under another name.

    Raises:
        Conflict: an operation of this name is another one.
        Refused: the profile says what this engine cannot do; nothing was started.
        Unavailable: its folder cannot be written, or ansible-runner cannot be started.
    """
    folder = site.home / name
    files = kubespray_files(site.cluster, site.scope, site.copy.removed)
    _prepare(folder, files, playbooks)
    _, engine = section_of(site.cluster)
    secrets = secrets_in(engine.variables)
    outcome = KubesprayOutcome(VerdictWord.PASS, "")
    for number, playbook in enumerate(playbooks, start=1):
        begin(site.copy, folder, number, playbook)
        reader = KubesprayEvents(number, secrets)
        for event in follow(folder, number, reader):
            if event.place > after:
                tell(event)
        outcome = outcome_of(folder, number, reader)
        if outcome.word is not VerdictWord.PASS:
            break
    return outcome


def begin(copy: KubesprayCopy, folder: Path, number: int, playbook: KubesprayPlaybook) -> None:
    """Start a playbook of an operation, unless it was started before.

    Raises:
        Unavailable: ansible-runner cannot be started; nothing runs.
    """
    inside = folder / f"{number:02d}"
    if was_begun(inside):
        return
    try:
        _write_run(copy, folder, inside, playbook)
        pid = spawn(_words(inside, playbook, copy), inside / LOG, _environment(copy, folder))
    except OSError as error:
        raise Unavailable(f"ansible-runner cannot be started: {error}", 5.0) from error
    record_or_end(inside / PROCESS, pid, playbook.playbook)


def was_begun(inside: Path) -> bool:
    """Whether a playbook was started in this folder, whoever did it; one that lives is written down then."""
    if written(inside / PROCESS) is not None:
        return True
    if (pid := _living(inside)) is not None:  # its driver died before it could write that down
        record(inside / PROCESS, pid)
        return True
    return _artifacts(inside).exists()  # it ended, too


def _living(inside: Path) -> int | None:
    """The ansible-runner of this folder, where one lives."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and str(inside).encode() in (process / "cmdline").read_bytes().split(b"\0")[4:6]:
                return int(process.name)
    return None


def follow(folder: Path, number: int, reader: KubesprayEvents) -> Iterator[KubesprayEvent]:
    """What a playbook of an operation tells, from its beginning to its end."""
    inside, told = folder / f"{number:02d}", 0
    while True:
        ended = recorded(inside / PROCESS) is None
        for number_of_it, raw in _events_behind(inside, told, last=ended):
            told = number_of_it
            yield from reader.take(raw)
        if ended:
            return
        time.sleep(FOLLOW_SECONDS)


def outcome_of(folder: Path, number: int, reader: KubesprayEvents) -> KubesprayOutcome:
    """How a playbook ended that no longer runs."""
    inside = folder / f"{number:02d}"
    hosts: Mapping[str, HostRecap] = reader.recap.hosts if reader.recap else {}
    failures = tuple(reader.failures)
    try:
        code = int((_artifacts(inside) / ENDED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = masked(last_words(inside / LOG), reader.secrets)
        why = f"ansible-runner left no word of how it ended: {said}"
        return KubesprayOutcome(VerdictWord.UNKNOWN, why, failures, hosts)
    if code == 0:
        return KubesprayOutcome(VerdictWord.PASS, "", failures, hosts)
    if failures:
        first = failures[0]
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        why = f"{first.host}: {first.task}: {first.message}{more}"
    else:
        why = f"Ansible ended with {code}: {masked(_last_line(inside), reader.secrets)}"
    return KubesprayOutcome(VerdictWord.FAIL, why, failures, hosts)


def cancel(site: KubespraySite, name: str) -> bool:
    """End what runs of an operation; True where something did.

    Raises:
        Unavailable: it does not end.
    """
    return any([stop_kept(path) for path in sorted((site.home / name).glob(f"[0-9]*/{PROCESS}"))])


def stop_kept(path: Path) -> bool:
    """End the process of a pid file, which stays: that it was started is still true."""
    kept = path.read_text(encoding="utf-8")
    try:
        return stop(path, STOP_SECONDS)
    finally:
        write_whole(path, kept)


def _prepare(folder: Path, files: Mapping[str, str], playbooks: Sequence[KubesprayPlaybook]) -> None:
    """Write an operation down before it begins: what it is, and the inventory that all its playbooks see.

    Raises:
        Conflict, Unavailable: see `carry_out`.
    """
    wanted = json.dumps([asdict(playbook) for playbook in playbooks], sort_keys=True)
    path = folder / OPERATION
    try:
        if path.exists():
            if path.read_text(encoding="utf-8") != wanted:
                raise Conflict(
                    f"the operation {folder.name} was begun with other playbooks: give this one another name"
                )
            return
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # what Ansible tells of tasks may hold secrets
        for inner, text in files.items():
            (folder / inner).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_private(folder / inner, text)
        write_whole(path, wanted)
    except OSError as error:
        raise Unavailable(f"{folder} cannot be written: {error.strerror}", 5.0) from error


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _write_run(copy: KubesprayCopy, folder: Path, inside: Path, playbook: KubesprayPlaybook) -> None:
    """The folder that ansible-runner reads."""
    (inside / "env").mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(inside / "env" / "extravars", json.dumps(dict(playbook.variables)))
    _write_private(inside / "env" / "settings", json.dumps(runner_settings(copy, folder)))
    if copy.image:  # into a container only these go
        told = {name: value for name, value in _environment(copy, folder).items() if name.startswith("ANSIBLE_")}
        facts = {"ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "facts")}
        _write_private(inside / "env" / "envvars", json.dumps(told | facts))
    if not (folder / "ansible.cfg").exists():
        _write_private(folder / "ansible.cfg", "[defaults]\n")
    (folder / "facts").mkdir(mode=0o700, exist_ok=True)


def runner_settings(copy: KubesprayCopy, folder: Path) -> dict[str, Any]:
    """Settings of ansible-runner: its own environment is not written down; an image runs in a container."""
    said: dict[str, Any] = {"suppress_env_files": True, "idle_timeout": 0, "job_timeout": 0}
    # Facts of all playbooks of an operation, and of no other: their names are the hosts', also of another cluster's.
    said |= {"fact_cache": str(folder / "facts")}
    if copy.image:
        said |= {
            "process_isolation": True,
            "process_isolation_executable": copy.runtime,
            "container_image": copy.image,
            "container_options": ["--network=host"],
            "container_volume_mounts": [f"{folder}:{folder}:rw", "~/.ssh:/root/.ssh:ro"],
        }
    return said


def _words(inside: Path, playbook: KubesprayPlaybook, copy: KubesprayCopy) -> list[str]:
    """Of ansible-runner, which comes with us; the Ansible that it starts is the environment's."""
    limit = ["--limit", ",".join(playbook.limit)] if playbook.limit else []
    return [
        *(sys.executable, "-I", "-m", "ansible_runner", "run", str(inside)),
        *("--playbook", str(copy.folder / playbook.playbook), "--project-dir", str(copy.folder)),
        *("--inventory", str(inside.parent / "inventory"), "--ident", "run", "--quiet", *limit),
    ]


def _environment(copy: KubesprayCopy, folder: Path) -> dict[str, str]:
    """Ansible's own: nothing of the machine's configuration but that of ssh."""
    kept = {name: os.environ[name] for name in KEPT_OF_OURS if name in os.environ}
    programs = [str(copy.environment / "bin")] if copy.environment else []
    own = copy.folder / "ansible.cfg"
    return {
        **kept,
        "PATH": os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)]),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ANSIBLE_CONFIG": str(own if copy.image or own.exists() else folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_FORKS": str(FORKS),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NO_TARGET_SYSLOG": "True",
        "ANSIBLE_NOCOLOR": "1",
    }


def _artifacts(inside: Path) -> Path:
    return inside / "artifacts" / "run"


def _events_behind(inside: Path, told: int, *, last: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Events that were written since, in their order and without a gap; at the end also behind a gap."""
    found: dict[int, Path] = {}
    with suppress(OSError):
        for path in (_artifacts(inside) / "job_events").iterdir():
            match = _EVENT_FILE.fullmatch(path.name)
            if match and int(match[1]) > told:
                found[int(match[1])] = path
    for number in sorted(found):
        if number != told + 1 and not last:
            return
        try:
            raw = json.loads(found[number].read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if not last:
                return  # it is being written
            continue
        told = number
        if isinstance(raw, dict):
            yield number, raw


def _last_line(inside: Path) -> str:
    """What Ansible printed last."""
    words = last_words(_artifacts(inside) / "stdout")
    return words if words else last_words(inside / LOG)


def in_words(event: KubesprayEvent) -> str:
    """An event in one line for people."""
    match event:
        case PlayBegan(play=play):
            return f"{play} …"
        case TaskFailed(host=host, task=task, message=message, unreachable=unreachable):
            return f"{host}: {task} {'found no way to the host' if unreachable else 'failed'}: {message}"
        case TaskDone(host=host, task=task, changed=changed):
            return f"{host}: {task}: {'changed' if changed else 'ok'}"
        case PlayEnded():
            return f"{event.play}: {event.ok} ok, {event.changed} changed, {event.failed + event.unreachable} failed"
        case Recap(hosts=hosts):
            failed = sorted(host for host, told in hosts.items() if told.failed or told.unreachable)
            return f"{len(hosts)} hosts, failed: {', '.join(failed) or 'none'}"
