"""A play on some hosts: run by Ansible in a child, followed as it goes, and told per host how it ended.

Whether a host came through is known from Ansible's own account at the end, never from silence: a host of which nothing
was told is unknown. What one host does never raises. Every text of a host has what kubeadm hands out masked before it
is shortened, told, logged or kept.
"""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from profiles.bootstrap.inventory import ClusterHost, Ssh
from profiles.errors import Unavailable
from profiles.vocabulary import VerdictWord
from tasks.embedded.engine.json_values import as_map
from tasks.settings import expanded
from tasks.ssh.ansible import (
    TaskEnd,
    ansible,
    begin_of,
    environment,
    event_of,
    lines,
    missing_program,
    said_of,
    write_run,
)
from tasks.ssh.failures import short
from tasks.ssh.inventory import plain, proxy_command, ssh_arguments, written
from tasks.ssh.masking import masked

_NOISE = ("To see the stack trace of this error", "error execution phase", "Using module file", "Pipelining is enabled")
"""Lines in which programs say nothing of what happened."""
_BEGINS = "error execution phase"
_LISTS = ("changed", "removed")
"""Under these our own programs on hosts list, in JSON, what they did."""
_SHOWN = 4
"""So many of them people are told by name."""
Ending = Literal["began", "ok", "changed", "failed", "unreachable"]


@dataclass(frozen=True)
class PlayHost:
    """One host of a play."""

    name: str
    host: ClusterHost
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    """Plain data; no text in it is a template."""


@dataclass(frozen=True)
class Play:
    """What is run, where, and how."""

    file: Path
    """A playbook; the YAML files beside it can be included."""
    groups: Mapping[str, tuple[PlayHost, ...]]
    ssh: Ssh
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    """Of all hosts."""
    check: bool = False
    """Say what would be done, and write nothing."""
    limit_seconds: float = 1800.0


@dataclass(frozen=True)
class PlayEvent:
    """How one task ended on one host, or that it began there, told as it happens."""

    host: str
    task: str
    ending: Ending
    said: str
    """The innermost tool's last words, in one line."""


@dataclass(frozen=True)
class HostEnd:
    """How a play ended on one host."""

    host: str
    word: VerdictWord
    """`unknown`: it was not reached, or the play was ended before its account."""
    why: str = ""
    changed: tuple[str, ...] = ()
    """Tasks that changed, or with `check` would change, something."""
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    """By task, what its program printed."""


def run_play(play: Play, tell: Callable[[PlayEvent], None], logs: Path | None = None) -> dict[str, HostEnd]:
    """Run it; how it ended on each host, by name.

    Args:
        play: what is run.
        tell: gets each task's begin and end on each host as it comes, in one thread.
        logs: folder in which each host has a log, `<host>.log`, that grows; None: no logs.

    Raises:
        ProfileError: a path in `ssh` cannot be used.
        Unavailable: Ansible cannot be started here.
    """
    names = dict.fromkeys(item.name for items in play.groups.values() for item in items)
    alias = {f"h{index}": name for index, name in enumerate(names)}
    follower = _Follower(alias, tell, logs)
    if why := missing_program():
        return {name: HostEnd(name, VerdictWord.UNKNOWN, why) for name in names}
    try:
        with tempfile.TemporaryDirectory(prefix="primus-play-", ignore_cleanup_errors=True) as place:
            why = _follow(play, Path(place), {name: key for key, name in alias.items()}, follower)
    except OSError as error:
        raise Unavailable(f"Ansible cannot be started here ({error}); free some space or processes") from error
    return {name: follower.end_of(name, why) for name in names}


def _follow(play: Play, folder: Path, aliases: Mapping[str, str], follower: _Follower) -> str:
    """Run Ansible and take in what it says; returns why hosts without an account have none."""
    project = {path.name: path.read_bytes() for path in play.file.parent.glob("*.yaml")}
    write_run(folder, play_inventory(play, aliases), project)
    own = environment(folder, play.ssh.at_once, play.ssh.connect_seconds, compressed=False)
    words = ("--cmdline=--check",) if play.check else ()
    with ansible(folder, play.file.name, own, play.limit_seconds, words) as (process, late):
        for line in lines(process):
            if not follower.take(line) and line.strip() and not line.startswith("{"):
                follower.last = line
        code = process.wait()
    if late.is_set():
        return f"time was up after {play.limit_seconds:g} s"
    return f"Ansible ended with {code}: {short(masked(follower.last))}"


def play_inventory(play: Play, aliases: Mapping[str, str]) -> str:
    """The inventory as YAML: a group a group, under names that an inventory reads as nothing else.

    Raises:
        ProfileError: a path in `ssh` cannot be used.
    """
    groups = {
        group: {"hosts": {aliases[item.name]: _host(play, item) for item in items}}
        for group, items in play.groups.items()
    }
    common = {
        "ansible_connection": "ssh",
        "ansible_python_interpreter": plain(play.ssh.python),
        **plain(play.variables),
    }
    return written({"all": {"vars": common, "children": groups}})


def _host(play: Play, item: PlayHost) -> dict[str, Any]:
    ssh, host = play.ssh, item.host
    user, key, jump = host.user or ssh.user, host.private_key_file or ssh.private_key_file, host.jump or ssh.jump
    arguments = ssh_arguments(ssh.model_copy(update={"private_key_file": key}), "bootstrap.ssh")
    path = str(expanded(key, "bootstrap.ssh.private_key_file")) if key else ""
    if jump:
        identity = ["-i", path] if path else []
        arguments += ["-o", f"ProxyCommand={proxy_command(jump, user, [*arguments, *identity])}"]
    return {
        "ansible_host": plain(host.address),
        "ansible_port": host.port or ssh.port,
        "ansible_user": plain(user),
        "ansible_ssh_common_args": plain(shlex.join(arguments)),
        **({"ansible_ssh_private_key_file": plain(path)} if path else {}),
        **({"ansible_become": True, "ansible_become_flags": "-H -S -n"} if user != "root" else {}),
        "primus_name": plain(item.name),
        **plain(item.variables),
    }


class _Follower:
    """Takes in what Ansible tells."""

    def __init__(self, alias: Mapping[str, str], tell: Callable[[PlayEvent], None], logs: Path | None) -> None:
        self._alias, self._tell, self._logs = alias, tell, logs
        self._why: dict[str, str] = {}
        self._changed: dict[str, dict[str, None]] = {}
        self._told: dict[str, dict[str, str]] = {}
        self._account: dict[str, tuple[bool, bool]] = {}
        """By host: whether it came through, and whether it was reached."""
        self.last = ""
        """What Ansible itself said last, of no task."""
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)

    def take(self, line: str) -> bool:
        """Take in a line of ansible-runner's output; whether it was one of its events."""
        event = event_of(line)
        if event is None:
            return self._take_begin(line) or self._take_account(line)
        name = self._alias.get(event.host)
        if name is None or event.ignored:
            return True
        names = _names(event.result) if event.ending == "ok" else None
        said = innermost(event.result) if names is None else names
        ending = "changed" if event.ending == "ok" and event.result.get("changed") else event.ending
        told = PlayEvent(name, event.task, ending, said)  # pyright: ignore[reportArgumentType]
        if ending in ("failed", "unreachable"):
            self._why[name] = f"{event.task}: {said or 'it said nothing'}"
        if ending == "changed":
            self._changed.setdefault(name, {})[event.task] = None
        if output := event.result.get("stdout"):
            self._told.setdefault(name, {})[event.task] = masked(str(output))
        self._log(told, event)
        self._tell(told)
        return True

    def end_of(self, name: str, why: str) -> HostEnd:
        """How the play ended on a host; `why`: the reason where Ansible left no account."""
        changed, told = tuple(self._changed.get(name, ())), self._told.get(name, {})
        came, reached = self._account.get(name, (False, False))
        if came:
            return HostEnd(name, VerdictWord.PASS, "", changed, told)
        word = VerdictWord.FAIL if name in self._account and reached else VerdictWord.UNKNOWN
        return HostEnd(name, word, self._why.get(name) or why, changed, told)

    def _take_begin(self, line: str) -> bool:
        begun = begin_of(line)
        if begun is not None and begun[0] in self._alias:
            self._tell(PlayEvent(self._alias[begun[0]], begun[1], "began", ""))
        return begun is not None

    def _take_account(self, line: str) -> bool:
        try:
            found = as_map(json.loads(line))
        except (ValueError, RecursionError):
            return False
        if found.get("event") == "playbook_on_stats":
            data = as_map(found.get("event_data"))
            failed, dark = as_map(data.get("failures")), as_map(data.get("dark"))
            for key in as_map(data.get("processed")):
                name = self._alias.get(key)
                if name is not None:
                    self._account[name] = (not failed.get(key) and not dark.get(key), not dark.get(key))
        elif found.get("event") in ("verbose", "error") and str(found.get("stdout", "")).strip():
            self.last = str(found["stdout"])
        return "event" in found

    def _log(self, told: PlayEvent, event: TaskEnd) -> None:
        if self._logs is None:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        more = masked(said_of(event.result)) if told.ending in ("failed", "unreachable") else told.said
        with (self._logs / f"{told.host}.log").open("a", encoding="utf-8") as file:
            file.write(f"{at} {told.ending:<11} {told.task}{': ' + more.strip() if more.strip() else ''}\n")


def _names(result: Mapping[str, Any]) -> str | None:
    """What a program of ours did, by name and in one line, where it lists that; None: it says something else."""
    try:
        told = as_map(json.loads(str(result.get("stdout", ""))))
    except (ValueError, RecursionError):
        return None
    listed = next((told[key] for key in _LISTS if isinstance(told.get(key), list)), None)
    if listed is None:
        return None
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return short(masked(", ".join(map(str, listed[:_SHOWN])) + more))


def innermost(result: Mapping[str, Any]) -> str:
    """What the tool behind a task said last, in one line: of a loop its failed item, of kubeadm its reason.

    What kubeadm hands out is masked.
    """
    items = [as_map(one) for one in result.get("results") or () if as_map(one).get("failed")]
    if items:
        return innermost(items[-1])
    if "censored" in result:
        return "its words are kept secret"
    told = [line.strip() for line in said_of(result).splitlines()]
    kept = [
        line.rpartition(_BEGINS)[2] or line for line in told if line and not line.startswith(_NOISE[:1] + _NOISE[2:])
    ]
    return short(masked("\n".join(kept)))
